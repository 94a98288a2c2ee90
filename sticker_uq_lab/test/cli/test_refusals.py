# SPDX-License-Identifier: Apache-2.0
"""What a command cannot use is said in one line with status 2, before anything is written."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from lab_helpers.scenes import rendered
from sticker_uq.cli import app
from sticker_uq.io.coco import read_coco, write_annotations, write_coco
from sticker_uq_lab.datasets.abnormal import abnormal_scenes

REFUSED = (
    ("train --data nowhere", "nowhere"),
    ("train --data . --epochs 0", "--epochs"),
    ("train --data . --model yolo", "--model"),
    ("train --data . --batch-size 0", "--batch-size"),
    ("train --data . --freeze everything", "--freeze"),
    ("calibrate --data DATA --valid-days 99999999", "--valid-days"),
    ("evaluate --data DATA --model yolo", "--model"),
    ("evaluate --data DATA --passes 1000", "--passes"),
    ("evaluate --data DATA --weights missing.safetensors", "missing.safetensors"),
    ("replay DATA/images --labels TWICE", "two images have the same file name"),
    ("quality --data none", "no such file"),
    ("quality --data none --model yolo", "--model 'yolo'"),
    ("quality --data none --weights a --weights b", "2 --weights for 1 --model"),
    ("quality --data none --passes 0", "--passes 0"),
    ("dataset render --size big", "big"),
    ("dataset render --size 10x10", "10x10"),
    ("dataset render --stickers 3", "3"),
    ("dataset render --stickers 4-2", "4-2"),
    ("dataset render --stickers 0-21", "0-21"),
    ("dataset abnormal --data DATA --case fog", "fog"),
    ("dataset abnormal --data DATA --patch no.png", "no.png"),
    ("dataset abnormal --data DATA --seed -1", "--seed"),
    ("dataset patch --data DATA --steps 0 --out OUT.png", "0 steps"),
    ("dataset patch --data DATA --model yolo --out OUT.png", "yolo"),
    ("dataset patch --data DATA --seed -1 --out OUT.png", "--seed"),
    ("dil learn --data DATA --epochs 0", "--epochs 0"),
    ("dil study --data DATA", "dataset abnormal"),
    ("dil study --data CASES --model yolo", "yolo"),
    ("dil study --data CASES --weights a --weights b", "2 --weights"),
    ("dil study --data CASES --network a --network b", "2 --network"),
    ("dil study --data CASES --network none.safetensors", "none.safetensors"),
    ("dil study --data CASES --passes 0", "--passes 0"),
    ("study", "--data is missing"),
    ("study --data DATA --model yolo", "model 'yolo': expected [LABEL:]MODEL"),
    ("study --data DATA --rates a", "--rates 'a': expected numbers"),
    ("train --data DATA --anchor-scales 0.1,,0.2", "--anchor-scales '0.1,,0.2': expected numbers"),
    ("study --data DATA --rates 0.1,0.1", "two rates are called '0.1'"),
    ("study --data DATA --rates 1.5", "dropout rate 1.5: expected 0 to 0.9"),
    ("study --data DATA --passes 1", "--passes 1"),
    ("study --data DATA --model ssd300_vgg16", "no packaged weights of model 'ssd300_vgg16'"),
    ("qualify --data DATA --weights mine.safetensors", "weights = 'mine.safetensors': expected none"),
    ("qualify --data DATA --panel fitted", "panel = 'fitted': expected none"),
    ("qualify --data DATA --split 1,0,0", "expected a share above 0 for each part"),
    ("qualify --data DATA --split a", "expected the shares of learn, calibrate, test"),
    ("qualify --data DATA --alpha 0", "alpha = 0.0: expected a number between 0 and 1"),
    ("qualify --data DATA --min-removed 2", "--min-removed 2.0: expected a number from 0 to 1"),
    ("qualify --data DATA --epochs 0", "--epochs 0:"),
    (
        "qualify --data DATA --robustness-images -1",
        "--robustness-images -1: expected an integer of at least 0",
    ),
    ("audit verify nowhere", "nowhere: no such folder"),
    ("audit show nowhere", "nowhere: no such folder"),
    ("audit show DATA", "holds no audit log"),
    ("audit verify . --head 12", "--head '12': expected 64 hexadecimal digits"),
    ("monitors tasks --seeds 0", "--seeds 0"),
    ("monitors tasks --data digits", "no stickers"),
    ("monitors ambiguous --data DATA --seed -1", "--seed"),
    ("monitors study --data mnist=CASES", "expected the four files"),
    ("monitors study --invalid CASES", "only with --data mnist=FOLDER"),
)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("given")
    items = read_coco(rendered(root / "data", [3], (320, 240), "png", stickers=3))
    for case in ("clean", "occlusion"):
        write_coco(root / "cases" / case, abnormal_scenes(items, case, 1, None, "png"))
    sizes = {"width": 1, "height": 1}
    entries = [{"id": n, "file_name": name, **sizes} for n, name in enumerate(("a/1.jpg", "b/1.jpg"))]
    write_annotations(root, "two of one name", entries, [])
    return {"DATA": root / "data", "CASES": root / "cases", "TWICE": root}


@pytest.mark.parametrize(("command", "message"), REFUSED)
def test_what_cannot_be_used_is_named(places, tmp_path, command, message):
    given = (
        command if "OUT" in command or command.startswith(("evaluate", "audit")) else f"{command} --out OUT"
    )
    for word, path in (places | {"OUT": tmp_path / "out"}).items():
        given = given.replace(word, str(path))
    result = CliRunner().invoke(app, given.split(), env={"COLUMNS": "500"})
    assert result.exit_code == 2, result.output
    assert message in " ".join(result.output.split())
    assert "Traceback" not in result.output
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
