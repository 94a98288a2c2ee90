# SPDX-License-Identifier: Apache-2.0
"""What the documents say was measured can be found: commits that they cite are in the history."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
CITED = re.compile(
    r"commits? `?([0-9a-f]{7,40})\b|git show ([0-9a-f]{7,40}):|and `([0-9a-f]{8})`|, `([0-9a-f]{8})`"
)
BENCHMARK = re.compile(r"`benchmarks\.(\w+)[^`]*` of commit `([0-9a-f]+)`")
MADE_BY = re.compile(r"# commit ([0-9a-f]{8}): (\S+)\n")

FIGURE = re.compile(r"\d ?%|\d of \d|\d images/s")
"""What is measured, in README; versions and sizes are not."""
WITH_INTERVAL = re.compile(r"\d+ of \d{3}|\d \(\d[\d.]* to \d[\d.]*\)")
SOURCE = re.compile(r"<!-- source:\s(\S+): (.+?) -->", re.S)
KINDS = "py|js|json|ya?ml|msg|srv|action|xml|txt"
NAMED = re.compile(r"benchmarks[/.]\w+|commit `|<!-- source:")


def git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)


@pytest.fixture(scope="module")
def history():
    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("no git repository with its whole history: what it holds cannot be asked")


def missing(name: str) -> bool:
    return git("cat-file", "-e", name).returncode != 0


def test_every_cited_commit_is_in_the_history(history):
    cited = {
        (next(filter(None, found.groups())), page.name)
        for page in PAGES
        for found in CITED.finditer(page.read_text(encoding="utf-8"))
    }
    assert len(cited) > 20
    lost = [
        (commit, page)
        for commit, page in sorted(cited)
        if git("merge-base", "--is-ancestor", commit, "HEAD").returncode
    ]
    assert lost == []


def test_no_page_cites_a_tag_that_no_clone_has():
    assert [page.name for page in PAGES if "measurements-0" in page.read_text(encoding="utf-8")] == []


def test_every_result_says_which_benchmark_made_it(history):
    here = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "benchmarks").glob("*.py"))
    here += "".join(p.read_text(encoding="utf-8") for p in (ROOT / "scripts").iterdir() if p.is_file())
    for file in RESULTS.iterdir():
        made = MADE_BY.match(file.read_text(encoding="utf-8"))
        if made:
            assert not missing(f"{made[1]}:{made[2]}"), f"{file.name}: {made[0].strip()}: no such file"
        else:
            stem = re.sub(r"_S\d+$", "_{", file.stem.partition("_study")[0])  # papers_S001: papers_{paper}
            assert re.search(rf"\b{re.escape(stem)}(?!\w)", here.replace("{paper}", "{")), (
                f"{file.name}: made by what?"
            )
    named = [
        (page.name, *found.groups())
        for page in PAGES
        for found in BENCHMARK.finditer(page.read_text(encoding="utf-8"))
    ]
    assert named
    assert [one for one in named if missing(f"{one[2]}:benchmarks/{one[1]}.py")] == []


def test_every_figure_of_the_readme_has_a_source_beside_it():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = [part for block in text.split("\n\n") for part in re.split(r"\n(?=\|)", block)]
    bare = [block[:60] for block in blocks if FIGURE.search(block) and not SOURCE.search(block)]
    assert bare == [], 'expected "<!-- source: FILE: WORDS OF THE FILE -->" beside the figure'


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_as_a_source_says_so(page):
    text = page.read_text(encoding="utf-8")
    for file, words in SOURCE.findall(text):
        assert words in (ROOT / file).read_text(encoding="utf-8"), f"{file} does not say {words!r}"
    own = re.sub(r"```.*?```", "", text, flags=re.S)  # what a command of the page prints
    if page.parent != ROOT and (figure := WITH_INTERVAL.search(own)):
        assert NAMED.search(own), f"{figure[0]!r}, measured by what?"


def test_where_to_change_what_names_what_there_is():
    text = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")
    rows = text.partition("## Where to change what")[2].partition("\n## ")[0]
    named = {one for row in rows.splitlines() if row.startswith("|") for one in re.findall(r"`([^`]+)`", row)}
    tracked = [path for path in git("ls-files").stdout.split() if not path.startswith(("docs/", "CHANGELOG"))]
    sources = [path for path in tracked if re.search(rf"\.({KINDS})$", path)]
    words = set(re.findall(r"\w+", "\n".join((ROOT / one).read_text(encoding="utf-8") for one in sources)))
    names = {one for one in named if re.fullmatch(r"[\w.]+\w", one) and "." not in one[-6:]}
    assert len(names) > 60
    assert sorted(one for one in names if not set(one.split(".")) <= words) == []
    files = {one for one in named if re.fullmatch(rf"[\w/.-]+(/|\.({KINDS}|md))", one) and "LANG" not in one}
    assert len(files) > 60
    assert sorted(one for one in files if not any(f"/{one}" in f"/{path}" for path in tracked)) == []
