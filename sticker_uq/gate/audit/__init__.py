# SPDX-License-Identifier: Apache-2.0
"""The tamper-evident audit log of the gate's steps: its entries, files, hash chain and verification.

One JSON object per line, each with the hash of the one before it. :class:`AuditLog` writes without blocking the gate,
:func:`verify` and :func:`entries` read, :class:`Narrator` selects the steps of the gate that become entries.
"""

from sticker_uq.gate.audit.chain import FORMAT, GENESIS, ChainCheck, ChainFinding, Entry, entries, verify
from sticker_uq.gate.audit.log import AuditLog, AuditStatus
from sticker_uq.gate.audit.narrator import Narrator

__all__ = [
    "FORMAT",
    "GENESIS",
    "AuditLog",
    "AuditStatus",
    "ChainCheck",
    "ChainFinding",
    "Entry",
    "Narrator",
    "entries",
    "verify",
]
