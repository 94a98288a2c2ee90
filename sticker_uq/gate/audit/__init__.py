"""The audit log: what the gate did and why, in tamper-evident files.

One JSON object per line, each with the hash of the one before it. :class:`AuditLog` writes beside the gate and never makes it
wait, :func:`verify` and :func:`entries` read, :class:`Narrator` decides which steps of the gate become entries.
"""

from sticker_uq.gate.audit.chain import FORMAT, GENESIS, Entry, Finding, Verification, entries, verify
from sticker_uq.gate.audit.log import AuditLog, AuditStatus
from sticker_uq.gate.audit.narrator import Narrator

__all__ = [
    "FORMAT",
    "GENESIS",
    "AuditLog",
    "AuditStatus",
    "Entry",
    "Finding",
    "Narrator",
    "Verification",
    "entries",
    "verify",
]
