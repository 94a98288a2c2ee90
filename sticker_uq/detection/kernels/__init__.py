# SPDX-License-Identifier: Apache-2.0
"""Fast kernels of the detectors' networks: frozen models, fast heads, convolutions, gradients, suppression, threads, GPU
memory; tested against torchvision.
"""
