"""Whole experiments on monitors and on networks for one decision: the tables of Weiss et al. 2022, of Ullah et al."""
