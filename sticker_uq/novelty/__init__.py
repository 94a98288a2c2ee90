"""Foreign objects and missed stickers: the novelty network, its regions, and the head on the detector's feature maps."""
