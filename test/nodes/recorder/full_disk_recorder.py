# SPDX-License-Identifier: Apache-2.0
"""The recorder on a disk that takes one message and is full then; a process for test_recorder.py."""

import errno
import os

from sticker_uq.io.bag_writer import BagWriter
from sticker_uq.nodes.recorder import node as recorder


def fill_disk_after(count: int) -> None:
    """Let ``BagWriter.write`` raise ENOSPC from message ``count`` + 1 on, those of ``/diagnostics`` apart."""
    write = BagWriter.write
    left = iter(range(count))

    def limited(self: BagWriter, topic: str, received_ns: int, data: bytes) -> None:
        if topic != "/diagnostics" and next(left, None) is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(self, topic, received_ns, data)

    BagWriter.write = limited  # type: ignore[method-assign]


if __name__ == "__main__":
    fill_disk_after(1)
    recorder.main()
