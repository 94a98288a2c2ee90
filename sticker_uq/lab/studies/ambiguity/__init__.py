"""AmbiGuess: pictures that truly belong to two classes, with probabilistic labels (Weiss et al. 2022)."""
