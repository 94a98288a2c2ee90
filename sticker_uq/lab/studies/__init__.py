# SPDX-License-Identifier: Apache-2.0
"""Studies as in the papers, on many images: detectors (S000), ambiguity and monitors (S001), DiL (S002)."""
