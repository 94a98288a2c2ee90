# SPDX-License-Identifier: Apache-2.0
"""All faults of a file at once, and what a source of labels declares, with what became of it."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sticker_uq.scene import InvalidFile, InvalidInput

MOST_SHOWN = 10


class Faults:
    """Collects the faults of the file ``name``. ``count`` is their number."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._shown: list[str] = []
        self._hint = ""
        self.count = 0

    def add(self, fault: str, hint: str = "") -> None:
        self.count += 1
        if len(self._shown) <= MOST_SHOWN:
            self._shown.append(fault)
        self._hint = self._hint or hint

    @contextmanager
    def collect(self, hint: str = "") -> Iterator[None]:
        """Note the InvalidInput that the block raises as a fault, with ``hint``."""
        try:
            yield
        except InvalidInput as error:
            self.add(str(error), hint)

    def refuse(self) -> None:
        """Raise :class:`InvalidFile` with the first faults and their number, if there are any."""
        if not self.count:
            return
        if self.count > MOST_SHOWN + 1:  # a single one more is shown instead of being counted
            del self._shown[MOST_SHOWN:]
        more = self.count - len(self._shown)
        lines = [*self._shown, *([f"and {more} more"] if more else []), *([self._hint] if self._hint else [])]
        if self.count == 1:
            raise InvalidFile(f"{self._name}: {lines[0]}", *lines[1:])
        raise InvalidFile(f"{self._name}: {self.count} faults", *lines)


@dataclass
class LabelCounts:
    """What a source of labels declares, and what became of it: nothing is lost without a word.

    ``pictures`` and ``objects`` are counted in the source itself, ``read`` to ``left_out`` are objects where they end up.
    ``passed_over`` is what is no label of a picture.
    """

    pictures: int = 0
    objects: int = 0
    read: int = 0
    crowd: int = 0
    """Regions of several objects, which are kept as such and are no objects."""
    difficult: int = 0
    """Of ``read``: marked as difficult, and read as any other."""
    ignored: Counter[str] = field(default_factory=Counter)
    """By class, or by shape."""
    left_out: Counter[str] = field(default_factory=Counter)
    """By reason."""
    passed_over: Counter[str] = field(default_factory=Counter)
    """By kind."""
    remarks: list[str] = field(default_factory=list)
    """What else a person should know."""
    examples: dict[str, str] = field(default_factory=dict)
    """The first of a kind that is passed over, by kind."""

    def note(self, kind: str, found: Sequence[object]) -> None:
        if found:
            self.passed_over[kind] += len(found)
            self.examples.setdefault(kind, str(found[0]))

    def check(self, name: str) -> None:
        """Raise InvalidInput, which calls the source ``name``, when an object that it declares is nowhere."""
        found = self.read + self.crowd + self.ignored.total() + self.left_out.total()
        if found != self.objects:
            raise InvalidInput(
                f"{name}: declares {self.objects} labels, but {found} were found where they belong; some stand where this format "
                "has none"
            )

    def lines(self) -> list[str]:
        parts = [f"{self.objects} labels declared", f"{self.read} read"]
        parts += [f"{self.ignored.total()} ignored"] if self.ignored.total() else []
        parts += [f"{self.left_out.total()} left out"] if self.left_out.total() else []
        parts += [f"{self.crowd} crowd"] if self.crowd else []
        lines = [", ".join(parts)]
        if self.crowd:
            lines.append(
                f"{self.crowd} regions are marked as crowd (iscrowd 1): they are not learned, what is found in them is neither "
                "right nor wrong, and `calibrate` refuses them; where each is one object (CVAT marks every mask so), import with "
                "--crowd object"
            )
        if self.difficult:
            lines.append(f"{self.difficult} objects are marked as difficult: they count as any other object")
        lines += [f"left out, {reason}: {count}" for reason, count in self.left_out.items() if count]
        for kind, count in self.passed_over.items():
            example = f", first {self.examples[kind]}" if kind in self.examples else ""
            lines.append(f"not read: {count} {kind}{example}")
        return [*lines, *self.remarks]

    def as_json(self) -> dict[str, Any]:
        names = ("pictures", "objects", "read", "crowd", "difficult")
        return {
            **{name: getattr(self, name) for name in names},
            **{name: dict(+getattr(self, name)) for name in ("ignored", "left_out", "passed_over")},
        }
