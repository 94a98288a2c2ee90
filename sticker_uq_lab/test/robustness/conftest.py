# SPDX-License-Identifier: Apache-2.0
"""A few rendered scenes as a source data set, and a specification of a few circumstances."""

from pathlib import Path
from typing import Any

import pytest

from lab_helpers.scenes import rendered
from sticker_uq_lab.robustness.frequencies import SourceSet
from sticker_uq_lab.robustness.spec import Specification


@pytest.fixture(scope="session")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rendered(tmp_path_factory.mktemp("scenes"), (7001, 7003, 7004, 7006), (320, 240), "png")


@pytest.fixture(scope="session")
def source(scenes: Path) -> SourceSet:
    return SourceSet.load(scenes)


def specification_of(*circumstances: dict[str, Any], **more: Any) -> Specification:
    common = {"views": {"developer": "-"}, "exposure": 1, "likelihood": 1, "severity": 1}
    return Specification.model_validate(
        {"system": {"name": "cell"}, "circumstances": [common | c for c in circumstances], **more}
    )
