# SPDX-License-Identifier: Apache-2.0
"""Random scenes have the labels that they had before clustering was made faster."""

from benchmarks.clustering import labels_digest


def test_random_scenes_keep_their_labels():
    assert labels_digest(60) == "97f3cb969c0eb206a1004719f22879925176986f968cf8868c3b32349fe27659"
