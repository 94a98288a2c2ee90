# SPDX-License-Identifier: Apache-2.0
"""What the classes of another data set mean here: every class that occurs must be named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from sticker_uq.io.categories import IGNORE, OWN_NAMES
from sticker_uq.lab.datasets.importing.labelled_picture import NamedPicture
from sticker_uq.messages import printable
from sticker_uq.scene import InvalidInput, ObjectClass

REST = "rest"
"""In --ignore: every class that is not named otherwise."""
_TARGETS = (*OWN_NAMES, IGNORE)


def class_mapping(given: Sequence[str], ignored: Sequence[str]) -> dict[str, str]:
    """The meaning, "logo", "sticker" or "ignore", of imported class names in lower case, from NAME=MEANING and names to ignore.

    Raises InvalidInput for another meaning and for a name with two of them.
    """
    pairs = [(f"--class {text!r}", *text.rpartition("=")[::2]) for text in given]
    pairs += [(f"--ignore {name!r}", name, IGNORE) for name in ignored]
    mapping: dict[str, str] = {}
    for option, name, meaning in pairs:
        key, word = name.strip().lower(), meaning.strip().lower()
        if not key or word not in _TARGETS:
            raise InvalidInput(f"{option}: expected NAME=one of {', '.join(_TARGETS)}")
        if mapping.setdefault(key, word) != word:
            raise InvalidInput(
                f"{option}: {name.strip()!r} is given as {mapping[key]} too; expected one meaning"
            )
    return mapping


def complete_mapping(pictures: Sequence[NamedPicture], mapping: Mapping[str, str]) -> dict[str, str]:
    """The meaning of every class name that occurs in the imported ``pictures``.

    Raises InvalidInput listing classes without a meaning, with their numbers of objects, and names that do not occur.
    """
    counts = Counter(one.name for picture in pictures for one in picture.objects)
    if not counts:
        raise InvalidInput(
            f"none of {len(pictures)} pictures has a label; CVAT leaves polygons and turned boxes out of YOLO and VOC files: "
            "export CVAT for images or COCO"
        )
    rest = REST in mapping and mapping[REST] == IGNORE and REST not in {name.lower() for name in counts}
    named = {name: mapping.get(name.lower(), IGNORE if rest else "") for name in counts}
    missing = [name for name, meaning in named.items() if not meaning]
    if missing:
        listed = ", ".join(f"{printable(name)!r} ({counts[name]} objects)" for name in sorted(missing)[:20])
        more = f" and {len(missing) - 20} more" if len(missing) > 20 else ""
        raise InvalidInput(
            f'{len(missing)} of {len(counts)} classes have no meaning: {listed}{more}; give --class "{printable(min(missing))}='
            f'sticker" (or logo, ignore) for each, or --ignore {REST}'
        )
    unused = set(mapping) - {name.lower() for name in counts} - ({REST} if rest else set())
    if unused:
        listed = ", ".join(sorted(map(printable, counts))[:20]) or "none"
        raise InvalidInput(f"class {min(unused)!r} does not occur; classes there: {listed}")
    return named


def labels_by_name(named: Mapping[str, str]) -> dict[str, ObjectClass | None]:
    """The class of each imported class name of :func:`complete_mapping`, None for one to be left out."""
    return {name: OWN_NAMES.get(meaning) for name, meaning in named.items()}
