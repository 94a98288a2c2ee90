"""From labelled images to a policy with a guarantee: what was seen of them, what was learned, what could be proved.

The unit of every promise is the image. Fitting and proving never share an image.
"""
