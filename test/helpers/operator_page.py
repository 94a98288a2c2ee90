# SPDX-License-Identifier: Apache-2.0
"""The operator's page with prepared states instead of a cell: to try it out, to look at it, and for the pictures of the docs.

python -m test.helpers.operator_page                              # serves all scenes, one address each
python -m test.helpers.operator_page --screenshots docs/images    # all screenshots of the docs (after scripts/demo)
"""

import argparse
import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

from sticker_uq.console.app import Accepted, Person
from sticker_uq.console.state import ConsoleState
from sticker_uq.gate.answers import may_be_sticker
from sticker_uq.messages import CALM, BlockReason, is_explained, text_of
from sticker_uq.scene import Reason, Verdict
from test.helpers.browser import FakeCell, chromium, served
from test.helpers.laptops import labelled

SIZES = {"1024x768": (1024, 768), "1280x800": (1280, 800), "768x1024": (768, 1024)}
GATE_PERIOD_S = 0.1
SCENE_EVERY = 10
"""Gate messages for each scene."""
NO_PICTURES = ("blocked", "lost-supervisor")
"""The scenes in which no further picture comes."""
WITHOUT_PICTURES_S = 40.0
LOGO, STICKER = 1, 2
Box = dict[str, float]


def reason(
    code: str = "above_limit",
    subject: str = "shannon_entropy",
    value: float | None = 1.02,
    limit: float | None = 0.9,
    box: Box | None = None,
    text: str = "",
    **values: Any,
) -> dict[str, Any]:
    """A reason as the node shows it to the page; without a ``text`` in the words of the cell."""
    numbers = [math.nan if number is None else number for number in (value, limit)]
    known = Reason(code, subject, *numbers, tuple(values.items()), tuple(box.values()) if box else None)
    return {
        "code": code,
        "subject": subject,
        "value": value,
        "limit": limit,
        "values": values,
        "box": box,
        "text": text or text_of(known),
    }


def gate(state: str, *closed: str, details: Sequence[Any] = (), held: bool = False) -> dict[str, Any]:
    codes = (*closed, "held") if held and "held" not in closed else closed
    return {
        "state": state,
        "closed": [closing(code, details) for code in codes],
        "details": list(details),
        "held": held,
    }


def closing(code: str, details: Sequence[Any]) -> dict[str, Any]:
    """A reason that closes the gate, beside ``details``, as the node shows it to the page."""
    block = BlockReason[code.upper()]
    explained = is_explained(block, [Reason(one["code"], one["subject"]) for one in details])
    return reason(code, "", None, None) | {"calm": bool(block & CALM), "explained": explained}


def asked(box: Box, *reasons: dict[str, Any], label: int = STICKER) -> dict[str, Any]:
    return {
        "id": 0, "label": label, "box": box, "reasons": list(reasons) or [reason()],
        "must_mention": may_be_sticker(label, Verdict.ASK),
    }  # fmt: skip


def request(
    *objects: dict[str, Any], identity: str = "r1", reasons: Sequence[Any] = (), **rest: Any
) -> dict[str, Any]:
    return {
        "request_id": identity, "stamp": "1000", "picture": True, "heat": False, "scene": None, **rest,
        "reasons": list(reasons), "objects": list(objects),
    }  # fmt: skip


class AgedState(ConsoleState):
    """The state of a cell from which no picture has come for a while."""

    def snapshot(self) -> dict[str, Any]:
        """Everything, with an older picture."""
        shown = super().snapshot()
        return shown | {"scene_age_s": shown["scene_age_s"] + WITHOUT_PICTURES_S}


