"""Node ``detector``: images in, one assessment per image out."""
