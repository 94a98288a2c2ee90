"""Reports, charts and annotated images."""
