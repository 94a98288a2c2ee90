# SPDX-License-Identifier: Apache-2.0
"""docs/gate.md shows the gate as it is."""

from pathlib import Path

import pytest

from sticker_uq.gate import Phase
from test.helpers.gate_document import DEPTH, drawing, inserted, rendered

DOCUMENT = Path(__file__).parents[2] / "docs" / "gate.md"


def test_states_and_transitions_are_those_of_the_code() -> None:
    document = DOCUMENT.read_text(encoding="utf-8")
    assert document == inserted(document, rendered(DEPTH)), (
        "run: python -m test.helpers.gate_document docs/gate.md"
    )


def test_what_leads_to_a_state_from_everywhere_is_drawn_once() -> None:
    found = {(p, Phase.FAULT): {"fault"} for p in Phase if p not in (Phase.FAULT, Phase.UNKNOWN)}
    found[Phase.MONITORING, Phase.PERMITTED] = {"scene: sticker"}
    drawn = drawing(found)
    assert "MONITORING --> PERMITTED: scenes" in drawn
    assert "--> FAULT" not in drawn
    assert "note right of FAULT" in drawn


def test_a_document_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="transitions: begin"):
        inserted("no marks", "text")
