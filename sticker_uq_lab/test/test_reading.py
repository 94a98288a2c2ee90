# SPDX-License-Identifier: Apache-2.0
"""The lab reads YAML files that others made as the core does."""

import pytest

from sticker_uq_lab.datasets.prompts import PromptTemplate
from sticker_uq_lab.robustness.spec import Specification
from test.io.test_reading import test_every_yaml_file_is_read_with_these_bounds as check_bounds


@pytest.mark.parametrize("load", [Specification.load, PromptTemplate.load])
def test_every_yaml_file_of_the_lab_is_read_with_these_bounds(tmp_path, load):
    check_bounds(tmp_path, load)
