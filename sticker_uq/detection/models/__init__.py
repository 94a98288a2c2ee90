# SPDX-License-Identifier: Apache-2.0
"""The detectors' networks: torchvision's models, split at their first dropout, one module per family."""
