"""What a policy file says, and what it says about one object."""
