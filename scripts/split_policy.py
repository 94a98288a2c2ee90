#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Moves the reference of policies of before 0.4 to the file beside each: scripts/run scripts/split_policy.py POLICY.yaml...

The hash of a policy stays what it was. Comments in the file are lost.
"""

import sys
from pathlib import Path

from sticker_uq.calibration.making import write_policy
from sticker_uq.gate import Policy
from sticker_uq.gate.policy.reference import reference_beside
from sticker_uq.scene import InvalidInput

for name in sys.argv[1:] or sys.exit(__doc__):
    path = Path(name)
    try:
        policy = Policy.load(path)
    except InvalidInput as error:
        sys.exit(str(error))
    write_policy(policy, path)
    assert Policy.load(path).hash == policy.hash
    print(
        f"{path}: policy {policy.hash[:12]}, reference in {reference_beside(path) if policy.reference else 'none'}"
    )
