# SPDX-License-Identifier: Apache-2.0
"""A bundle holds together: what does not fit is refused when it is made, when it is loaded and where it is used."""

import datetime as dt
import hashlib
import shutil
from pathlib import Path

import cv2
import pytest
import yaml
from typer.testing import CliRunner

from sticker_uq.calibration.making import write_policy
from sticker_uq.cell.bundle import MANIFEST, MOST_FILE, Bundle, _copy, create_bundle
from sticker_uq.cell.processes import CellOptions, cell_processes
from sticker_uq.cell.supervisor_settings import SupervisorNodeSettings
from sticker_uq.cli import app
from sticker_uq.detection.weights import packaged_weights
from sticker_uq.gate import Policy
from sticker_uq.gate.policy.policy_schema import Guarantee
from sticker_uq.gate.policy.reference import Reference
from sticker_uq.io.setting_fields import validate
from sticker_uq.io.share import share_folder
from sticker_uq.messages import text_of
from sticker_uq.perception import PerceptionSettings
from sticker_uq.perception.factory import load_perception
from sticker_uq.scene import InvalidInput
from test.helpers.laptops import laptop

pytestmark = pytest.mark.usefixtures("small_packaged")

PACKAGED = share_folder() / "config" / "limits.yaml"
SETTINGS = PerceptionSettings(passes=3, device="cpu", seed=7)
POSE = {"camera_pose": "0.4 0 1 1 0 0 0", "consecutive_scenes": 4}


def policy_for(folder: Path, **validity: object) -> Path:
    file = folder / "made.yaml"
    file.write_text(PACKAGED.read_text() + yaml.safe_dump({"validity": validity}))
    return file


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return create_bundle(tmp_path_factory.mktemp("made") / "bundle", SETTINGS, PACKAGED, POSE)


@pytest.fixture
def copy(bundle: Bundle, tmp_path: Path) -> Path:
    """Links to the files of a bundle, and a manifest of its own."""
    folder = tmp_path / "copy"
    folder.mkdir()
    for file in bundle.manifest.files:
        (folder / file).symlink_to(bundle.folder / file)
    (folder / MANIFEST).write_text((bundle.folder / MANIFEST).read_text())
    return folder


def test_it_holds_all_that_decides_and_says_the_same(bundle):
    names = ("weights", "weights_novelty", "weights_close_ups")
    assert set(bundle.manifest.files) == {*(f"{name}.safetensors" for name in names), "policy.yaml"}
    image = laptop()
    plain = load_perception(SETTINGS).assess(image, 1, "camera")
    bundled = load_perception(bundle.settings(PerceptionSettings(device="cpu"))).assess(image, 1, "camera")
    assert bundled.to_bytes() == plain.to_bytes()
    manifest = bundle.manifest
    assert (manifest.model_hash, manifest.settings_hash) == (plain.model_hash, plain.settings_hash)
    assert manifest.policy_hash == Policy.load(PACKAGED).hash
    assert bundle.supervisor_parameters() == {
        **POSE,
        "policy": str(bundle.folder / "policy.yaml"),
        "policy_hash": manifest.policy_hash,
        "bundle_hash": bundle.hash,
    }
    assert bundle.hash == hashlib.sha256((bundle.folder / MANIFEST).read_bytes()).hexdigest()


def test_a_changed_missing_or_added_file_is_refused(copy):
    assert Bundle.load(copy).folder == copy
    (copy / "note.txt").write_text("mine")
    with pytest.raises(InvalidInput, match=r"note\.txt is not in its manifest"):
        Bundle.load(copy)
    (copy / "note.txt").unlink()
    (copy / "policy.yaml").unlink()
    with pytest.raises(InvalidInput, match=r"policy\.yaml: no such file"):
        Bundle.load(copy)
    (copy / "policy.yaml").write_text("max_dil: 1.0\n")
    with pytest.raises(
        InvalidInput, match=r"policy\.yaml is not the file that the bundle was made with .* make a new"
    ):
        Bundle.load(copy)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"guarantee": "nothing ever goes wrong"}, "guarantee = 'nothing ever goes wrong': expected ''"),
        ({"policy_hash": "0" * 64}, "policy_hash = '0{64}': expected '.*', as policy.yaml has it"),
        ({"supervisor": {"allow_uncalibrated": True}}, "supervisor: 'allow_uncalibrated' is no parameter"),
        ({"supervisor": {"audit_folder": "/etc"}}, "supervisor: 'audit_folder' is no parameter"),
        ({"supervisor": {"use_sim_time": True}}, "supervisor: 'use_sim_time' is no parameter"),
        ({"supervisor": {"consecutive_scenes": "4"}}, "consecutive_scenes = '4': expected an integer"),
        ({"detector": {"escalate_to": "x"}}, "detector: 'escalate_to' is no parameter"),
        ({"detector": {"device": "cuda"}}, "detector: 'device' is no parameter"),
        ({"detector": {"passes": True}}, "parameter passes = True: expected an integer"),
        ({"detector": {"\x1b[2J": 1}}, r"detector: '\\x1b\[2J' is no parameter"),
        ({dt.date(2020, 1, 1): 1}, "expected a name"),
        ({"format": 2}, "format = 2"),
        ({"files": {"../policy.yaml": "0" * 64}}, "expected policy.yaml and weights.safetensors among them"),
        ({"passes": 3}, "passes = 3"),
    ],
)
def test_a_manifest_that_says_something_else_is_refused(copy, change, message):
    values = yaml.safe_load((copy / MANIFEST).read_text())
    (copy / MANIFEST).write_text(yaml.safe_dump(values | change))
    with pytest.raises(InvalidInput, match=message):
        Bundle.load(copy)


