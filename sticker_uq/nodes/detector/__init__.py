"""Node ``detector``: publishes one assessment per image."""
