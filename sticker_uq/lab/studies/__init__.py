"""The studies of the papers: detectors (S000), ambiguity and monitors (S001), DiL (S002)."""
