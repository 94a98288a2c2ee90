# SPDX-License-Identifier: Apache-2.0
"""A bundle: one folder with all that a cell was qualified with, so that nothing of it is exchanged alone.

``bundle.yaml`` is the manifest: the parameters of detector and supervisor, what weights, settings and panel hash to, and the
SHA-256 of every other file: ``weights.safetensors``, ``weights_novelty.safetensors``, ``weights_close_ups.safetensors``,
``weights_photo.safetensors``, ``weights_front.safetensors``, ``weights_patches.safetensors``, ``policy.yaml`` and the file of
its reference, ``panel/``, ``comparison.json``.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import yaml
from pydantic import BaseModel, Field, ValidationError

from sticker_uq.cell.supervisor_settings import SupervisorNodeSettings
from sticker_uq.evaluation.bundle_comparison import COMPARISON, BundleComparison
from sticker_uq.gate import Policy
from sticker_uq.gate.policy.limits import Before
from sticker_uq.gate.policy.reference import SUFFIX, reference_file
from sticker_uq.gate.policy.signals import scene_signal
from sticker_uq.io.files import check_output_folder, remove_earlier_result, whole_folder
from sticker_uq.io.reading import MOST_YAML, child_path, parse_yaml, read_chunks, read_text, show_value
from sticker_uq.io.setting_fields import Frozen, validate, words
from sticker_uq.messages import text_of
from sticker_uq.perception import PerceptionSettings
from sticker_uq.perception.factory import load_perception
from sticker_uq.scene import InvalidInput, Status
from sticker_uq.version import __version__

if TYPE_CHECKING:
    from sticker_uq.perception import Perception
    from sticker_uq.scene import SceneAssessment

MANIFEST = "bundle.yaml"
_WEIGHTS, _NOVELTY = "weights.safetensors", "weights_novelty.safetensors"
_CLOSE_UPS = "weights_close_ups.safetensors"
_PHOTO = "weights_photo.safetensors"
_LAST_LOOK = {name: f"weights_{name}.safetensors" for name in ("front", "patches")}
_POLICY, _PANEL = "policy.yaml", "panel"
BUNDLE_FILES = (
    MANIFEST,
    COMPARISON,
    _WEIGHTS,
    _CLOSE_UPS,
    _PHOTO,
    *_LAST_LOOK.values(),
    _NOVELTY,
    _POLICY,
    f"*{SUFFIX}",
    _PANEL,
    f"{_PANEL}/**/*",
)
"""Files of a bundle (globs)."""
OF_THE_MACHINE = ("device", "threads")
"""Parameters of the detector that no bundle has."""
_FILES = ("weights", "panel")
"""Parameters of the detector that the bundle's own files stand for."""
_NOT_OF_A_BUNDLE = (
    "policy",
    "policy_hash",
    "bundle_hash",
    "audit_folder",
    "allow_uncalibrated",
    "hold_unknown_start",
)
"""Parameters of the supervisor that the bundle's own files stand for, that belong to the machine, or that whoever starts the cell
decides."""
MOST_FILE = 4 << 30
"""Bytes of a file of a bundle, as of weights."""


class Manifest(Frozen):
    format: Literal[1] = 1
    created: dt.date
    version: str = Field(description="Version of sticker_uq that made it")
    model: str
    device: str = Field(description="Kind of the device it was made on, cpu or cuda")
    model_hash: str
    settings_hash: str
    panel_hash: str
    policy_hash: str
    guarantee: str = Field(description="What the policy promises; empty: nothing")
    detector: dict[str, bool | int | float | str]
    supervisor: dict[str, bool | int | float | str]
    files: dict[str, str] = Field(description="SHA-256 of every file, by its path in the folder")


