# SPDX-License-Identifier: Apache-2.0
"""The stages of an assessment, by their names in its timings."""

MODEL_STAGES = ("encode", "sample", "detect", "dil", "novelty", "panel")
"""Those in which networks compute; the others cluster and measure."""
