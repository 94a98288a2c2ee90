"""Monitoring of the policy's assumptions while the cell works: drift, familiarity, test martingales."""
