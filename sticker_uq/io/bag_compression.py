# SPDX-License-Identifier: Apache-2.0
"""Bounds for what rosbags unpacks: a kilobyte of a recording can unpack to gigabytes.

rosbags unpacks chunks, messages and files of any size. Its functions for that are replaced here by ones that stop at a limit.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import gettempdir
from typing import Any

from lz4.frame import LZ4FrameDecompressor
from rosbags.rosbag2 import ReaderError, reader, storage_mcap

from sticker_uq.io.reading import MIB

MOST_UNPACKED = 1024 * MIB
"""Bytes of an unpacked chunk or message. A chunk that rosbag2 writes has less than 1 MiB or one message."""
LEFT_ON_DISK = 1024 * MIB
"""Bytes that an unpacked file leaves free on the disk of temporary files."""
_zstd: Any = reader.zstd


def bound_decompression() -> None:
    """Bound what reading a recording unpacks: rosbags raises ReaderError beyond these limits. May be called again."""
    storage_mcap.DECOMPRESSORS.update(lz4=_unpack_lz4, zstd=_unpack_zstd)
    vars(reader).update(zstd=_BoundedZstd)


def _unpack_zstd(data: bytes, size: int) -> bytes:
    _check(size)
    return bytes(_zstd.ZstdDecompressor().decompress(data, size + 1))


def _unpack_lz4(data: bytes, size: int) -> bytes:
    _check(size)
    return bytes(LZ4FrameDecompressor().decompress(data, size + 1))


def _check(size: int) -> None:
    if size > MOST_UNPACKED:
        raise ReaderError(f"{size} bytes when unpacked, expected at most {MOST_UNPACKED}")


class _BoundedZstd:
    """What the reader of folders uses of the module ``zstd``."""

    @staticmethod
    def decompress(data: bytes) -> bytes:
        """One compressed message of a recording."""
        unpacked = _unpack_zstd(data, MOST_UNPACKED)
        _check(len(unpacked))
        return unpacked

    @staticmethod
    @contextmanager
    def open(file: Any, mode: str) -> Iterator[_Unpacking]:
        """One compressed file of a recording, which the reader copies to the disk of temporary files."""
        with _zstd.open(file, mode) as stream:
            yield _Unpacking(stream)


class _Unpacking:
    """A stream that ends with an error before the disk is full."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def read(self, size: int) -> bytes:
        """The next ``size`` bytes of a recording's file that is being unpacked."""
        if shutil.disk_usage(gettempdir()).free < LEFT_ON_DISK + size:
            raise ReaderError(f"unpacked, the recording does not fit on the disk of {gettempdir()}")
        return bytes(self._stream.read(size))