@dataclass(frozen=True)
class Bundle:
    """A bundle on disk whose files are those of its manifest. ``hash``: SHA-256 of the manifest, which has that of every file."""

    folder: Path
    manifest: Manifest
    hash: str

    @classmethod
    def load(cls, folder: str | Path) -> Bundle:
        """The bundle in ``folder``.

        Raises :class:`InvalidInput`, naming the file, when the manifest cannot be read, a file is missing, is not the one that
        the bundle was made with, or is not in the manifest.
        """
        folder = Path(folder).expanduser().resolve()
        if not folder.is_dir():
            raise InvalidInput(f"bundle {folder}: no such folder; `sticker-uq bundle create` makes one")
        name = f"bundle {folder}: {MANIFEST}"
        text = read_text(folder / MANIFEST, MOST_YAML, name)
        manifest = _manifest(parse_yaml(text, name), name)
        if missing := {_WEIGHTS, _POLICY} - set(manifest.files):
            raise InvalidInput(f"{name}: files: expected {' and '.join(sorted(missing))} among them")
        for file, expected in manifest.files.items():
            if (found := _sha256(child_path(folder, file, name), f"bundle {folder}: {file}")) != expected:
                raise InvalidInput(
                    f"bundle {folder}: {file} is not the file that the bundle was made with (SHA-256 {found[:12]}, expected "
                    f"{expected[:12]}); make a new bundle with `sticker-uq bundle create`"
                )
        if added := sorted(set(_files(folder)) - set(manifest.files) - {MANIFEST}):
            raise InvalidInput(
                f"bundle {folder}: {added[0]} is not in its manifest; remove the file, or make a new bundle"
            )
        bundle = cls(folder, manifest, hashlib.sha256(text.encode()).hexdigest())
        bundle._check_claims(name)
        return bundle

    @property
    def policy(self) -> Path:
        return self.folder / _POLICY

    @property
    def comparison(self) -> BundleComparison | None:
        """How it compares with the bundle that was active when `sticker-uq improve` made it; None for a bundle made otherwise.

        Raises :class:`InvalidInput` for a comparison that cannot be read or is of other parts than the bundle's.
        """
        if COMPARISON not in self.manifest.files:
            return None
        name = f"bundle {self.folder}: {COMPARISON}"
        try:
            found = BundleComparison.model_validate_json(read_text(self.folder / COMPARISON, MOST_YAML, name))
        except ValidationError as error:
            raise InvalidInput(f"{name}: {words(error.errors()[0], BundleComparison)}") from None
        for part in ("model_hash", "settings_hash", "policy_hash"):
            if (compared := getattr(found, part)) != (own := getattr(self.manifest, part)):
                raise InvalidInput(
                    f"{name}: compares another candidate ({part} {show_value(compared[:12])}, the bundle has "
                    f"{show_value(own[:12])}); make it again with `sticker-uq improve`"
                )
        return found

    @property
    def warning(self) -> str:
        """What whoever starts the cell should know about the policy, "" for nothing."""
        if Policy.load(self.policy).unmeasured_novelty == "ask":
            return ""
        return (
            "unmeasured_novelty: release: where novelty is not measured, because the novelty network is missing or too weak, "
            "stickers are released in unfamiliar scenes too"
        )

    def detector_parameters(self) -> dict[str, Any]:
        values = {**self.manifest.detector, "weights": str(self.folder / _WEIGHTS)}
        has_panel = any(file.startswith(f"{_PANEL}/") for file in self.manifest.files)
        return values | ({"panel": str(self.folder / _PANEL)} if has_panel else {})

    def supervisor_parameters(self) -> dict[str, Any]:
        """Parameters for the supervisor, with path and hash of the policy, which bind it to that one, and the manifest's hash."""
        own = {"policy": str(self.policy), "policy_hash": self.manifest.policy_hash, "bundle_hash": self.hash}
        return {**self.manifest.supervisor, **own}

    def settings(self, present: PerceptionSettings | None = None) -> PerceptionSettings:
        """Settings of perception; device and threads, which belong to the machine, are those of ``present``.

        Raises :class:`InvalidInput` for a value that perception refuses.
        """
        present = present or PerceptionSettings()
        values = self.detector_parameters() | {name: getattr(present, name) for name in OF_THE_MACHINE}
        return validate(PerceptionSettings, values, strict=True)

    def _check_claims(self, name: str) -> None:
        """Raise :class:`InvalidInput` unless the manifest has parameters that a bundle may have, with values that the cell takes,
        and says of the policy what the policy says.
        """
        manifest = self.manifest
        _refuse_others(manifest.detector, PerceptionSettings, (*OF_THE_MACHINE, *_FILES), f"{name}: detector")
        _refuse_others(manifest.supervisor, SupervisorNodeSettings, _NOT_OF_A_BUNDLE, f"{name}: supervisor")
        try:
            self.settings()
            validate(SupervisorNodeSettings, dict(manifest.supervisor), strict=True)
        except InvalidInput as error:
            raise InvalidInput(f"{name}: {error}") from None
        policy = Policy.load(self.policy)
        for field, found in (("policy_hash", policy.hash), ("guarantee", str(policy.guarantee or ""))):
            if (claimed := getattr(manifest, field)) != found:
                raise InvalidInput(
                    f"{name}: {field} = {show_value(claimed)}: expected {show_value(found)}, as {_POLICY} has "
                    "it; make a new bundle"
                )

    def verify(self, present: PerceptionSettings | None = None) -> SceneAssessment:
        """Assess a grey picture on this machine; returns the assessment.

        Raises :class:`InvalidInput` when weights, settings or panel are not those of the manifest here, or the policy refuses
        them.
        """
        shown_scene = _assess_check_image(load_perception(self.settings(present)), Policy.load(self.policy))
        for name in ("model_hash", "settings_hash", "panel_hash"):
            expected, found = getattr(self.manifest, name), getattr(shown_scene, name)
            if expected != found:
                raise InvalidInput(
                    f"bundle {self.folder}: {name} is {found[:12] or 'none'} on this machine ({shown_scene.device_kind}), "
                    f"{expected[:12] or 'none'} where the bundle was made ({self.manifest.device}): calibrate and make the "
                    "bundle on a machine of this kind, with this version"
                )
        return shown_scene


