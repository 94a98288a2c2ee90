"""The operator's answers and commands, and how the gate handles them."""
