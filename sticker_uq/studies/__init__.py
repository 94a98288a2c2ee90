"""Whole experiments on supervisors: the tables of Weiss et al. 2022 on public data and on the cell's own objects."""
