# SPDX-License-Identifier: Apache-2.0
"""A specification of a few circumstances."""

from typing import Any

from sticker_uq_lab.robustness.spec import Specification


def specification_of(*circumstances: dict[str, Any], **more: Any) -> Specification:
    common = {"views": {"developer": "-"}, "exposure": 1, "likelihood": 1, "severity": 1}
    return Specification.model_validate(
        {"system": {"name": "cell"}, "circumstances": [common | c for c in circumstances], **more}
    )
