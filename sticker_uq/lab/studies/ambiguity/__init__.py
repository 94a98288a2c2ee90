"""AmbiGuess (S001, Weiss et al. 2022): autoencoders that make ambiguous images between two classes, with probabilistic
labels.
"""