def test_the_reference_of_the_policy_comes_along(tmp_path):
    file, out = tmp_path / "mine.yaml", tmp_path / "bundle"
    policy = Policy.load(PACKAGED).model_copy(update={"reference": Reference(signals={"noise": (1.5,) * 20})})
    write_policy(policy, file)
    made = create_bundle(out, SETTINGS, file)
    assert "mine.reference.csv" in made.manifest.files
    assert Policy.load(made.policy) == policy
    assert (
        create_bundle(out, SETTINGS, PACKAGED, overwrite=True)
        .manifest.files.keys()
        .isdisjoint(["mine.reference.csv"])
    )
    (tmp_path / "mine.reference.csv").unlink()
    with pytest.raises(InvalidInput, match="no such file; it belongs to the policy"):
        create_bundle(tmp_path / "other", SETTINGS, file)
    assert not (tmp_path / "other").exists()


def test_a_link_brings_no_panel_and_no_endless_file(copy, tmp_path):
    (tmp_path / "panel").mkdir()
    (tmp_path / "panel" / "mine.json").write_text("{}")
    (copy / "panel").symlink_to(tmp_path / "panel")
    with pytest.raises(InvalidInput, match="panel is not in its manifest"):
        Bundle.load(copy)
    (copy / "panel").unlink()
    (copy / "panel").mkdir()
    assert "panel" not in Bundle.load(copy).detector_parameters()
    (copy / "policy.yaml").unlink()
    (copy / "policy.yaml").symlink_to("/dev/zero")
    with pytest.raises(InvalidInput, match=r"policy\.yaml: is a device"):
        Bundle.load(copy)
    (copy / "policy.yaml").unlink()
    with (copy / "policy.yaml").open("wb") as stream:
        stream.truncate(MOST_FILE + 1)  # takes no space on the disk, and minutes to hash
    with pytest.raises(InvalidInput, match=r"policy\.yaml: 4294967297 bytes, expected at most"):
        Bundle.load(copy)


def test_a_panel_of_links_and_devices_is_not_copied(tmp_path):
    source = tmp_path / "panel"
    source.mkdir()
    (source / "loop").symlink_to(source)
    with pytest.raises(InvalidInput, match="loop: is a folder"):
        _copy(source, tmp_path / "a")
    (source / "loop").unlink()
    (source / "all.json").symlink_to("/dev/zero")
    with pytest.raises(InvalidInput, match=r"all\.json: is a device"):
        _copy(source, tmp_path / "b")


def test_a_manifest_is_shown_without_control_characters(copy):
    values = yaml.safe_load((copy / MANIFEST).read_text()) | {"version": "1\x1b[2J", "detector": {"seed": 7}}
    (copy / MANIFEST).write_text(yaml.safe_dump(values))
    shown = CliRunner().invoke(app, ["bundle", "show", str(copy)], catch_exceptions=False).output
    assert shown.replace("\n", "").isprintable()
    assert r"sticker_uq 1\x1b[2J" in shown


def test_a_policy_exchanged_after_the_start_is_refused(copy):
    started = validate(SupervisorNodeSettings, Bundle.load(copy).supervisor_parameters())
    assert started.load_policy().hash == started.policy_hash
    (copy / "policy.yaml").unlink()
    (copy / "policy.yaml").write_text("max_dil: 1.0\n")
    with pytest.raises(InvalidInput, match="exchanged since the cell started"):
        started.load_policy()


def test_a_file_outside_of_the_folder_is_not_read(copy):
    values = yaml.safe_load((copy / MANIFEST).read_text())
    values["files"]["../outside"] = "0" * 64
    (copy / MANIFEST).write_text(yaml.safe_dump(values))
    with pytest.raises(InvalidInput, match="expected a file below"):
        Bundle.load(copy)


@pytest.mark.parametrize(
    ("validity", "message"),
    [
        ({"model_hash": "a" * 64}, "the policy does not fit the detector: .*weights aaaaaaaaaaaa"),
        ({"until": "2020-01-31"}, "2020-01-31"),
    ],
)
def test_a_policy_of_another_detector_makes_no_bundle(tmp_path, validity, message):
    out = tmp_path / "new" / "bundle"
    with pytest.raises(InvalidInput, match=message):
        create_bundle(out, SETTINGS, policy_for(tmp_path, **validity))
    assert not out.parent.exists()


