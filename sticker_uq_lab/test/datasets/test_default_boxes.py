# SPDX-License-Identifier: Apache-2.0
"""Default boxes are made without the compiler of torch."""

import subprocess
import sys

MADE = """
import sys
from sticker_uq.imports import import_torchvision_without_compiler
import_torchvision_without_compiler()
from sticker_uq_lab.datasets import default_boxes
model = default_boxes._shapes("ssdlite320_mobilenet_v3_large")
default_boxes._anchors(model, model.anchor_generator, (320, 320))
assert not {"sympy", "torch._dynamo"} & set(sys.modules), "default boxes imported the compiler"
"""


def test_default_boxes_are_made_without_the_compiler():
    done = subprocess.run([sys.executable, "-c", MADE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
