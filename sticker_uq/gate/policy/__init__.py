"""The policy file: schema, limits, and the verdict on one object."""
