# SPDX-License-Identifier: Apache-2.0
"""Fast kernels of the networks: frozen models, fast heads, convolutions, suppression, GPU memory; tested against torchvision."""
