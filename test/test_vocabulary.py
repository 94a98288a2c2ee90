# SPDX-License-Identifier: Apache-2.0
"""Words that were replaced by the terms of the field do not come back, in names or in prose."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PLACES = (
    "sticker_uq", "sticker_uq_msgs", "docs", "config", "launch", "benchmarks", "test", "scripts", "docker", "README.md",
    "CONTRIBUTING.md", "CHANGELOG.md",
)  # fmt: skip
SUFFIXES = {
    ".py", ".md", ".yaml", ".yml", ".toml", ".xml", ".msg", ".srv", ".action", ".js", ".html", ".css", "",
}  # fmt: skip
REPLACED = {
    r"strange(ness|st|rs?)?": "novelty, foreign object",
    r"oversights?": "missed-sticker probability",
    r"rooms?": "package, layer; space",
    r"(a|an|the|this|that|one|another|each|every|per|second|further|first|no|its|last) look|(the|further) looks": "pass, view",
    r"looks?_of|looks? =|for looks? in": "pass, assessment, view",
    r"(?-i:Look)\(": "DeterministicPass",
    r"rivals?": "other gate publisher",
    r"class (?-i:Turn)|(?-i:Turn)(?=[\],(:]| \|)|turn\.(log|closing|now|state)": "StepContext",
    r"opinions?": "annotator votes; novelty network",
    r"(?-i:Told|Seat|Sight|Outlook|Speakers)": "CaptionedTable, PanelMember, HeadOutputs, StoppingRule, GatePublishers",
    r"(?<!line of )sights?": "head outputs",
    r"mend(ing|ed|s)?": "recovery, recovered",
    r"betting": "martingale",
    r"perceiving": "perception",
    r"\w*to_the_living": "with liveliness",
    r"(word|words|news) from": "message from",
    r"ears?": "subscription",
    r"(gate|supervisor|arm)'s (eyes?|mouth|voice)": "subscription, publisher",
    r"(who|whom) (it|is|the supervisor) (not )?(hears?|heard)|does not hear": "receives, discovered",
    r"cannot be told|is no number": "is unknown; is NaN",
    r"goes on from there|as many as pay|stand on": "resumes; automatic; is based on",
}
"""Pattern of whole words, in any case unless it says otherwise: what to write instead."""
CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
PATTERNS = {
    re.compile(rf"(?<![A-Za-z0-9])(?:{words})(?![A-Za-z0-9])", re.IGNORECASE): instead
    for words, instead in REPLACED.items()
}
ANY = re.compile("|".join(pattern.pattern for pattern in PATTERNS), re.IGNORECASE)
ALLOWED = {
    # upgrade notes name what was renamed
    "CHANGELOG.md": r".*",
    "test/test_vocabulary.py": r".*",
    # the title of a paper
    "sticker_uq/gate/assumptions/martingale.py": r"betting",
}
"""Patterns that a file may contain."""


def tracked_files() -> list[Path]:
    """The text files of the repository below PLACES; a source archive has no repository, there all files count."""
    listed = subprocess.run(["git", "ls-files", *PLACES], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode == 0:
        files = [ROOT / name for name in listed.stdout.splitlines()]
    else:
        found = (
            path
            for place in PLACES
            for path in ((ROOT / place).rglob("*") if (ROOT / place).is_dir() else [ROOT / place])
        )
        files = [path for path in found if path.is_file() and "__pycache__" not in path.parts]
    return [path for path in files if path.suffix in SUFFIXES and path.exists()]


def occurrences(path: Path) -> list[str]:
    """A line per replaced word in the file: where, which, and what to write instead."""
    name = path.relative_to(ROOT).as_posix()
    allowed = re.compile(ALLOWED.get(name, r"(?!)"), re.IGNORECASE)
    text = path.read_text(encoding="utf-8")
    variants = {text} if name.endswith(".md") else {text, CAMEL.sub(" ", text).replace("_", " ")}
    found = []
    for variant in variants:
        if not ANY.search(variant):
            continue
        for pattern, instead in PATTERNS.items():
            for match in pattern.finditer(variant):
                if not allowed.fullmatch(match[0]):
                    line = variant.count("\n", 0, match.start()) + 1
                    found.append(f"{name}:{line}: {match[0]!r}: write {instead}")
    return sorted(set(found))


@pytest.mark.parametrize("place", PLACES)
def test_replaced_words_do_not_come_back(place: str) -> None:
    files = [path for path in tracked_files() if path.relative_to(ROOT).parts[0] == place]
    assert files, f"{place}: no files found"
    found = [line for path in files for line in occurrences(path)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text",
    ["the gate's strangeness", "def strangeness_of(x)", "class Sight:", "the rooms below it", "StrangerBox", "a second look"],
)  # fmt: skip
def test_a_replaced_word_is_found_in_names_and_in_prose(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("test.test_vocabulary.ROOT", tmp_path)
    file = tmp_path / "module.py"
    file.write_text(text)
    assert occurrences(file)
