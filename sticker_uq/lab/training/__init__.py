# SPDX-License-Identifier: Apache-2.0
"""Training of detectors and of the novelty network."""
