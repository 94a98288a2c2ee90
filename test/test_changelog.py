# SPDX-License-Identifier: Apache-2.0
"""The changelog, as bloom reads it at a release."""

import importlib.util
import re
from pathlib import Path

import pytest
from catkin_pkg.changelog import BulletList, Changelog, populate_changelog_from_rst

ROOT = Path(__file__).parents[1]
_spec = importlib.util.spec_from_file_location("changelog_rst", ROOT / "scripts" / "changelog_rst.py")
changelog_rst = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(changelog_rst)


def read(markdown):
    log = Changelog("sticker_uq")
    populate_changelog_from_rst(log, changelog_rst.changelog(markdown))
    return {version: (date, content) for version, date, content in log.foreach_version()}


def test_every_entry_is_read_under_its_version():
    markdown = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert list(read(markdown)) == ["0.2.0", "0.3.0"], "what is not released has no date"
    found = read(re.sub(r"^## (\d[\d.]+)$", r"## [\1] - 2030-01-01", markdown, flags=re.MULTILINE))
    assert len(found) == len(re.findall(r"^## ", markdown, re.MULTILINE))
    entries = [
        len(one.bullets) for _, content in found.values() for one in content if isinstance(one, BulletList)
    ]
    assert sum(entries) == len(re.findall(r"^- ", markdown, re.MULTILINE))


def test_code_links_and_dates_are_those_of_restructuredtext():
    entry = "- **New**: `--out` of\n  [a page](docs/a.md), [b](https://b.example)."
    markdown = f"# Changelog\n\n## [1.2.3] - 2026-11-01\n\n{entry}\n"
    [(date, _)] = read(markdown).values()
    assert date.strftime("%Y-%m-%d") == "2026-11-01"
    assert "* **New**: ``--out`` of a page, `b <https://b.example>`_.\n" in changelog_rst.changelog(markdown)


def test_another_heading_is_refused():
    with pytest.raises(SystemExit, match="expected ## "):
        changelog_rst.changelog("## Later\n\n- x\n")
