"""Fast kernels of the detectors' networks: frozen models, fast heads, convolutions, gradients, suppression, threads, GPU
memory; tested against torchvision.
"""