def create_bundle(
    out: Path,
    settings: PerceptionSettings,
    policy_file: Path,
    supervisor: Mapping[str, Any] | None = None,
    comparison: BundleComparison | None = None,
    overwrite: bool = False,
) -> Bundle:
    """Make a bundle of what ``settings`` and ``policy_file`` name in the new or empty folder ``out``; returns it.

    With ``overwrite`` it may hold a bundle, which is removed at the end.

    ``supervisor``: parameters of the supervisor that belong to what is qualified; ``comparison``: with the active bundle. One
    picture is assessed with it all, so that whatever does not fit together is refused with :class:`InvalidInput` before anything
    is written.
    """
    check_output_folder(out, f"--out {out}", empty=not overwrite)
    chosen = {k: v for k, v in (supervisor or {}).items() if k not in _NOT_OF_A_BUNDLE}
    validate(SupervisorNodeSettings, chosen)
    policy = Policy.load(policy_file)
    perception = load_perception(settings)
    scene = _assess_check_image(perception, policy)
    with whole_folder(out) as folder:
        for name, source in _sources(settings, policy_file).items():
            _copy(source, folder / name)
        if comparison is not None:
            (folder / COMPARISON).write_text(comparison.model_dump_json(indent=1), encoding="utf-8")
        manifest = Manifest(
            created=dt.datetime.now(dt.UTC).date(),
            version=__version__,
            model=scene.model,
            device=scene.device_kind,
            model_hash=scene.model_hash,
            settings_hash=scene.settings_hash,
            panel_hash=scene.panel_hash,
            policy_hash=policy.hash,
            guarantee=str(policy.guarantee or ""),
            detector=settings.model_dump(exclude={*OF_THE_MACHINE, *_FILES}),
            supervisor=chosen,
            files={file: _sha256(folder / file) for file in _files(folder)},
        )
        (folder / MANIFEST).write_text(
            yaml.safe_dump(manifest.model_dump(mode="json"), sort_keys=False), encoding="utf-8"
        )
        made = Bundle.load(folder)
        made.verify(settings)
        _ = made.comparison
        if overwrite:
            remove_earlier_result(out, BUNDLE_FILES, f"--out {out}")
    return Bundle.load(out)


