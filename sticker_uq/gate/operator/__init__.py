"""What the operator answered, and what the gate does about it."""