def without_network(folder: Path) -> str:
    """The packaged weights as a file beside which no novelty network lies."""
    packaged = packaged_weights(SETTINGS.model)
    assert packaged is not None
    return shutil.copy(packaged, folder / "mine.safetensors")


def test_a_policy_that_could_never_release_anything_makes_no_bundle(tmp_path):
    weights = without_network(tmp_path)
    for changes, named in (({"dil": False}, "dil"), ({"weights": weights}, "scene_distance")):
        with pytest.raises(InvalidInput, match=rf"nothing would be released .* the policy limits {named} \("):
            create_bundle(tmp_path / "bundle", SETTINGS.model_copy(update=changes), PACKAGED)
    assert list(tmp_path.iterdir()) == [Path(weights)]


def test_a_bundle_that_releases_where_novelty_is_not_measured_says_so(tmp_path, bundle):
    file = tmp_path / "policy.yaml"
    file.write_text(PACKAGED.read_text().replace("unmeasured_novelty: ask", "unmeasured_novelty: release"))
    create = ["bundle", "create", "--policy", str(file), "--passes", "2", "--device", "cpu"]
    create += ["--weights", without_network(tmp_path)]
    made = CliRunner().invoke(app, [*create, "--out", str(tmp_path / "bundle")], catch_exceptions=False)
    warning = "stickers are released in unfamiliar scenes too"
    assert warning in made.output
    assert warning in CliRunner().invoke(app, ["bundle", "show", str(tmp_path / "bundle")]).output
    assert warning not in CliRunner().invoke(app, ["bundle", "show", str(bundle.folder)]).output


def test_a_cell_starts_from_it(bundle):
    specs = {spec.name: spec for spec in cell_processes(CellOptions(bundle=str(bundle.folder), sim=True))}
    detector, supervisor = specs["detector"].parameters, specs["supervisor"].parameters
    assert detector["weights"] == str(bundle.folder / "weights.safetensors")
    assert (detector["passes"], detector["seed"]) == (3, 7)
    assert not {"device", "threads"} & detector.keys(), "they belong to the machine"
    assert supervisor["policy"] == str(bundle.folder / "policy.yaml")
    assert supervisor["consecutive_scenes"] == 4
    with pytest.raises(InvalidInput, match="bundle and policy: expected one of them"):
        cell_processes(CellOptions(bundle=str(bundle.folder), policy=str(PACKAGED)))


def test_a_policy_without_guarantee_moves_only_the_simulated_arm_unasked():
    policy = Policy.load(PACKAGED)
    reason = SupervisorNodeSettings().why_uncalibrated(policy)
    assert reason is not None
    assert "set allow_uncalibrated" in text_of(reason)
    assert SupervisorNodeSettings(allow_uncalibrated=True).why_uncalibrated(policy) is None
    proved = policy.model_copy(update={"guarantee": Guarantee(match_iou=0.5)})
    assert SupervisorNodeSettings().why_uncalibrated(proved) is None
    careless = proved.model_copy(update={"unmeasured_novelty": "release"})
    reason = SupervisorNodeSettings().why_uncalibrated(careless)
    assert reason is not None
    assert "also in scenes that the detector was not made for" in text_of(reason)
    assert SupervisorNodeSettings(allow_uncalibrated=True).why_uncalibrated(careless) is None

    def allowed(**options: object) -> bool:
        specs = {spec.name: spec for spec in cell_processes(CellOptions(**options))}
        return bool(specs["supervisor"].parameters.get("allow_uncalibrated", False))

    assert [allowed(), allowed(allow_uncalibrated=True), allowed(sim=True)] == [False, True, True]


def test_the_commands_make_show_and_verify_one(tmp_path):
    run, out = CliRunner().invoke, str(tmp_path / "bundle")
    made = run(
        app,
        ["bundle", "create", "--policy", str(PACKAGED), "--passes", "2", "--device", "cpu", "--out", out],
        catch_exceptions=False,
    )
    assert made.exit_code == 0, made.output
    assert "no guarantee: a real arm needs allow_uncalibrated:=true" in made.output
    again = run(app, ["bundle", "create", "--policy", str(PACKAGED), "--out", out])
    assert again.exit_code == 2
    assert "not an empty folder" in again.output
    assert run(app, ["bundle", "show", out], catch_exceptions=False).output == made.output
    verified = run(app, ["bundle", "verify", out, "--device", "cpu"], catch_exceptions=False)
    assert "fits together on this machine (cpu, float32)" in verified.output
    picture = tmp_path / "lid.png"
    cv2.imwrite(str(picture), laptop())
    replay = ["replay", str(picture), "--device", "cpu", "--out", str(tmp_path / "replay")]
    both = run(app, [*replay, "--bundle", out, "--passes", "4"])
    assert "--bundle and --passes: expected one of them" in both.output
    done = run(app, [*replay, "--bundle", out], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert not list(tmp_path.glob(".bundle*"))
