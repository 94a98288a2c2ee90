"""Node ``supervisor``: scenes in, a permit that expires out; the operator is asked where the policy is not sure."""
