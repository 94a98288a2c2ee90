"""Whether what the policy was calibrated on still holds while the cell works: drift, familiarity, test martingales."""
