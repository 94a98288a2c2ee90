# SPDX-License-Identifier: Apache-2.0
"""AmbiGuess (S001, Weiss et al. 2022): autoencoders trained to generate ambiguous pictures between two classes, with
probabilistic labels; pasted as crops.
"""
