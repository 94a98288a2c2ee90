"""The study bench (Wu et al.): every detector's accuracy, uncertainty and adversarial robustness, compared with statistics.

``measures`` names what is compared, ``significance`` and ``ordering`` say which model is better, ``analysis`` makes the tables of
the paper from per-image results. Nothing is imported here: statistics need no torch.
"""
