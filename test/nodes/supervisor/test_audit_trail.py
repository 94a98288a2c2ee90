# SPDX-License-Identifier: Apache-2.0
"""What a supervisor takes over from the log of its last run, also where another program wrote into it."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from sticker_uq.gate.audit import AuditLog
from sticker_uq.nodes.supervisor.outputs import AuditTrail, unfinished
from sticker_uq.scene import InvalidInput, Reason

DRIFT = Reason.of("drift", "sharpness", count=3, rate=0.1)


def stood(folder: Path, reasons: Any) -> tuple[Reason, ...]:
    log = AuditLog(folder, 10**6)
    log.add("gate", {"to": "FAULT", "reasons": reasons})
    log.close()
    return unfinished(folder)


def test_a_fault_outlives_the_process_with_its_reasons(tmp_path):
    assert [reason.code for reason in stood(tmp_path, [DRIFT.to_dict()])] == ["last_run_faulted", "drift"]


@pytest.mark.parametrize(
    "reasons",
    [
        None,
        5,
        "drift",
        [[[1]]],
        [{"code": [1]}],
        [{"code": "drift", "values": 5}],
        [{"code": "drift", "box": [1]}],
        {"a": 1},
    ],
)
def test_a_fault_with_reasons_that_are_none_is_a_fault(tmp_path, reasons):
    assert stood(tmp_path, reasons) == (Reason("last_run_faulted"),)


@pytest.mark.parametrize(
    ("error", "said"), [(errno.EROFS, "Read-only file system"), (errno.EACCES, "Permission denied")]
)
def test_a_folder_that_cannot_be_written_is_refused_with_its_path(tmp_path, monkeypatch, error, said):
    def refused(*_: Any, **__: Any) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(Path, "mkdir", refused)
    node: Any = None  # asked for its default folder only
    with pytest.raises(InvalidInput, match=f"audit log {tmp_path / 'audit'} cannot be opened: {said}"):
        AuditTrail(node, str(tmp_path / "audit"), 1.0)
