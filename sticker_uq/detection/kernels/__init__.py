"""Optimised implementations of the stochastic passes for processor and GPU, tested against torchvision's own modules."""
