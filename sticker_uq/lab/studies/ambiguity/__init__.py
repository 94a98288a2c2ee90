"""AmbiGuess: images between two classes, with probabilistic labels (S001, Weiss et al. 2022)."""
