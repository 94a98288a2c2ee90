#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sets up to which distance scenes are familiar to a novelty network: scripts/run scripts/novelty_limit.py FILE LIMIT.

LIMIT is in the unit of the file's reference: 1 is the distance that 1 in 1000 pictures held out from its training exceeds. The
packaged file has 0.57. Policies made with the file before are refused afterwards, as after any change of it.
"""

import sys
from pathlib import Path

from sticker_uq.detection.weights import read_metadata, save_weights
from sticker_uq.perception.novelty.network import read_network
from sticker_uq.scene import InvalidInput


def set_limit(file: Path, limit: float) -> None:
    """Raises InvalidInput for a ``file`` that is no novelty network, ValueError for a ``limit`` that is not above 0."""
    if not 0.0 < limit < float("inf"):
        raise ValueError(f"{limit} as a limit, expected a number above 0")
    network = read_network(file)
    save_weights(network, file, {**read_metadata(file), "limit": limit}, half=True)


if __name__ == "__main__":
    try:
        path, text = sys.argv[1:]
        set_limit(Path(path), float(text))
    except (InvalidInput, ValueError, OSError) as error:
        sys.exit(f"{error}\n{__doc__}")
