# SPDX-License-Identifier: Apache-2.0
"""A few rendered scenes as a source data set."""

from pathlib import Path

import pytest

from lab_helpers.scenes import rendered
from sticker_uq_lab.robustness.frequencies import SourceSet


@pytest.fixture(scope="session")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rendered(tmp_path_factory.mktemp("scenes"), (7001, 7003, 7004, 7006), (320, 240), "png")


@pytest.fixture(scope="session")
def source(scenes: Path) -> SourceSet:
    return SourceSet.load(scenes)
