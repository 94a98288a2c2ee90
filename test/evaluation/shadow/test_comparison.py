# SPDX-License-Identifier: Apache-2.0
"""A shadow counts what would differ, whatever order things arrive in, in bounded memory, and goes on after a restart."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sticker_uq.evaluation.shadow import comparison as module
from sticker_uq.evaluation.shadow.comparison import ShadowComparison
from sticker_uq.evaluation.shadow.differences import (
    ANSWERED,
    IMAGES,
    NO_ACTIVE,
    NO_CANDIDATE,
    OTHER_BUNDLE,
    OTHER_PIXELS,
    JudgedObject,
    Judgement,
    asks,
    differences,
    total,
)
from sticker_uq.evaluation.shadow.pairing import Pairing
from sticker_uq.evaluation.shadow.record import FILE, ShadowRecord, read_blocks, sums
from sticker_uq.gate import Answer, OperatorAnswer, OperatorAnswers, Policy, judge
from sticker_uq.io.share import share_folder
from sticker_uq.nodes.common.conversions import decision_to_msg
from sticker_uq.scene import InvalidInput, ObjectClass, Outcome, Reason, SceneAssessment, Status, Verdict
from sticker_uq.testing.scenes import ELSEWHERE, HERE, SECOND, START, THERE, assessment, observed, rarely_seen

POLICY = Policy.load(share_folder() / "config" / "policy.yaml")
CANDIDATE = {
    "bundle": "b" * 64, "model_hash": "c" * 64, "settings_hash": "s" * 64, "panel_hash": "", "policy_hash": POLICY.hash,
}  # fmt: skip
UNSURE = observed(shannon_entropy=1.5)

boxes = st.sampled_from([HERE, THERE, ELSEWHERE, (102.0, 100.0, 182.0, 160.0), (140.0, 100.0, 220.0, 160.0)])
objects = st.builds(
    JudgedObject,
    st.sampled_from(ObjectClass),
    boxes,
    st.sampled_from([Verdict.REMOVE, Verdict.KEEP, Verdict.ASK]),
)
judgements = st.builds(
    Judgement,
    st.sampled_from([Outcome.WORK, Outcome.ASK, Outcome.CLEAN, Outcome.BLOCKED]),
    st.lists(objects, max_size=5).map(tuple),
)


@given(judgements, judgements)
def test_the_counts_are_those_of_both_sides(active: Judgement, candidate: Judgement) -> None:
    counts = differences(active, candidate)
    assert counts[IMAGES] == total(counts, "outcome") == 1
    for kind, of in (
        ("objects", lambda side, one: True),
        ("released", Judgement.releases),
        ("asked", _asked),
    ):
        for name, side in (("active", active), ("candidate", candidate)):
            assert counts[f"{kind} both"] + counts[f"{kind} {name}"] == sum(
                of(side, one) for one in side.objects
            )


@given(judgements, judgements)
def test_exchanged_sides_exchange_the_counts(active: Judgement, candidate: Judgement) -> None:
    there, back = differences(active, candidate), differences(candidate, active)
    assert total(there, "outcome", differing=True) == total(back, "outcome", differing=True)
    assert asks(there)[:2] == asks(back)[1::-1]
    for side, other in (("active", "candidate"), ("candidate", "active")):
        assert there[f"objects {side}"] == back[f"objects {other}"]


@given(judgements)
def test_nothing_differs_from_itself(one: Judgement) -> None:
    counts = differences(one, one)
    found = {key.split()[-1] for key in counts if not key.startswith(("images", "outcome"))}
    assert total(counts, "outcome", differing=True) == 0
    assert counts["objects both"] == len(one.objects)
    assert found <= {"both"} or len({o.box for o in one.objects}) < len(one.objects), "two at one place"


def _asked(_: Judgement, one: JudgedObject) -> bool:
    return one.verdict is Verdict.ASK


def test_a_sticker_in_a_doubtful_scene_is_not_released() -> None:
    sticker = JudgedObject(ObjectClass.STICKER, HERE, Verdict.REMOVE)
    counts = differences(Judgement(Outcome.WORK, (sticker,)), Judgement(Outcome.ASK, (sticker,)))
    assert (counts["released active"], counts["released both"], counts["outcome work>ask"]) == (1, 0, 1)


def test_objects_that_few_passes_detected_are_left_out() -> None:
    scene = assessment(observed(), unstable=[rarely_seen(THERE)])
    decision = judge(scene, POLICY)
    assert len(decision.verdicts) == 2
    assert [one.box for one in Judgement.of(scene, decision).objects] == [HERE]


@given(st.permutations([(s, n) for n in range(6) for s in "abc"]), st.integers(1, 6))
def test_all_that_arrives_is_paired_given_up_or_waits(arrivals: list[tuple[str, int]], limit: int) -> None:
    gone: list[frozenset[str]] = []
    pairing = Pairing("abc", limit, gone.append)
    whole = 0
    for number, (stream, stamp) in enumerate(arrivals, 1):
        found = pairing.add(stream, stamp, stream)
        whole += found is not None
        assert found in (None, {"a": "a", "b": "b", "c": "c"})
        assert len(pairing) <= limit
        assert 3 * whole + sum(map(len, gone)) <= number
    if limit == 6:
        assert (whole, len(pairing), gone) == (6, 0, [])
    pairing.give_up()
    assert len(pairing) == 0
    assert 3 * whole + sum(map(len, gone)) == len(arrivals)


class Bed:
    """A comparison on a folder, and a clock."""

    def __init__(self, folder: Path, limit: int = 200) -> None:
        self.folder = folder
        self.record = ShadowRecord(folder)
        self.shadow = ShadowComparison(POLICY, CANDIDATE, self.record, limit)
        self.now_ns = START

    def show(
        self,
        active: SceneAssessment,
        candidate: SceneAssessment | None,
        workpiece: str = "laptop-1",
        memory: OperatorAnswers | None = None,
        reason: Reason | None = None,
    ) -> None:
        decision = judge(active, POLICY, memory or OperatorAnswers(), workpiece)
        if reason is not None:
            decision = replace(decision, outcome=Outcome.ASK, reasons=(reason,))
        self.shadow.add_scene(active, self.now_ns)
        self.shadow.add_decision(decision_to_msg(decision), self.now_ns)
        if candidate is not None:
            self.shadow.add_candidate(candidate, self.now_ns)

    def close(self) -> None:
        self.shadow.close(self.now_ns)
        self.record.close()


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path / "shadow")


def seen(*things: object, number: int = 0, **changes: object) -> SceneAssessment:
    return assessment(*things, stamp_ns=START + number, **changes)  # type: ignore[arg-type]


def shadowed(*things: object, number: int = 0, **changes: object) -> SceneAssessment:
    return seen(*things, number=number, **({"model_hash": CANDIDATE["model_hash"]} | changes))


def test_it_counts_what_the_candidate_would_release(bed: Bed) -> None:
    bed.show(seen(UNSURE), shadowed(observed()))
    bed.show(seen(observed(), number=1), shadowed(observed(), number=1))
    bed.show(seen(observed(), number=2), shadowed(observed(label=ObjectClass.LOGO), number=2))
    counts = bed.shadow.counts
    assert counts[IMAGES] == 3
    assert (counts["released candidate"], counts["released both"], counts["released active"]) == (1, 1, 1)
    assert counts["label sticker>logo"] == 1
    assert (counts["outcome ask>work"], asks(counts)) == (1, (1, 0, 0))
    assert "3 images compared: outcome differs in 2" in bed.shadow.summary()


def skipped(bed: Bed) -> Counter[str]:
    return Counter({k: n for k, n in bed.shadow.counts.items() if k.startswith(("skipped", "unpaired"))})


def test_what_cannot_be_compared_is_counted_and_nothing_else(bed: Bed) -> None:
    approved = OperatorAnswers().remember([OperatorAnswer(Answer.REMOVE, HERE)])
    bed.show(seen(UNSURE), shadowed(UNSURE), memory=approved)
    bed.show(seen(number=1), shadowed(number=1), memory=OperatorAnswers(scene_checked=True))
    bed.show(seen(observed(), number=2), shadowed(observed(), number=2), reason=Reason("spot_check"))
    bed.show(seen(number=3), shadowed(number=3, image_digest="f" * 32))
    bed.show(seen(number=4), seen(number=4))
    assert skipped(bed) == {ANSWERED: 3, OTHER_PIXELS: 1, OTHER_BUNDLE: 1}
    assert bed.shadow.counts[IMAGES] == 0
    assert bed.shadow.skipped == OTHER_BUNDLE


def test_a_candidate_that_fails_differs(bed: Bed) -> None:
    failed = {"status": Status.FAILED, "image_digest": "", "model_hash": "", "settings_hash": ""}
    bed.show(seen(observed()), shadowed(**failed))
    assert bed.shadow.counts["outcome work>blocked"] == bed.shadow.counts["released active"] == 1


def test_a_slow_or_dead_candidate_costs_no_memory(tmp_path: Path) -> None:
    bed = Bed(tmp_path, limit=3)
    for number in range(20):
        bed.show(seen(number=number), shadowed(number=number) if number < 2 else None)
        assert bed.shadow.waiting <= 3
    bed.shadow.add_candidate(shadowed(number=4), bed.now_ns)  # long after its image was given up
    bed.close()
    assert bed.shadow.counts == Counter({IMAGES: 2, "outcome clean>clean": 2, NO_CANDIDATE: 18, NO_ACTIVE: 1})


def test_every_laptop_and_every_minute_has_a_line(bed: Bed) -> None:
    for number, workpiece in enumerate(["laptop-1", "laptop-1", "laptop-2"]):
        bed.show(seen(UNSURE, number=number), shadowed(observed(), number=number), workpiece)
        bed.now_ns += 10 * SECOND
        bed.shadow.tick(bed.now_ns)
    bed.now_ns += 60 * SECOND
    bed.shadow.tick(bed.now_ns)
    bed.shadow.tick(bed.now_ns + 600 * SECOND)  # nothing happened: no line
    blocks = list(read_blocks(bed.folder))
    assert [(b.workpiece, b.counts[IMAGES]) for b in blocks if b] == [("laptop-1", 2), ("laptop-2", 1)]
    assert blocks[0] is not None
    assert blocks[0].example is not None
    assert (blocks[0].example.active, blocks[0].example.candidate) == ("ASK", "WORK")
    assert blocks[0].active["policy_hash"] == POLICY.hash


def test_a_restart_goes_on_and_a_torn_line_is_left_out(bed: Bed) -> None:
    bed.show(seen(), shadowed())
    bed.close()
    file = bed.folder / FILE
    file.write_bytes(file.read_bytes() + b'{"format":1,"since":"2026')
    again = Bed(bed.folder)
    again.show(seen(number=1), shadowed(number=1))
    assert again.shadow.counts[IMAGES] == 2
    again.show(seen(number=2, model_hash="e" * 64), shadowed(number=2))
    assert again.shadow.counts[IMAGES] == 1, "of another active model"
    again.close()
    assert [block is None for block in read_blocks(bed.folder)] == [False, True, False, False]
    assert sorted(counts[IMAGES] for counts in sums(bed.folder).values()) == [1, 2]


def test_a_second_writer_is_refused(bed: Bed) -> None:
    with pytest.raises(InvalidInput, match="is being written by another process"):
        ShadowRecord(bed.folder)
    bed.close()
    ShadowRecord(bed.folder).close()


def test_a_full_disk_loses_nothing_that_memory_holds(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "MOST_UNWRITTEN", 2)
    with monkeypatch.context() as full:
        full.setattr("sticker_uq.evaluation.shadow.record.os.write", refuse)
        for number in range(4):
            bed.show(seen(number=number), shadowed(number=number), f"laptop-{number}")
            bed.shadow.tick(bed.now_ns)
        assert bed.shadow.problem == "No space left on device"
    assert bed.shadow.lost == 1
    bed.shadow.tick(bed.now_ns)
    assert bed.shadow.problem == ""
    bed.close()
    assert [b.workpiece for b in read_blocks(bed.folder) if b] == ["laptop-1", "laptop-2", "laptop-3"]
    assert all(json.loads(line) for line in (bed.folder / FILE).read_text().splitlines())


def test_the_order_of_arrival_does_not_matter(tmp_path: Path) -> None:
    active, candidate = seen(UNSURE), shadowed(observed())
    message = decision_to_msg(judge(active, POLICY, workpiece_id="laptop-1"))
    found = []
    for number, order in enumerate([(0, 1, 2), (2, 1, 0), (1, 2, 0)]):
        bed = Bed(tmp_path / str(number))
        arrive: list[Callable[[], None]] = [
            lambda b=bed: b.shadow.add_scene(active, START),  # type: ignore[misc]
            lambda b=bed: b.shadow.add_decision(message, START),  # type: ignore[misc]
            lambda b=bed: b.shadow.add_candidate(candidate, START),  # type: ignore[misc]
        ]
        for one in order:
            arrive[one]()
        found.append(bed.shadow.counts)
        bed.close()
    assert found[0] == found[1] == found[2]
    assert found[0][IMAGES] == 1
