# SPDX-License-Identifier: Apache-2.0
"""Studies as in the papers, on many images, a package each: detectors (S000), ambiguity and monitors (S001, S003), DiL (S002)."""
