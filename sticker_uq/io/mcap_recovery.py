# SPDX-License-Identifier: Apache-2.0
"""Reading truncated mcap files, as a killed recorder leaves them.

An mcap file is a sequence of records (one byte opcode, eight bytes length) with an index and a footer at its end
(https://mcap.dev/spec). Readers refuse a file without a footer, although its complete records are valid.
"""

from __future__ import annotations

import io
import struct
from functools import cached_property
from pathlib import Path
from typing import Any

_MCAP_MAGIC = b"\x89MCAP0\r\n"
_MCAP_END = b"\x0f" + struct.pack("<QI", 4, 0) + b"\x02" + struct.pack("<QQQI", 20, 0, 0, 0) + _MCAP_MAGIC


class TruncatedMcap(type(Path())):  # type: ignore[misc]
    """Path of a truncated mcap file; opens as its complete records followed by an empty footer."""

    @cached_property
    def end(self) -> int:
        """Bytes of complete messages in a recording's truncated mcap file, 0 when there is none."""
        size = self.stat().st_size
        with io.open(self, "rb") as file:  # noqa: UP020  # self.open appends the footer
            if file.read(8) != _MCAP_MAGIC:
                return 0
            end = 8
            while len(head := file.read(9)) == 9:
                code, length = struct.unpack("<BQ", head)
                known = (
                    0x01 <= code <= 0x0F or code >= 0x80
                )  # reserved opcodes: garbage or a hole in the file
                if not known or end + 9 + length > size:
                    break
                end = file.seek(end + 9 + length)
        return end if end > 8 else 0

    def open(self, *_: Any, **__: Any) -> Any:
        """The recording's recovered mcap file, open for reading bytes."""
        return io.BufferedReader(_WithTail(str(self), self.end, _MCAP_END))


class _WithTail(io.RawIOBase):
    """The first `end` bytes of a file, followed by `tail`."""

    def __init__(self, path: str, end: int, tail: bytes) -> None:
        self._file = io.FileIO(path)
        self._end = end
        self._tail = tail
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = (0, self._at, self._end + len(self._tail))[whence]
        self._at = origin + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        if self._at < self._end:
            self._file.seek(self._at)
            data = self._file.read(min(len(buffer), self._end - self._at)) or b""
        else:
            start = self._at - self._end
            data = self._tail[start : start + len(buffer)]
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()
