# SPDX-License-Identifier: Apache-2.0
"""The policy is one validated file, and its hash identifies it."""

import hashlib
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from sticker_uq.calibration.making import write_policy
from sticker_uq.gate import Policy
from sticker_uq.gate.policy.reference import SIGNALS, Reference
from sticker_uq.perception import Perception, PerceptionSettings
from sticker_uq.scene import InvalidInput

ROOT = Path(__file__).parents[3]
REFERENCE = Reference(signals={name: (0.1, *range(19)) for name in SIGNALS})


def test_the_limits_set_by_hand_are_valid_and_name_every_limit():
    path = ROOT / "config" / "limits.yaml"
    Policy.load(path)
    named = {
        line.split(":")[0] for line in path.read_text().splitlines() if line and not line.startswith("#")
    }
    limits = {name for name, field in Policy.model_fields.items() if field.annotation in (float, bool)}
    assert limits <= named <= set(Policy.model_fields)


def test_the_calibrated_policy_is_for_what_is_packaged():
    policy = Policy.load(ROOT / "config" / "policy.yaml")
    perception = Perception(PerceptionSettings(device="cpu"))
    assert policy.guarantee is not None
    assert policy.validity.settings_hash == perception.settings_hash
    assert policy.validity.model_hash == perception.detector.weights_hash


def test_the_hash_follows_the_values_only(tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text("max_dil: 0.6 # the default\n")
    plain, limited = Policy(), Policy(max_variation_ratio=0.21)
    assert Policy.load(path).hash == plain.hash != limited.hash
    assert plain.model_copy(update={"max_variation_ratio": 0.21}).hash == limited.hash
    assert len(Policy().hash) == 64


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_dil: 2", r"max_dil = 2: expected at most 1"),
        ("max_dil: .nan", r"max_dil = nan: .*finite"),
        ("max_dill: 0.5", r"max_dill = 0\.5: unknown name, did you mean max_dil\?"),
        ("min_probability: high", r"min_probability = 'high'"),
        ("max_dil: 0.2\nmax_dil_clean: 0.3", r"max_dil_clean = 0\.3 must not be above max_dil = 0\.2"),
        ("- 1", "must hold lines of the form name: value, got list"),
        ("", "got NoneType"),
        ("max_dil: true", r"max_dil = True: .*valid number"),
        ("max_dil: '0.8'", r"max_dil = '0\.8': .*valid number"),
        ("ask_duplicated: 1", r"ask_duplicated = 1: .*valid boolean"),
        ("ask_duplicated: 'no'", r"ask_duplicated = 'no': .*valid boolean"),
        ("risk: {intercept: true, terms: [], max_removal: 1}", r"risk\.intercept = True: .*valid number"),
        ("validity: {image_size: [640.0, '480']}", r"validity\.image_size\.1 = '480': .*valid integer"),
        ("3: 1\nmax_dil: 0.1\n", "3 = 1: unknown name"),
        ("min_probability: 0.9\nmin_probability: 0.4", "found 'min_probability' twice"),
        ("a: [", "not a YAML file"),
        ("\x00", "not a YAML file"),
    ],
)
def test_a_bad_file_is_refused_with_its_reason(tmp_path, text, message):
    path = tmp_path / "policy.yaml"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=message) as raised:
        Policy.load(path)
    assert str(path) in str(raised.value)


def test_a_policy_cannot_be_changed():
    with pytest.raises(ValidationError):
        Policy().max_dil = 0.9


def test_numbers_may_be_written_as_integers_or_with_an_exponent(tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text("max_dil: 1\nmax_relative_total_variance: 1e-3\nvalidity: {until: 2030-01-02}\n")
    policy = Policy.load(path)
    assert (policy.max_dil, policy.max_relative_total_variance) == (1.0, 0.001)
    assert str(policy.validity.until) == "2030-01-02"


def test_policies_of_before_keep_their_hash():
    """A bundle names it: a limit that comes later must not make every cell's bundle invalid where it limits nothing."""
    before = Policy(max_scene_distance=0.57)
    assert before.hash == "4fdc9acbe5773a0ef49529b715514e37fc6375fa1e408b6b30508f21ca79c0ef"
    assert len({Policy(max_obstruction=0.5).hash, Policy(blade_margin=0.1).hash, Policy().hash}) == 3
    calibrated = Policy.load(ROOT / "config" / "policy.yaml")
    assert calibrated.hash == "df597c94fcc0af51b2d6fa48508434437f9650ac29f1cddae5a5bc49f0b5fa13"


def test_the_reference_may_be_in_the_policy_or_beside_it(tmp_path):
    policy, path = Policy(reference=REFERENCE), tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(policy.model_dump(mode="json", exclude_none=True), sort_keys=False))
    before = Policy.load(path)
    write_policy(before, path)
    assert len(path.read_text().splitlines()) < 60
    assert Policy.load(path) == before == policy
    assert Policy.load(path).hash == policy.hash
    assert list(Policy.load(path).reference.signals) == list(SIGNALS), "ties go to the first"
    assert {file.name for file in tmp_path.iterdir()} == {"mine.yaml", "mine.reference.csv"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda file: file.unlink(),
            r"mine\.reference\.csv: no such file; it belongs to the policy, copy both",
        ),
        (
            lambda file: file.write_text(file.read_text() + "\n"),
            "is not the file that was made with the policy",
        ),
        (lambda file: [file.unlink(), file.mkdir()], "is a folder, expected a regular file"),
    ],
)
def test_a_reference_that_is_missing_or_another_one_is_refused(tmp_path, change, message):
    path = tmp_path / "mine.yaml"
    write_policy(Policy(reference=REFERENCE), path)
    change(tmp_path / "mine.reference.csv")
    with pytest.raises(InvalidInput, match=f"policy {path}: reference: .*{message}"):
        Policy.load(path)


@pytest.mark.parametrize("content", [b"", b"score\n", b"score,noise\n1,2\n3\n", b"score\nx\n", b"\xff\n"])
def test_a_reference_is_a_table_of_numbers(tmp_path, content):
    path = tmp_path / "policy.yaml"
    (tmp_path / "a.reference.csv").write_bytes(content)
    section = {"file": "a.reference.csv", "sha256": hashlib.sha256(content).hexdigest()}
    path.write_text(yaml.safe_dump({"reference": section}))
    with pytest.raises(InvalidInput, match="a number for each in every other line"):
        Policy.load(path)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("{file: a.reference.csv}", "expected file and sha256, or signals"),
        ("{file: 3, sha256: x}", "expected file and sha256, or signals"),
        ("{file: ../a.reference.csv, sha256: x}", "expected a file below"),
        ("{file: sub/a.reference.csv, sha256: x}", "a file beside the policy"),
        ("{file: weights.safetensors, sha256: x}", r"expected NAME\.reference\.csv"),
        ("a.reference.csv", "reference = 'a.reference.csv'"),
    ],
)
def test_the_section_of_the_reference_is_checked(tmp_path, section, message):
    path = tmp_path / "policy.yaml"
    path.write_text(f"reference: {section}\n")
    with pytest.raises(InvalidInput, match=message):
        Policy.load(path)
