"""Qualification of a cell in steps, from parts of labelled images to a verdict: ready or not, what is required, what
guarantee more labels would buy.
"""
