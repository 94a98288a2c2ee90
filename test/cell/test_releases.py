# SPDX-License-Identifier: Apache-2.0
"""Promotion and roll-back: one link, and no change of it without an entry in a chain that shows what was changed."""

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sticker_uq.cell import releases
from sticker_uq.cell.bundle import MANIFEST, Bundle, create_bundle
from sticker_uq.cell.processes import CellOptions, cell_processes
from sticker_uq.cli import app
from sticker_uq.gate.audit import verify
from sticker_uq.io.share import share_folder
from sticker_uq.perception import PerceptionSettings
from sticker_uq.scene import InvalidInput

pytestmark = pytest.mark.usefixtures("small_packaged")

PACKAGED = share_folder() / "config" / "limits.yaml"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    settings = PerceptionSettings(passes=2, device="cpu")
    return create_bundle(tmp_path_factory.mktemp("made") / "first", settings, PACKAGED)


@pytest.fixture
def bundles(bundle: Bundle, tmp_path: Path) -> list[Bundle]:
    """Three bundles with the same files and other manifests; the last one lies in the folder of the cell."""
    made = []
    for number, folder in enumerate((tmp_path / "a", tmp_path / "b", tmp_path / "cell" / "c")):
        folder.mkdir(parents=True)
        for file in bundle.manifest.files:
            (folder / file).symlink_to(bundle.folder / file)
        (folder / MANIFEST).write_text((bundle.folder / MANIFEST).read_text() + f"# copy {number}\n")
        made.append(Bundle.load(folder))
    assert len({one.hash for one in made}) == 3
    return made


@pytest.fixture
def cell(tmp_path: Path) -> Path:
    return tmp_path / "cell"


def active(cell: Path) -> Path:
    return (cell / "active").resolve()


def roll_back(cell: Path) -> None:
    releases.rollback(cell, Bundle.load(releases.previous(cell).folder))


def test_every_change_is_an_entry_and_goes_back_one_by_one(bundles, cell):
    for one in bundles:
        releases.promote(cell, one, "Ada", "because")
        assert active(cell) == one.folder
    assert os.readlink(cell / "active") == "c", "it moves with the folder"
    roll_back(cell)
    assert active(cell) == bundles[1].folder
    roll_back(cell)
    assert active(cell) == bundles[0].folder
    with pytest.raises(InvalidInput, match="no bundle was active before"):
        roll_back(cell)
    releases.promote(cell, bundles[2])
    roll_back(cell)
    assert active(cell) == bundles[0].folder
    found = releases.history(cell)
    assert [entry.kind for entry in found.entries] == ["promote"] * 3 + ["rollback"] * 2 + [
        "promote",
        "rollback",
    ]
    second = found.entries[1].data
    assert (second["from"], second["to"]) == (str(bundles[0].folder), str(bundles[1].folder))
    assert (second["from_hash"], second["to_hash"]) == (bundles[0].hash, bundles[1].hash)
    assert (second["person"], second["reason"]) == ("Ada", "because")
    assert not found.findings
    assert sorted(path.name for path in cell.iterdir()) == ["active", "c", "releases"]


def test_a_changed_entry_and_a_changed_link_are_found(bundles, cell):
    releases.promote(cell, bundles[0], "Ada")
    releases.promote(cell, bundles[1], "Bob")
    link = cell / "active"
    link.unlink()
    link.symlink_to(bundles[2].folder)
    [finding] = releases.history(cell).findings
    assert finding.startswith(f"active points to {bundles[2].folder}, the log says {bundles[1].folder}")
    with pytest.raises(InvalidInput, match=r"promote. makes a bundle active whatever was before"):
        roll_back(cell)
    releases.promote(cell, bundles[1])
    assert not releases.history(cell).findings
    with pytest.raises(InvalidInput, match="no bundle was active before"):
        roll_back(cell)  # what somebody linked by hand was never verified
    [file] = (cell / "releases").glob("audit-*.jsonl")
    file.write_text(file.read_text().replace("Ada", "Eve"))
    assert releases.history(cell).findings
    assert not verify(cell / "releases").whole


