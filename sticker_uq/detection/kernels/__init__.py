# SPDX-License-Identifier: Apache-2.0
"""Fast kernels of the detectors for processor and GPU, tested against torchvision's own modules."""
