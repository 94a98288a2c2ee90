"""Fast kernels of the detectors: frozen models, convolutions, suppression, threads, GPU memory and transfers; tested against
torchvision's own modules.
"""