def test_a_bundle_that_was_changed_since_is_not_returned_to(bundles, cell):
    releases.promote(cell, bundles[0])
    releases.promote(cell, bundles[1])
    manifest = bundles[0].folder / MANIFEST
    manifest.write_text(manifest.read_text() + "# changed\n")
    with pytest.raises(InvalidInput, match="is not the one that was active"):
        roll_back(cell)
    assert active(cell) == bundles[1].folder


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["bundle", *map(str, arguments)])
    return result.exit_code, result.output


def test_a_link_that_cannot_be_changed_leaves_an_entry_about_that(bundles, cell, monkeypatch):
    def refused(bundle: Bundle) -> None:
        def refuse(*_: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as full:
            full.setattr(releases.os, "replace", refuse)
            with pytest.raises(OSError, match="No space left"):
                releases.promote(cell, bundle)

    refused(bundles[0])
    status, output = run("history", "--cell", cell)
    assert (status, output.splitlines()[-1][:32]) == (0, "no bundle is active; last entry ")
    releases.promote(cell, bundles[0])
    refused(bundles[1])
    found = releases.history(cell)
    assert [entry.kind for entry in found.entries] == ["promote", "failed", "promote", "promote", "failed"]
    assert (active(cell), found.findings) == (bundles[0].folder, ())
    assert [one.folder for one in found.standing] == [bundles[0].folder]


def test_a_kill_between_entry_and_link_is_found_and_recovered(bundles, cell, monkeypatch):
    releases.promote(cell, bundles[0])
    with monkeypatch.context() as killed:
        killed.setattr(releases, "_link", lambda *_: None)
        releases.promote(cell, bundles[1])
    assert releases.history(cell).findings
    releases.promote(cell, bundles[1])
    assert not releases.history(cell).findings
    roll_back(cell)
    assert active(cell) == bundles[0].folder


def test_what_is_no_link_and_what_is_active_already_is_refused(bundles, cell):
    (cell / "active").mkdir()
    with pytest.raises(InvalidInput, match="expected a symbolic link"):
        releases.promote(cell, bundles[0])
    (cell / "active").rmdir()
    with pytest.raises(InvalidInput, match="no log of releases"):
        releases.history(cell)
    releases.promote(cell, bundles[0])
    with pytest.raises(InvalidInput, match=r"is the active bundle .* already"):
        releases.promote(cell, bundles[0])
    assert len(releases.history(cell).entries) == 1


def test_a_cell_starts_from_the_link_and_tells_the_hash(bundles, cell):
    releases.promote(cell, bundles[0])
    specs = {s.name: s for s in cell_processes(CellOptions(bundle=str(cell / "active")))}
    releases.promote(cell, bundles[1])
    own = specs["supervisor"].parameters
    assert own["bundle_hash"] == bundles[0].hash
    assert own["policy"].startswith(str(bundles[0].folder)), "a running cell keeps what it was started from"


def test_the_commands_verify_before_they_change_anything(bundle, cell):
    status, output = run("promote", bundle.folder, "--cell", cell, "--device", "cpu", "--person", "Ada")
    assert status == 0, output
    assert "restart it" in output
    status, output = run("history", "--cell", cell)
    assert status == 0
    assert "person Ada" in output
    assert run("rollback", "--cell", cell)[0] == 2
    (cell / "active").unlink()
    status, output = run("history", "--cell", cell)
    assert (status, "NOT WHOLE  active points to nothing" in output) == (1, True)


def test_a_bundle_that_computes_something_else_here_is_not_promoted(bundles, cell):
    manifest = bundles[0].folder / MANIFEST
    manifest.write_text(manifest.read_text().replace("passes: 2", "passes: 3"))
    result = CliRunner().invoke(
        app, ["bundle", "promote", str(bundles[0].folder), "--cell", str(cell), "--device", "cpu"]
    )
    assert result.exit_code == 2
    assert "settings_hash is" in result.output
    assert not (cell / "releases").exists()
