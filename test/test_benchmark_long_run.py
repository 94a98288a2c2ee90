# SPDX-License-Identifier: Apache-2.0
"""The benchmark of a long run, on laptops made by hand instead of rendered ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import long_run
from benchmarks.long_run import RULES, AdaptiveLimit, Course, Laptop, Sizes
from benchmarks.long_run_laptop import LaptopInCell, play
from benchmarks.rendered import Recipe
from sticker_uq.calibration.fitting import certify, fit_policy
from sticker_uq.calibration.records import Record
from sticker_uq.gate import AssumptionSettings, GateController, GateSettings, Policy
from sticker_uq.scene import ObjectClass
from sticker_uq.testing.scenes import MS, START, assessment, observed

POLICY = Policy(max_dil=1.0, max_dil_clean=1.0)


def made(seed: int, wrong: float = 0.01, dil: float = 0.0) -> Record:
    """A laptop with a logo and up to three things called stickers, of which a share of ``wrong`` lie on bare lid.

    What is wrong has more entropy as a rule.
    """
    rng = np.random.default_rng(seed)
    objects = [observed((0.0, 200.0, 50.0, 240.0), ObjectClass.LOGO)]
    boxes, labels = [objects[0].box], [ObjectClass.LOGO]
    for place in range(int(rng.integers(0, 4))):
        bare = rng.random() < wrong
        entropy = float(rng.uniform(0.2, 0.7) if bare else rng.beta(1, 4) * 0.7)
        p = float(rng.uniform(0.9, 0.99))
        objects.append(
            observed(
                (60.0 * place, 0.0, 60.0 * place + 40.0, 40.0),
                probabilities=((1 - p) / 2, (1 - p) / 2, p),
                shannon_entropy=entropy,
            )
        )
        if not bare:
            boxes.append(objects[-1].box)
            labels.append(ObjectClass.STICKER)
    seen = assessment(*objects, dil=float(rng.uniform(0.1, 0.3)) + dil)
    return Record(str(seed), np.array(boxes), np.array(labels, np.int64), seen)


def made_records(wanted: Sequence[Recipe], *_: Any) -> list[Record]:
    """Records of ``wanted``; residue is wrong more often than it looks, glare changes a signal."""
    worse = {"": 0.01, "sticker_residue": 0.4, "glare": 0.05}
    return [
        made(one.seed, worse.get(one.circumstance, 0.01), 0.4 * (one.circumstance == "glare"))
        for one in wanted
    ]


def record(*objects: tuple[Sequence[float], ObjectClass], seen: Any) -> Record:
    boxes = np.array([box for box, _ in objects], np.float32).reshape(-1, 4)
    return Record("made", boxes, np.array([label for _, label in objects], np.int64), seen)


STICKER_AT, OTHER = (100.0, 100.0, 180.0, 160.0), (300.0, 100.0, 400.0, 180.0)


@pytest.fixture(scope="module")
def proved() -> Policy:
    """A policy with a guarantee and a reference."""
    records = [made(seed) for seed in range(500)]
    draft = fit_policy(records[:200], POLICY, level=0.02)
    return certify(draft, records[:200], records[200:], replace(long_run.LEVELS, beta=0.2))


def test_events_in_windows_and_runs() -> None:
    events = np.array([0, 1, 1, 0, 0, 1, 0, 1])
    assert [long_run.worst_window(events, width) for width in (1, 2, 3, 5, 8, 99)] == [1, 2, 2, 3, 4, 4]
    flags = np.array([True, False, True, True, True, False, True, True])
    assert long_run.longest_run(flags) == 3
    assert long_run.longest_run(~flags) == 1
    assert long_run.longest_run(np.zeros(4, bool)) == 0
    assert long_run.longest_run(np.ones(4, bool)) == 4


def test_a_summary_counts_before_and_after_the_start() -> None:
    first = Course(
        np.array([1, 0, 0, 1, 1, 0]),
        np.array([0, 2, 0, 1, 1, 3]),
        np.array([4, 4, 4, 0, 0, 0]),
        np.array([0.01, 0.01, 0.03, 0.03, 0.03, 0.0]),
        closed=5,
    )
    second = replace(first, wrongful=np.zeros(6, int), risk=np.full(6, 0.02), closed=None)
    found = long_run.summarised("rule", "glare", "slow", [first, second], start=2, alpha=0.02)
    assert found.wrongful == [(1, 2), (0, 0)]
    assert found.questions == [(2, 5), (2, 5)]
    assert found.removed == [(8, 4), (8, 4)]
    assert found.worst_window == [3, 0]
    assert found.above == [3, 0], "a rate of alpha itself is kept"
    assert found.closed == [5, None]
    assert found.wrongful_course == [0.25]


@given(
    st.lists(st.booleans(), min_size=1, max_size=400),
    st.floats(0.01, 0.3),
    st.sampled_from([0.05, 0.2, 1.0]),
    st.floats(0.0, 1.0),
)
def test_the_mean_loss_of_an_adaptive_limit_is_bounded_whatever_comes(
    wrong: list[bool], alpha: float, step: float, proved: float
) -> None:
    risks = np.linspace(0.001, 0.9, 50)
    limit = AdaptiveLimit(risks, proved, alpha, step)
    losses = 0
    for one in wrong:
        assert 0.0 <= limit.limit <= proved
        loss = one and limit.limit > 0.0  # nothing removed, nothing lost
        losses += loss
        limit.observe(loss)
    assert losses / len(wrong) <= alpha + (1 + 1 / step) / len(wrong) + 1e-9


def test_an_adaptive_limit_returns_to_the_proved_one() -> None:
    limit = AdaptiveLimit(np.linspace(0.0, 1.0, 101), 0.8, alpha=0.02, step=0.1)
    assert limit.limit == 0.8
    limit.observe(True)
    assert limit.limit == pytest.approx(0.7, abs=0.011)
    for _ in range(60):
        limit.observe(False)
    assert limit.limit == 0.8


def test_a_laptop_is_played_to_its_end(proved: Policy) -> None:
    seen = assessment(observed(STICKER_AT), observed(OTHER))
    laptop = record((STICKER_AT, ObjectClass.STICKER), (OTHER, ObjectClass.LOGO), seen=seen)
    alone, checked = play(laptop, proved, spot_check=False), play(laptop, proved, spot_check=True)
    assert (alone.wrongful, alone.removed) == (True, 1)
    assert checked.would_be_wrongful
    assert not checked.wrongful, "a person is asked before the first removal"
    assert len(checked.questions) > len(alone.questions)


def test_a_sticker_without_a_box_is_drawn_in_a_spot_check(proved: Policy) -> None:
    laptop = record((STICKER_AT, ObjectClass.STICKER), seen=assessment())
    checked = play(laptop, proved, spot_check=True)
    assert any(answer.removes for answer in checked.questions[0].answer.answers)
    assert not checked.wrongful


def test_a_course_holds_for_every_limit_in_its_range(proved: Policy) -> None:
    assert proved.risk is not None
    ranges = 0
    for seed in range(8):
        laptop = Laptop(made(seed, wrong=0.3))
        courses = {limit: laptop.played(proved, limit, False) for limit in np.linspace(0.0, 0.6, 7).tolist()}
        for limit, course in courses.items():
            fresh = Laptop(laptop.record).played(proved, limit, False)
            assert (fresh.wrongful, fresh.removed, len(fresh.questions)) == (
                course.wrongful,
                course.removed,
                len(course.questions),
            )
        ranges += len({course.risks for course in courses.values()}) > 1
    assert ranges > 1, "some laptops must depend on the limit"


def test_streams_grow_from_calibrated_to_severe() -> None:
    sizes = Sizes(laptops=400, start=100, ramp=200)
    none, sudden, slow = (
        long_run.stream_of(shape, [5, 5, 5, 5], sizes, 1) for shape in ("none", "sudden", "slow")
    )
    assert set(none.states.tolist()) == {0}
    assert set(sudden.states[:100].tolist()) == {0}
    assert set(sudden.states[100:].tolist()) == {2}
    assert set(slow.states[:100].tolist()) == {0}
    assert set(slow.states[300:].tolist()) == {3}
    assert np.all(np.abs(slow.states - slow.severity) < 1)
    assert len({slow.digest(n) for n in range(400)}) == 400


@pytest.mark.parametrize("signals", [True, False])
def test_the_gate_itself_closes_after_as_many_laptops(proved: Policy, signals: bool) -> None:
    policy = proved if signals else proved.model_copy(update={"reference": None})
    kind = "glare" if signals else "sticker_residue"
    states = [
        long_run.State(made_records([Recipe(seed, circumstance) for seed in range(60)]), proved)
        for circumstance in ("", kind, kind, kind)
    ]
    sizes = Sizes(laptops=300, start=20, ramp=40)
    stream = long_run.stream_of("sudden", [60] * 4, sizes, 3)
    rule = long_run.Rule("", signals=signals, spot_checks=0.5)
    course = long_run.run(stream, states, policy, np.linspace(0, 1, 10), rule)
    gate = GateController(
        policy,
        GateSettings(consecutive_scenes=1, frozen_images=0),
        AssumptionSettings(spot_check_rate=rule.spot_checks),
    )
    now, questions, closed = START, [], None
    for n, (state, number) in enumerate(zip(stream.states, stream.numbers, strict=True)):
        laptop = LaptopInCell(states[state].laptops[number].record, gate, now, stream.digest(n))
        questions.append(len(laptop.play().questions))
        now = laptop.now_ns + 100 * MS
        if gate.state.assumption:
            closed = n
            break
    assert closed is not None
    assert course.closed == closed
    assert course.questions[:closed].tolist() == questions[:closed]


def test_a_tiny_setting_is_measured_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_run, "records", made_records)
    monkeypatch.setattr(long_run, "KINDS", ("sticker_residue", "unknown_make"))
    sizes = Sizes(fit=100, pool=100, proof=300, shifted=30, laptops=300, start=100, ramp=100, repetitions=2)
    monkeypatch.setattr(long_run, "LEVELS", replace(long_run.LEVELS, alpha=0.03, beta=0.2))
    file = tmp_path / "long_run.json"
    file.write_text(json.dumps(long_run.measured(sizes, tmp_path / "cache.sqlite", jobs=1)))
    found = long_run.read(file)
    assert len(found["runs"]) == len(RULES) * (1 + 2 * 2)
    runs = {(one["kind"], one["shape"], one["rule"]): one for one in found["runs"]}
    alone = runs["sticker_residue", "sudden", "policy alone"]
    adaptive = runs["sticker_residue", "sudden", "adaptive limit, step 0.2"]
    assert alone["closed"] == adaptive["closed"] == [None, None]
    assert sum(v[1] for v in adaptive["wrongful"]) < sum(v[1] for v in alone["wrongful"])
    assert sum(v[1] for v in adaptive["questions"]) > sum(v[1] for v in alone["questions"])
    for name, kinds in (("none", 1), ("sudden", 2), ("slow", 2)):
        lines = long_run.table(found, name).splitlines()
        assert len(lines) == 2 + kinds * len(RULES)
        assert len({line.count("|") for line in lines}) == 1
    ElementTree.fromstring(long_run.chart(found))
