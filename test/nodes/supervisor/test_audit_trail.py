# SPDX-License-Identifier: Apache-2.0
"""The folder of the audit log."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from sticker_uq.nodes.supervisor.audit_trail import AuditTrail
from sticker_uq.scene import InvalidInput


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
