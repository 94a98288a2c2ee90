"""Training of detectors and of the novelty network."""
