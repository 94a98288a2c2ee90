"""The detector study (S000, Lu et al.): models by accuracy (mAP), uncertainty and adversarial robustness: plan, run, results,
rank statistics, tiers, charts.

``measures`` names what is compared, ``significance`` and ``ordering`` decide which model is better, ``analysis`` makes the
tables of the paper from per-image results. Nothing is imported here: the statistics need no torch.
"""
