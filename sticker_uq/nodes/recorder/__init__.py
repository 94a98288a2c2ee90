"""Node ``recorder``: the cell's topics in an mcap file."""
