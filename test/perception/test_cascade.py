# SPDX-License-Identifier: Apache-2.0
"""A cascade: who stages, what counts, one identity, and how it is made from parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sticker_uq.gate import Policy
from sticker_uq.gate.policy.policy_schema import Validity
from sticker_uq.perception import Cascade, Perception, PerceptionSettings, cascade
from sticker_uq.perception.cascade import CascadeStage, asks_a_person, escalate
from sticker_uq.perception.factory import load_perception
from sticker_uq.scene import InvalidInput, Status
from sticker_uq.testing.scenes import assessment, observed
from test.helpers.models import MIN_SIZE, picture, tiny_detector

pytestmark = pytest.mark.usefixtures("one_thread")

SSDLITE, RETINANET = "ssdlite320_mobilenet_v3_large", "retinanet_resnet50_fpn"
SURE = assessment(observed())
UNSURE = assessment(observed(shannon_entropy=1.5))


def scenes(*kinds: str, ms: float = 10.0) -> list[CascadeStage]:
    known = {"sure": SURE, "unsure": UNSURE}
    made = [replace(known[kind], timings={"total": ms}) for kind in kinds]
    return [CascadeStage(lambda scene=scene: scene, ms) for scene in made]  # type: ignore[misc]


def looked(stages: Sequence[CascadeStage], budget_ms: float = 0.0) -> int:
    return len(escalate(stages, partial(asks_a_person, policy=Policy()), budget_ms))


def test_a_larger_model_looks_only_while_a_person_would_be_asked() -> None:
    assert looked(scenes("sure", "sure", "sure")) == 1
    assert looked(scenes("unsure", "sure", "sure")) == 2
    assert looked(scenes("unsure", "unsure", "unsure")) == 3


@given(st.lists(st.floats(1, 100), min_size=2, max_size=5), st.floats(1, 400))
def test_no_more_time_than_the_budget_is_planned(times: list[float], budget: float) -> None:
    stages = [
        CascadeStage(lambda ms=ms: replace(UNSURE, timings={"total": ms}), ms)  # type: ignore[misc]
        for ms in times
    ]
    count = looked(stages, budget)
    assert count == 1 or sum(times[:count]) <= budget
    assert count == len(times) or sum(times[: count + 1]) > budget


def test_a_failed_look_is_no_doubt_that_another_model_could_settle() -> None:
    failed = replace(UNSURE, status=Status.FAILED, timings={"total": 1.0})
    assert looked([CascadeStage(lambda: failed, 1.0), *scenes("sure")]) == 1


def stage(name: str) -> Perception:
    settings = PerceptionSettings(model=name, min_size=MIN_SIZE, passes=4)
    return Perception(settings, tiny_detector(name, passes=4))


@pytest.mark.parametrize("unsure", [True, False])
def test_a_cascade_has_one_identity_and_says_who_answered(
    unsure: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cascade, "asks_a_person", lambda scene, policy: unsure)
    stages = [stage(SSDLITE), stage(RETINANET)]
    settings = stages[0].settings.model_copy(update={"escalate_to": "large.yaml"})
    both = Cascade(settings, stages, Policy())
    both.warm_up()
    scene = both.assess(picture(), 5, "camera")
    alone = stages[int(unsure)].assess(picture(), 5, "camera")
    assert scene.model == alone.model == (RETINANET if unsure else SSDLITE)
    assert scene.model_hash == both.model_hash not in [s.model_hash for s in stages]
    assert scene.settings_hash == both.settings_hash not in [s.settings_hash for s in stages]
    assert scene.panel_hash == ""
    own = {"model_hash": alone.model_hash, "settings_hash": alone.settings_hash}
    assert replace(scene, **own).to_bytes() == alone.to_bytes()
    assert ("escalation" in scene.timings) is unsure
    if unsure:
        assert scene.timings["total"] > scene.timings["escalation"] > 0
    assert both.failed_assessment(7, "camera", "dark").model_hash == both.model_hash


def test_another_budget_or_policy_is_another_cascade() -> None:
    stages = [stage(SSDLITE), stage(RETINANET)]
    hashes = {
        Cascade(
            stages[0].settings.model_copy(update={"escalation_budget_s": b}), stages, policy
        ).settings_hash
        for b in (0.0, 0.5)
        for policy in (Policy(), Policy(min_probability=0.9))
    }
    assert len(hashes) == 4
    with pytest.raises(InvalidInput, match="a cascade of 1 models"):
        Cascade(stages[0].settings, stages[:1], Policy())


def test_a_policy_that_was_made_for_another_model_escalates_too() -> None:
    """It refuses every scene, about which nobody would be asked."""
    validity = Validity(model="other", model_hash="0" * 64, settings_hash="1" * 64)
    stages = [stage(SSDLITE), stage(RETINANET)]
    made = Cascade(stages[0].settings, stages, Policy(max_dil=0.0, max_dil_clean=0.0, validity=validity))
    assert made.assess(picture()).model == RETINANET


def test_parameters_make_a_cascade(tmp_path: Path) -> None:
    file = tmp_path / "larger.yaml"

    def write(**values: object) -> PerceptionSettings:
        file.write_text(yaml.safe_dump({"detector": {"ros__parameters": values}}))
        return PerceptionSettings(passes=4, escalate_to=str(file))

    made = load_perception(write(dropout_site="out", passes=5))
    assert isinstance(made, Cascade)
    assert made.settings.escalate_to == str(file)
    lid = made.assess(picture())
    assert lid.passes in (4, 5)
    assert lid.model_hash == made.model_hash
    for values, reason in (
        ({"pases": 3}, "unknown parameter pases"),
        ({"passes": 0}, "passes = 0: expected an integer from 1 to 200"),
        ({"escalate_to": "more.yaml"}, "expected none in a model of a cascade"),
        ({"threads": 7}, "threads = 7: expected 1, as it is now"),
        ({"weights": "/nowhere"}, "/nowhere"),
    ):
        with pytest.raises(InvalidInput, match=reason):
            load_perception(write(**values))
    with pytest.raises(InvalidInput, match=r"no\.yaml"):
        load_perception(write(passes=5).model_copy(update={"escalation_policy": "no.yaml"}))
    with pytest.raises(InvalidInput, match="expected none for a single model"):
        Perception(PerceptionSettings(escalate_to="more.yaml"))
