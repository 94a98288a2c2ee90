# SPDX-License-Identifier: Apache-2.0
"""AmbiGuess: images between two classes, with probabilistic labels (S001, Weiss et al. 2022)."""
