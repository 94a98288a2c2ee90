# SPDX-License-Identifier: Apache-2.0
"""What the next start reads of what the last run wrote, also from a log that was torn, cut off, changed or removed."""

import errno
import json
import os
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sticker_uq.gate import Answer, GateState, OperatorAnswer, Phase, step
from sticker_uq.gate import events as ev
from sticker_uq.gate.audit import AuditLog, chain
from sticker_uq.gate.audit.state_store import StateStore
from sticker_uq.gate.durable import DurableState
from sticker_uq.gate.state import Refused
from sticker_uq.scene import InvalidInput, Reason
from sticker_uq.testing.scenes import HERE, START
from test.helpers.gate import SETTINGS, codes, removing

FULL = replace(
    DurableState.of(removing().state),
    held=True,
    fault=(Reason.of("drift", "sharpness", count=3, rate=0.1),),
    stop_demanded=True,
    assumption=Reason.of("drift", "noise", count=9, rate=0.01),
    asked=(),
    refused=Refused(" ", 5, Reason("workpiece_unnamed")),
    kept_places=(OperatorAnswer(Answer.KEEP, HERE),),
    attempts=((HERE, 1),),
    removed=(HERE,),
    consoles=("/console",),
)


def plain(state: DurableState | None) -> dict[str, Any]:
    assert state is not None
    return json.loads(json.dumps(chain.finite(state.to_plain())))


def written(folder: Path, *states: DurableState, after: tuple[str, ...] = ()) -> Path:
    log = AuditLog(folder, 2_000)
    store = StateStore(log, folder)
    store.read()
    for state in states:
        assert store.keep(state) is None
    for kind in after:
        log.add(kind, {})
    log.close()
    return sorted(folder.glob("audit-*.jsonl"))[-1]


def read(folder: Path) -> DurableState | None:
    log = AuditLog(folder, 2_000)
    try:
        return StateStore(log, folder).read()
    finally:
        log.close()


def test_the_first_start_finds_nothing_and_later_ones_the_newest_state(tmp_path):
    assert read(tmp_path / "new") is None
    written(tmp_path / "log", FULL, replace(FULL, held=False), after=("gate",) * 40)
    assert plain(read(tmp_path / "log")) == plain(replace(FULL, held=False))
    assert chain.verify(tmp_path / "log").whole


def _cut(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]))


def _tear(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-30])


def _remove(path: Path) -> None:
    for file in path.parent.glob("audit-*.jsonl"):
        file.unlink()


def _name_nothing(path: Path) -> None:
    (path.parent / "newest_state").write_bytes(b"\xff\x00")


def _write_anew(path: Path) -> None:
    _remove(path)
    (path.parent / "newest_state").rename(path.parent / "kept")
    written(path.parent, DurableState(), replace(FULL, held=False), DurableState(), DurableState(held=True))
    (path.parent / "kept").rename(path.parent / "newest_state")


def _shorten_the_name(path: Path) -> None:
    name = path.parent / "newest_state"
    name.write_bytes(name.read_bytes()[:19])


SKIPPED = DurableState(skipped=True)


@pytest.mark.parametrize(
    ("damage", "known"),
    [
        (_cut, FULL),
        (_tear, FULL),
        (_remove, DurableState()),
        (_name_nothing, SKIPPED),
        (_shorten_the_name, SKIPPED),
        (_write_anew, DurableState()),
    ],
)
def test_what_cannot_be_relied_on_is_what_is_known_held_and_says_so(
    tmp_path, damage: Callable[[Path], None], known
):
    damage(written(tmp_path, DurableState(), FULL, SKIPPED))
    found = read(tmp_path)
    assert found is not None
    assert found.held
    assert codes(found.held_for) == ["last_run_unreadable"]
    assert found.stop_demanded
    assert codes(found.fault) == ["last_run_unreadable", *codes(known.fault)]
    of_before = {"held": known.held, "fault": known.fault, "stop_demanded": known.stop_demanded}
    assert plain(replace(found, held_for=(), **of_before)) == plain(known)
    state, _ = step(GateState(), ev.Restarted(found), START, SETTINGS)
    assert state.held
    assert "last_run_unreadable" in codes(state.details)
    assert (state.permit is not None) == (known.goal is not None)
    # a reset ends the fault, a release the hold, and neither both
    for first, second in ((ev.Reset("Ada"), ev.Release("Ada")), (ev.Release("Ada"), ev.Reset("Ada"))):
        halfway, _ = step(state, first, START, SETTINGS)
        assert bool(halfway.fault) != halfway.held
        assert "last_run_unreadable" in codes(halfway.details)
        after, _ = step(halfway, second, START, SETTINGS)
        assert not after.held
        assert not after.fault
        assert not after.stop_demanded


@pytest.mark.parametrize("torn", [False, True])
def test_a_log_that_is_not_continued_is_not_relied_on(tmp_path, monkeypatch, torn):
    """What is torn cannot be sealed while the disk is full: it may have been the newest state."""
    path = written(tmp_path, DurableState(), DurableState(held=True))
    if torn:
        _tear(path)
    else:
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join([lines[0].replace(b":false", b":true", 1), *lines[1:]]))

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        log = AuditLog(tmp_path, 2_000)
        store = StateStore(log, tmp_path)
        found = store.read()
        assert found is not None
        assert (found.held, found.stop_demanded, codes(found.fault)) == (True, True, ["last_run_unreadable"])
        assert store.keep(found) is not None
    log.close()


