"""What the detector was never shown: a second network, its regions, and the head that reads the detector's own maps."""
