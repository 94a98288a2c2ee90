"""The detector families: the networks of torchvision, cut at their first dropout."""
