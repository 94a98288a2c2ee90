# SPDX-License-Identifier: Apache-2.0
"""The Python interface: what a notebook imports, in a fresh interpreter and on real images."""

import inspect
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import cv2
import numpy as np
import pytest

import sticker_uq
from sticker_uq import (
    Detector,
    InvalidInput,
    Verdict,
    draw,
    judge,
    objects_table,
    packaged_limits,
    read_image,
)
from sticker_uq.io.sources import open_source
from test.helpers.laptops import laptop

pytestmark = pytest.mark.usefixtures("small_packaged")


@pytest.fixture(scope="module")
def detector(small_packaged) -> Detector:
    return Detector(passes=5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two rendered lids and a file that is no picture."""
    folder = tmp_path_factory.mktemp("lids")
    for number in (1, 2):
        cv2.imwrite(str(folder / f"{number}.png"), laptop("medium", number))
    (folder / "3.png").write_bytes(b"no picture")
    return folder


def test_every_name_is_there_and_importing_loads_no_network():
    assert {name for name in sticker_uq.__all__ if hasattr(sticker_uq, name)} == set(sticker_uq.__all__)
    assert set(sticker_uq.__all__) <= set(dir(sticker_uq))
    code = "from sticker_uq import Detector, Policy, judge, draw; import sys; print({'torch', 'rclpy'} & set(sys.modules))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "set()"
    with pytest.raises(AttributeError, match="no attribute 'Detektor'"):
        _ = sticker_uq.Detektor


def test_an_image_is_assessed_judged_and_drawn(detector, folder):
    image = read_image(folder / "1.png")
    scene = detector.assess(image)
    assert scene.passes == 5
    assert scene.localization.saliency is not None
    assert detector.assess(image).digest == scene.digest
    decision = judge(scene, packaged_limits())
    assert {verdict.verdict for verdict in decision.verdicts} <= set(Verdict)
    drawn = draw(image, scene, decision)
    assert drawn.shape == image.shape
    assert (drawn != image).any()


def test_one_call_gives_what_the_cell_would_do_to_read_save_and_show(detector, folder, tmp_path, monkeypatch):
    image = read_image(folder / "1.png")
    judged = detector.judge(image)
    assert judged.decision == judge(judged.scene, packaged_limits())
    assert len(judged.table()) == len(judged.scene.objects) + len(judged.scene.unstable)
    for shown in (repr(detector), repr(judged), repr(judged.scene)):
        assert len(shown) < 500
        assert " object at 0x" not in shown
    assert repr(judged).startswith(f"<{judged.decision.outcome.name}: ")
    judged.save(tmp_path / "judged.png")
    assert (cv2.imread(str(tmp_path / "judged.png")) == draw(image, judged.scene, judged.decision)).all()
    with pytest.raises(InvalidInput, match=r"judged\.doc: expected a picture's suffix"):
        judged.save(tmp_path / "judged.doc")
    assert [path.name for path in tmp_path.iterdir()] == ["judged.png"], "nothing half-written"
    page = judged._repr_html_()
    assert page.count("<tr") == 1 + len(judged.table())
    assert "data:image/png;base64," in page
    monkeypatch.setenv("MPLBACKEND", "agg")
    judged.show()


def test_a_folder_becomes_a_table_and_what_is_unreadable_is_told(detector, folder):
    seen = list(detector.assess_all(folder))
    assert [one.name for one in seen] == ["1.png", "2.png", "3.png"]
    assert seen[2].image is None
    assert (seen[2].scene.status.name, "3.png" in seen[2].scene.status_text) == ("FAILED", True)
    alone = detector.assess(read_image(folder / "1.png"))
    assert [o.box.tolist() for o in seen[0].scene.objects] == [o.box.tolist() for o in alone.objects]
    table = objects_table(seen)
    assert len(table) == sum(len(one.scene.objects) + len(one.scene.unstable) for one in seen)
    assert {"image", "label", "p_sticker", "mutual_information", "verdict"} <= set(table.columns)


def test_a_video_shows_what_the_cell_would_do_as_fast_as_its_source(detector, folder, tmp_path):
    image = read_image(folder / "1.png")
    source, judged = tmp_path / "lids.avi", tmp_path / "judged.mp4"
    writer = cv2.VideoWriter(str(source), cv2.VideoWriter.fourcc(*"MJPG"), 12.5, (480, 360))
    for _ in range(3):
        writer.write(image)
    writer.release()
    detector.save_video(source, judged)
    frames = [item.image for item in open_source(judged)]
    assert (len(frames), cv2.VideoCapture(str(judged)).get(cv2.CAP_PROP_FPS)) == (3, 12.5)
    read = next(iter(open_source(source))).image
    drawn = detector.judge(read).draw()
    assert cv2.absdiff(frames[0], drawn).mean() < cv2.absdiff(read, drawn).mean() / 2
    assert detector.save_video(folder, judged) == ["3.png"], "what cannot be read is named"
    assert len(list(open_source(judged))) == 2
    before = judged.read_bytes()
    cv2.imwrite(str(folder / "4.png"), image[:, :240])
    with pytest.raises(InvalidInput, match=r"4\.png is not of \(480, 360\) px"):
        detector.save_video(folder, judged)
    (folder / "4.png").unlink()
    with pytest.raises(InvalidInput, match=r"judged\.gif: expected the suffix of a video"):
        detector.save_video(folder, tmp_path / "judged.gif")
    assert {path.name: path.read_bytes() == before for path in tmp_path.iterdir() if path != source} == {
        "judged.mp4": True
    }


def test_mistakes_are_named(folder):
    with pytest.raises(InvalidInput, match="unknown parameter pases; did you mean passes"):
        Detector(pases=3)
    with pytest.raises(InvalidInput, match="passes = 0: expected an integer from 1 to 200"):
        Detector(passes=0)
    with pytest.raises(InvalidInput, match=r"weights file none\.safetensors: no such file"):
        Detector(weights="none.safetensors")
    with pytest.raises(InvalidInput, match=r"3\.png: expected a picture"):
        read_image(folder / "3.png")
    with pytest.raises(InvalidInput, match=r"none\.png: expected a picture"):
        read_image("none.png")
    with pytest.raises(InvalidInput, match="image"):
        Detector(passes=1).assess(np.zeros((10, 10), np.uint8))


@pytest.mark.parametrize(
    "package",
    [
        "",
        ".detection",
        ".gate",
        ".gate.audit",
        ".geometry",
        ".perception",
        ".perception.dil",
        ".perception.monitors",
        ".uncertainty",
    ],
)
def test_what_a_package_exports_is_documented(package):
    module = import_module(f"sticker_uq{package}")
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isfunction(value) or inspect.isclass(value):
            assert inspect.getdoc(value), name
        for method, function in vars(value).items() if inspect.isclass(value) else ():
            if inspect.isfunction(function) and not method.startswith("_"):
                assert function.__doc__, f"{name}.{method}"
