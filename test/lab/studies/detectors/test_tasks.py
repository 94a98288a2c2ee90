# SPDX-License-Identifier: Apache-2.0
"""What a process of a study keeps in memory."""

from sticker_uq.detection import DetectorSettings
from sticker_uq.lab.studies.detectors.study_tasks import _detectors


def test_the_rates_of_a_model_share_its_weights_and_their_fast_copies() -> None:
    rates = (0.0, 0.1, 0.5)
    found = _detectors(DetectorSettings(device="cpu"), rates)
    assert [detector.settings.dropout_rate for detector in found.values()] == list(rates)
    first, *others = found.values()
    for other in others:
        assert other.model is first.model
        assert other._frozen is first._frozen
        assert other._exact is not first._exact
