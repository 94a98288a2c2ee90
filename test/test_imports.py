# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys

import pytest

COMPILER_IS_LEFT_OUT = """
import sys
from sticker_uq.imports import is_compile_supported
import torch, torchvision
assert not [name for name in sys.modules if name.startswith("torch._dynamo")], "torchvision imported the compiler"
boxes = torch.tensor([[0, 0, 0, 2, 2.0]])
assert torchvision.ops.roi_align(torch.ones(1, 1, 4, 4), boxes, 1).item() == 1
asked = sys.modules["torchvision.ops.roi_align"].is_compile_supported
assert asked is is_compile_supported, "torchvision no longer asks torch._dynamo: sticker_uq/imports.py can go"
import torch._dynamo.utils
assert asked("cpu") == torch._dynamo.utils.is_compile_supported("cpu")
"""
COMPILER_WAS_THERE = """
import torch._dynamo.utils
import sticker_uq, torchvision, sys
asked = sys.modules["torchvision.ops.roi_align"].is_compile_supported
assert asked is torch._dynamo.utils.is_compile_supported
"""


@pytest.mark.parametrize("program", [COMPILER_IS_LEFT_OUT, COMPILER_WAS_THERE])
def test_torchvision_is_imported_without_the_compiler_of_torch(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