def _sources(settings: PerceptionSettings, policy: Path) -> dict[str, Path]:
    # torch takes seconds to load: a cell that starts from a bundle need not wait for it here
    from sticker_uq.detection.weights import beside_weights, close_up_weights, packaged_weights
    from sticker_uq.perception.novelty.network import packaged_file

    weights = Path(settings.weights) if settings.weights else packaged_weights(settings.model)
    assert weights is not None, "else the detector could not have been loaded"
    if weights.suffix != ".safetensors":
        raise InvalidInput(
            f"weights {weights}: expected a .safetensors file, as `sticker-uq train` writes it, which says what it was made for"
        )
    beside = weights.with_name(f"{weights.stem}_novelty.safetensors")
    novelty = beside if settings.weights else packaged_file(settings.model)
    found = {_WEIGHTS: weights, _POLICY: policy}
    if reference := reference_file(policy):
        found[reference.name] = reference
    if settings.novelty and novelty is not None and novelty.is_file():
        found[_NOVELTY] = novelty
    if settings.close_ups and (close_ups := close_up_weights(settings.model, settings.weights)):
        found[_CLOSE_UPS] = close_ups
    if settings.photo and (photo := beside_weights(settings.model, settings.weights, "photo")):
        found[_PHOTO] = photo
    for name, inside in _LAST_LOOK.items() if settings.last_look else ():
        if (file := beside_weights(settings.model, settings.weights, name)) and file.is_file():
            found[inside] = file
    return found | ({_PANEL: Path(settings.panel)} if settings.panel else {})


def _assess_check_image(perception: Perception | Any, policy: Policy) -> SceneAssessment:
    """A grey picture as ``perception`` assesses it; raises :class:`InvalidInput` when ``policy`` does not hold for that."""
    limits = policy.validity
    width, height = (limits and limits.image_size) or (640, 480)
    camera = limits.camera if limits else ""
    grey = np.full((height, width, 3), 128, np.uint8)
    scene: SceneAssessment = perception.assess(grey, time.time_ns(), camera)
    if scene.status is Status.FAILED:
        raise InvalidInput(f"a grey picture cannot be assessed: {scene.status_text}")
    if (refusal := policy.refusal(scene)) is not None:
        raise InvalidInput(f"the policy does not fit the detector: {text_of(refusal)}")
    unmeasured = [
        limit.signal
        for limit, _ in policy.limits_before(Before.START)
        if (limit.network or scene.localization is None)  # of a grey picture DiL may be undefined
        and math.isnan(value := scene_signal(scene, limit.signal))
        and not policy.releases_unmeasured(limit, value)
    ]
    # where novelty is switched off the scene is OK
    if scene.status is Status.DEGRADED and unmeasured:
        raise InvalidInput(
            f"nothing would be released without a person: {scene.status_text}, and the policy limits "
            f"{', '.join(unmeasured)} (unmeasured_novelty: {policy.unmeasured_novelty})"
        )
    return scene


def _manifest(values: Any, name: str) -> Manifest:
    if not isinstance(values, dict):
        raise InvalidInput(f"{name}: expected a manifest, got {type(values).__name__}")
    try:
        return Manifest.model_validate_json(json.dumps(values, default=str), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise InvalidInput(
            f"{name}: {place} = {show_value(first['input'])}: {words(first, Manifest)}"
        ) from None


def _files(folder: Path) -> list[str]:
    """All files below ``folder``; a link to a folder counts as a file, and nothing behind it is looked at."""
    found = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return sorted(path.relative_to(folder).as_posix() for path in found)


def _copy(source: Path, target: Path) -> None:
    for file in _files(source) if source.is_dir() else [""]:
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        with (target / file).open("wb") as stream:
            stream.writelines(read_chunks(source / file, MOST_FILE))


def _sha256(path: Path, name: str = "") -> str:
    digest = hashlib.sha256()
    for chunk in read_chunks(path, MOST_FILE, name):
        digest.update(chunk)
    return digest.hexdigest()


def _refuse_others(values: Iterable[str], model: type[BaseModel], foreign: Sequence[str], name: str) -> None:
    known = [field for field in model.model_fields if field not in foreign]
    if other := sorted(set(values) - set(known)):
        raise InvalidInput(f"{name}: {show_value(other[0])} is no parameter of a bundle; make a new bundle")
