# SPDX-License-Identifier: Apache-2.0
"""Qualification of a cell in steps, from parts of a labelled data set to a verdict: ready or not, what is required, provable
levels, gain by more labels.
"""
