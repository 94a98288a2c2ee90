"""The detectors' networks: torchvision's models, split at their first dropout, one module per family."""
