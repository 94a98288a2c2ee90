# SPDX-License-Identifier: Apache-2.0
"""Training of detectors and of novelty networks and heads: initial weights, samples, augmentation, loss, learning rate,
optimiser, checkpoint.
"""
