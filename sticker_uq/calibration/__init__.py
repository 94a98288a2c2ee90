"""Labelled images -> policy with a guarantee. The unit of every guarantee is the image; fitting and proving share no image."""
