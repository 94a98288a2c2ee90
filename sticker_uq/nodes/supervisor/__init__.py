"""Node ``supervisor``: scenes in, permits that expire out; asks the operator where the policy is not sure."""
