"""The detector families: torchvision's networks, split at their first dropout."""
