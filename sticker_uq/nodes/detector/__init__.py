"""Node ``detector``: one assessment per image."""