class PreparedCell(FakeCell):
    """Shows a rendered laptop, holds and releases, and closes a question that is answered."""

    def __init__(self, state: ConsoleState) -> None:
        super().__init__()
        self.state = state
        shown = labelled("page")
        self._picture = shown.path.read_bytes()
        self.boxes = [
            dict(zip(("x1", "y1", "x2", "y2"), map(float, box), strict=True)) for box in shown.boxes
        ]
        self.labels = [int(label) for label in shown.labels]
        self.gate = gate("monitoring", "inconsistent")
        self.silent = False

    def box(self, label: int, number: int = 0) -> Box:
        return [box for box, each in zip(self.boxes, self.labels, strict=True) if each == label][number]

    def scene(self, *verdicts: str, stamp: str = "1000", **rest: Any) -> dict[str, Any]:
        """What the detector sees: all objects of the picture, with these verdicts, logos first."""
        order = sorted(range(len(self.boxes)), key=lambda index: self.labels[index])
        objects = [
            {
                "id": number, "label": self.labels[index], "box": self.boxes[index], "hulls": [], "probability": 0.97,
                "seen_in": 20, "unstable": False, "verdict": verdict, "by_operator": False,
                "must_mention": may_be_sticker(self.labels[index], Verdict[verdict.upper()]),
            }
            for number, (index, verdict) in enumerate(zip(order, verdicts, strict=False))
        ]  # fmt: skip
        return {
            "stamp": stamp, "picture": True, "width": 960, "height": 720, "passes": 20, "status": 1, "status_text": "",
            "dil": 0.2, "outcome": "ask", "reasons": [], "unexplained": [], "objects": objects, **rest,
        }  # fmt: skip

    async def answer(self, said: Any, person: Person) -> Accepted:
        reply = await super().answer(said, person)
        if reply.accepted:
            self.state.put(
                "answered",
                {"request_id": said.request_id, "person": person.name, "scene": said.scene, "answers": []},
            )
            self.state.put("request", None)
            # an answer releases nothing
            self.gate = (
                gate("blocked", held=True) if self.gate["held"] else gate("monitoring", "inconsistent")
            )
        return reply

    async def command(self, wanted: Any, person: Person) -> Accepted:
        """Hold, release or reset; a silent cell does nothing."""
        if self.silent:
            return Accepted(accepted=False, reasons=[reason("supervisor_timeout")])
        if wanted.command == "reset":
            self.gate = gate("monitoring", "inconsistent", held=self.gate["held"])
        else:
            closed = [each["code"] for each in self.gate["closed"] if each["code"] != "held"]
            self.gate = gate(
                self.gate["state"],
                *closed,
                details=tuple(self.gate["details"]),
                held=wanted.command == "hold",
            )
        self.state.put("gate", self.gate)
        self.state.add_event(time.time_ns(), wanted.command, name=person.name)
        return await super().command(wanted, person)


def _one_object(cell: PreparedCell) -> None:
    edges = reason("above_limit", "relative_predictive_surface", 0.034, 0.02)
    _ask(cell, asked(cell.box(STICKER), reason(), edges), scene=cell.scene("keep", "ask", "remove"))


def _two_objects(cell: PreparedCell) -> None:
    edges = reason("above_limit", "relative_predictive_surface", 0.034, 0.02)
    _ask(
        cell,
        asked(cell.box(STICKER)),
        asked(cell.box(STICKER, 1), edges),
        scene=cell.scene("keep", "ask", "ask"),
    )


def _on_a_logo(cell: PreparedCell) -> None:
    logo = cell.box(LOGO)
    over = {"x1": logo["x1"] + 40, "y1": logo["y1"] + 30, "x2": logo["x2"] + 40, "y2": logo["y2"] + 30}
    doubtful = asked(logo, reason("below_limit", "logo_probability", 0.55, 0.7), label=LOGO)
    _ask(
        cell,
        doubtful,
        asked(over, reason("above_limit", "logo_overlap", 0.156, 0.1)),
        scene=cell.scene("ask", "remove", "remove"),
    )


def _missed(cell: PreparedCell) -> None:
    place = cell.box(STICKER)
    why = reason("missed_place", "unexplained_objectness", 0.42, 0.1, box=place)
    _ask(cell, reasons=(why,), scene=cell.scene("keep", unexplained=[{"box": place, "objectness": 0.42}]))


def _spot_check(cell: PreparedCell) -> None:
    _ask(cell, reasons=(reason("spot_check"),), scene=cell.scene("keep"))


def _held(cell: PreparedCell) -> None:
    cell.state.put("gate", cell.gate)
    cell.gate = gate("blocked", held=True)
    cell.state.add_event(time.time_ns(), "hold", name="Grace")


def _fault(cell: PreparedCell) -> None:
    cell.gate = gate(
        "fault",
        "fault",
        "arm_failed",
        details=(reason("arm_reported", "stale_permit", detail="the permit expired 50 ms ago"),),
    )
    cell.state.add_event(time.time_ns(), "gate_fault", cell.gate["closed"])


def _drift(cell: PreparedCell) -> None:
    changed = reason("drift", "sharpness", count=212, rate=0.001)
    cell.gate = gate("blocked", "assumption", details=(changed,))
    cell.state.add_event(time.time_ns(), "gate_blocked", [*cell.gate["closed"], changed])


def _removing(cell: PreparedCell) -> None:
    cell.gate = gate("removing")


def _lost_supervisor(cell: PreparedCell) -> None:
    cell.gate = gate("unknown")
    cell.silent = True


def _blocked(cell: PreparedCell) -> None:
    cell.gate = gate("blocked", "exposure", details=(reason("above_limit", "dark_share", 0.81, 0.5),))
    cell.state.report("detector", "images", 1, "waiting for first image on /camera: nobody publishes it yet")
    cell.state.report("detector", "perception", 1, "")


