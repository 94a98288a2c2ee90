"""Node ``recorder``: records the cell's topics to an mcap file."""