def test_a_folder_that_was_removed_or_put_back_as_it_was_is_noticed_by_the_second_name(tmp_path):
    folder, second = tmp_path / "log", tmp_path / "second"

    def run(*states: DurableState) -> DurableState | None:
        log = AuditLog(folder, 2_000)
        store = StateStore(log, folder, second)
        found = store.read()
        for state in states:
            assert store.keep(state) is None
        log.close()
        return found

    assert run(DurableState()) is None
    shutil.copytree(folder, tmp_path / "copy")
    assert run(DurableState(held=True), DurableState()) == DurableState()
    for put_back in (True, False):
        shutil.rmtree(folder)
        if put_back:
            shutil.copytree(tmp_path / "copy", folder)
        for _ in range(2):  # a start that is killed before it wrote anything forgets nothing
            found = run()
            assert found is not None
            assert (found.held, codes(found.fault)) == (True, ["last_run_unreadable"])
        run(DurableState(skipped=True))
        assert run() == DurableState(skipped=True)
    second.write_bytes(b"nothing")
    assert codes(run().fault) == ["last_run_unreadable"]
    second.unlink()
    second.mkdir()  # nothing can be named there
    assert run(DurableState()) == DurableState(skipped=True)


def test_a_start_that_was_killed_before_it_wrote_its_state_leaves_the_torn_entry_known(tmp_path):
    _tear(written(tmp_path, DurableState(), DurableState(held=True)))
    log = AuditLog(tmp_path, 2_000)
    log.add("event", {"what": "restarted"})  # reaches the disk before the state of that start does
    log.close()
    for _ in range(2):
        found = read(tmp_path)
        assert found is not None
        assert found.held


def test_a_state_that_does_not_fit_into_the_queue_is_not_acknowledged(tmp_path, monkeypatch):
    log = AuditLog(tmp_path, 10**6, capacity=1)
    store = StateStore(log, tmp_path)
    assert store.keep(DurableState()) is None
    full = threading.Event()
    really = os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (full.wait(30.0), really(file)))
    log.add("gate", {})
    settle = log.settle

    def settled(timeout_s: float) -> bool:  # the disk goes on just after the state was lost
        full.set()
        return settle(30.0)

    monkeypatch.setattr(log, "settle", settled)
    assert store.keep(DurableState(held=True)) is not None
    full.set()
    assert log.flush(30.0)
    assert store.keep(DurableState(held=True)) is None
    log.close()
    found = read(tmp_path)
    assert found is not None
    assert found.held


def test_a_state_that_cannot_be_named_is_not_acknowledged_and_not_written_again_and_again(tmp_path):
    log = AuditLog(tmp_path, 10**6)
    store = StateStore(log, tmp_path)
    (tmp_path / "newest_state").mkdir()
    for _ in range(5):
        problem = store.keep(DurableState(held=True))
        assert problem is not None
        assert problem == store.problem
    assert log.status.number == 0
    (tmp_path / "newest_state").rmdir()
    assert store.keep(DurableState(held=True)) is None
    assert store.problem is None
    log.close()


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("gate", {"to": "FAULT", "reasons": []}),  # a log of 0.2
        ("state", {}),
        ("state", {"version": 2}),
        ("state", {"version": 1, "unheard_of": 1}),
        ("state", {"version": 1, "held": None}),
        ("state", {"version": 1, "fault": [[[1]]]}),
        ("state", {"too_long": 5}),
    ],
)
def test_a_log_of_another_version_or_program_is_held(tmp_path, kind, data):
    log = AuditLog(tmp_path, 10**6)
    log.add(kind, data)
    log.close()
    if data == {}:  # nothing was decided
        assert read(tmp_path) == DurableState()
        return
    found = read(tmp_path)
    assert found is not None
    assert found.held


def test_a_disk_that_refuses_says_so_at_once_and_gets_the_state_when_it_works_again(tmp_path, monkeypatch):
    log = AuditLog(tmp_path, 10**6)
    store = StateStore(log, tmp_path)
    assert store.keep(DurableState()) is None

    def refused(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", refused)
        for held in (True, True, False):
            problem = store.keep(DurableState(held=held, skipped=True))
            assert problem is not None
            assert problem.code == "audit_write_failed"
        # as before the disk was full, but what was to be written since may be written yet
        assert store.keep(DurableState()) is not None
    assert log.flush(30.0)
    assert store.keep(DurableState()) is None
    log.close()
    assert read(tmp_path) == DurableState()


PLAIN = plain(FULL)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(sorted(PLAIN)), ANYTHING)
def test_a_state_with_any_field_exchanged_is_refused_or_starts_closed(field, value):
    try:
        kept = DurableState.from_plain({**PLAIN, field: value})
    except InvalidInput:
        return
    state, _ = step(GateState(), ev.Restarted(kept), START, SETTINGS)
    assert not state.open
    assert state.phase in (Phase.BLOCKED, Phase.FAULT)


def test_every_field_comes_back():
    assert plain(DurableState.from_plain(PLAIN)) == PLAIN
    assert [name for name, value in PLAIN.items() if not value and name not in ("asked", "held_for")] == [
        "policy_hash", "requests", "skipped", "done", "said_clean",
    ]  # fmt: skip


@pytest.mark.parametrize(("policy", "stands"), [("p", True), ("another", False)])
def test_a_broken_assumption_stands_until_a_reset_or_another_policy(policy, stands):
    broken = DurableState(assumption=Reason.of("drift", "noise", count=9, rate=0.01), policy_hash="p")
    state, _ = step(GateState(), ev.Restarted(broken, policy), START, SETTINGS)
    assert (state.assumption is not None) == stands