def _ask(cell: PreparedCell, *objects: dict[str, Any], scene: dict[str, Any], **rest: Any) -> None:
    cell.gate = gate("intervention", "waiting_for_operator")
    cell.state.put("request", request(*objects, scene=scene, **rest))


SCENES: dict[str, Callable[[PreparedCell], None]] = {
    "one-object": _one_object,
    "two-objects": _two_objects,
    "on-a-logo": _on_a_logo,
    "missed": _missed,
    "spot-check": _spot_check,
    "held": _held,
    "fault": _fault,
    "drift": _drift,
    "removing": _removing,
    "blocked": _blocked,
    "lost-supervisor": _lost_supervisor,
}
"""What a person may find on the page."""


@contextmanager
def prepared(name: str, punctual: bool = False, **settings: Any) -> Iterator[tuple[str, PreparedCell]]:
    """The address of the page in the scene ``name``, and the cell behind it; the rest as in :func:`served`."""
    state = (AgedState if name in NO_PICTURES else ConsoleState)(("detector", "supervisor"))
    cell = PreparedCell(state)
    state.put("workpiece", "laptop-7-5")
    state.put("scene", cell.scene("keep", "remove", "remove", stamp="2000"))
    state.add_event(time.time_ns(), "arrived", name="laptop-7-5")
    for node in ("detector", "supervisor"):
        state.report(node, "lifecycle", 0, "active")
    SCENES[name](cell)
    ended = threading.Event()

    def publish() -> None:
        for count in itertools.count():
            if name not in NO_PICTURES and count % SCENE_EVERY == 0:
                state.put("scene", cell.scene("keep", "remove", "remove", stamp=str(2000 + count)))
            if name != "lost-supervisor":
                state.put("gate", cell.gate)
                state.report("supervisor", "lifecycle", 0, "active")
            state.report("detector", "lifecycle", 0, "active")
            if ended.wait(GATE_PERIOD_S):
                return

    publisher = threading.Thread(target=publish, daemon=True)
    publisher.start()
    try:
        with served(state, cell, punctual, **settings) as address:
            yield address, cell
    finally:
        ended.set()
        publisher.join()


def _screenshots(folder: Path, report: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    width, height = SIZES["1024x768"]
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 1370}, locale="en")
        page.goto(report.resolve().as_uri())
        page.screenshot(path=folder / "report.png")
        page.close()
        for name, prepare in SHOWN.items():
            with prepared(name) as (address, _):
                page = browser.new_page(
                    viewport={"width": width, "height": height}, has_touch=True, locale="en"
                )
                page.goto(address)
                page.wait_for_function("() => document.getElementById('picture').naturalWidth > 0")
                prepare(page)
                page.wait_for_timeout(300)
                page.screenshot(path=folder / f"console-{name}.jpg", type="jpeg", quality=80)
                page.close()


def _as_found(page: Page) -> None:
    """The page as it comes."""


def _half_answered(page: Page) -> None:
    page.keyboard.press("p")
    page.click("#draw")
    frame = page.locator("#overlay").bounding_box()
    page.mouse.move(frame["x"] + frame["width"] * 0.6, frame["y"] + frame["height"] * 0.66)
    page.mouse.down()
    page.mouse.move(frame["x"] + frame["width"] * 0.75, frame["y"] + frame["height"] * 0.8)
    page.mouse.up()


SHOWN = {"two-objects": _as_found, "one-object": _half_answered, "removing": _as_found, "held": _as_found}
"""The scenes on the pages of the docs, and what is done on the page before."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "scenes", nargs="*", metavar="SCENE", help=f"to serve; all without one: {', '.join(SCENES)}"
    )
    parser.add_argument(
        "--screenshots", type=Path, metavar="DIR", help="save the pictures of the docs and end"
    )
    parser.add_argument(
        "--report",
        type=Path,
        default=Path("out/demo/report.html"),
        metavar="FILE",
        help="of the demo, to show",
    )
    options = parser.parse_args()
    if unknown := set(options.scenes) - SCENES.keys():
        parser.error(f"no scene {', '.join(sorted(unknown))}: expected {', '.join(SCENES)}")
    if options.screenshots is not None:
        if not options.report.is_file():
            parser.error(
                f"{options.report}: no such report: run scripts/demo first, or name one with --report"
            )
        _screenshots(options.screenshots, options.report)
        return
    with ExitStack() as stack:
        for name in options.scenes or SCENES:
            print(f"{name:>16}  {stack.enter_context(prepared(name, punctual=True))[0]}", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
