# SPDX-License-Identifier: Apache-2.0
"""The demo end to end, small: a laptop through the whole cell over DDS, and its recording replayed byte for byte."""

import json
import os
import re
import subprocess
import sys

import cv2
import pytest
from PIL import Image
from typer.testing import CliRunner

import sticker_uq.cli as cli
import sticker_uq_lab.cli.demo as demo_command
from sticker_uq.evaluation.annotated_images import LARGEST_BYTES, LONGEST_S
from sticker_uq.evaluation.replay.recording import read_recording
from sticker_uq.gate import Policy
from sticker_uq.io.bags import Bag
from sticker_uq.io.files import check_result_folder
from sticker_uq.io.share import share_folder
from sticker_uq.testing.bench import run_bench
from sticker_uq_lab.simulation.comparison import Ledger
from sticker_uq_lab.simulation.simulated_cell import RECORDS
from test.helpers.cell import write_parameters
from test.helpers.models import small_weights

pytestmark = pytest.mark.timeout(600)  # four processes start, two of them load torch
SEED = 7
LIMITS = share_folder() / "config" / "limits.yaml"


def sticker_uq(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "sticker_uq.cli", *map(str, arguments)],
        env={**os.environ, **environment}, capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The folder of a demo with one laptop, and what the command printed."""
    folder = tmp_path_factory.mktemp("demo")
    params = write_parameters(folder, weights=str(small_weights(folder)))
    run = sticker_uq(
        "demo", "--laptops", 1, "--seed", SEED, "--out", folder / "out", "--params", params, "--timeout", 400,
        "--policy", LIMITS, ROS_LOG_DIR=str(folder / "log"), CI="1",
    )  # fmt: skip
    return folder, run


def test_it_ends_with_0_because_what_it_promises_is_true(demo):
    folder, run = demo
    assert run.returncode == 0, run.stdout + run.stderr
    assert "Traceback" not in run.stdout + run.stderr
    [truth] = json.loads((folder / "out" / "truth.json").read_text())
    assert truth["handed_over"]
    summary = json.loads((folder / "out" / "summary.json").read_text())
    assert summary["failures"] == []
    assert {"encode", "sample", "dil", "cluster", "total"} <= set(summary["ms"])
    lines = [line for line in run.stdout.splitlines() if line.strip()]
    before = " ".join(lines[: [line.startswith("live page: http://") for line in lines].index(True)])
    before = " ".join(before.split())
    assert re.fullmatch(
        rf"policy: {LIMITS}: guarantees nothing seed: {SEED} ROS domain: \d+"
        r"( an image takes .* the age that it allows)?",
        before,
    ), "with what it runs, what a slow machine changes, and nothing else"
    assert sum(line.startswith(truth["workpiece_id"]) for line in lines) == 1
    assert "[supervisor]" not in run.stdout


def test_the_headline_says_what_the_ground_truth_says(demo):
    folder, run = demo
    summary = json.loads((folder / "out" / "summary.json").read_text())["comparison"]
    [record] = RECORDS.validate_json((folder / "out" / "truth.json").read_bytes())
    score, gate = summary["score_threshold"], summary["gate"]
    assert Ledger(**gate) == Ledger.of([record], [gate["questions"]])
    assert (score["stickers"], score["questions"]) == (gate["stickers"], 0)
    html = (folder / "out" / "report.html").read_text()
    assert f"<h1>{summary['headline']}</h1>" in html
    assert summary["headline"] in " ".join(run.stdout.split())
    assert html.index("Where they differ") < html.index("laptop-7-1")
    domain = re.search(r"^ROS domain: (\d+)$", run.stdout, re.M)[1]
    shown = dict(re.findall(r"<dt>(policy|seed|ROS domain)</dt><dd>(.*?)</dd>", html))
    assert shown == {"policy": f"{LIMITS}: guarantees nothing", "seed": str(SEED), "ROS domain": domain}
    harmed = record.wrong or record.left
    [badge] = re.findall(r"<h2>laptop-7-1 <span class=\"badge \w+\">. (.*?)</span>", html)
    assert (badge == "clean and unharmed") == (not harmed), "the badge says the truth"


def test_it_leaves_a_report_pictures_and_a_recording(demo):
    folder, _ = demo
    html = (folder / "out" / "report.html").read_text()
    assert "laptop-7-1" in html
    assert "<script src" not in html
    with Image.open(folder / "out" / "demo.webp") as animation:
        assert 1 <= animation.n_frames <= LONGEST_S
    assert (folder / "out" / "demo.webp").stat().st_size <= LARGEST_BYTES
    pictures = sorted((folder / "out" / "pictures").glob("*.jpg"))
    assert pictures
    assert cv2.imread(str(pictures[0])).shape == (240, 320, 3)
    [laptop] = read_recording(Bag(folder / "out" / "bag")).laptops
    assert laptop.scenes
    assert laptop.left_ns


def test_the_next_demo_replaces_all_that_this_one_has_left(demo):
    folder, _ = demo
    check_result_folder(folder / "out", demo_command._FILES, "--out", overwrite=True)


def test_the_replay_of_its_recording_says_byte_for_byte_what_the_cell_said(demo):
    folder, _ = demo
    [laptop] = read_recording(Bag(folder / "out" / "bag")).laptops
    files = (folder / "out" / "bag", "--params", folder / "small_cell.yaml", "--out", folder / "replay")
    result = CliRunner().invoke(
        cli.app, ["replay", "--verify", "--pictures", "none", "--jobs", "1", *map(str, files)]
    )
    assert result.exit_code == 0, result.output
    assert f"{len(laptop.scenes)} of {len(laptop.scenes)}" in result.output


@pytest.mark.parametrize("person", ["ground_truth", "console"])
def test_whoever_answers_gets_hard_laptops_under_the_packaged_policy(tmp_path, monkeypatch, person):
    started = []
    monkeypatch.setattr(
        "sticker_uq_lab.cli.demo._run", lambda specs, *_: started.extend(specs) or ("not started", 0)
    )
    monkeypatch.setattr("sticker_uq_lab.cli.demo.measure_pace", lambda *_: 0.1)
    CliRunner().invoke(cli.app, ["demo", "--person", person, "--out", str(tmp_path / "out")])
    [policy] = [spec.parameters["policy"] for spec in started if spec.name == "supervisor"]
    assert Policy.load(policy) == Policy.load(share_folder() / "config" / "policy.yaml")
    [device] = [spec.parameters["device"] for spec in started if spec.name == "detector"]
    assert device == "cpu", "its guarantee does not hold for numbers of a graphics card"
    [simulation] = [spec.parameters for spec in started if spec.name == "cell_sim"]
    assert simulation["hard"] is True
    assert "console" in [spec.name for spec in started]


def test_other_parameters_do_not_swap_the_policy_for_one_without_a_guarantee(tmp_path):
    params = write_parameters(tmp_path)
    run = CliRunner().invoke(cli.app, ["demo", "--params", str(params), "--out", str(tmp_path / "out")])
    assert run.exit_code == 2
    assert "name one for yours with --policy" in " ".join(run.output.replace("│", " ").split())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("on_page", [True, False])
def test_what_a_person_has_answered_outlives_ctrl_c_and_what_is_removed_is_said(tmp_path, capsys, on_page):
    made = ["truth.json", "bag/bag.mcap", "audit/audit-000001.jsonl"]
    for name in made:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("[]")
    demo_command._end_unfinished(tmp_path, on_page)
    assert [(tmp_path / name).exists() for name in made] == [on_page] * 3
    said = capsys.readouterr().err
    assert said.startswith(f"kept: the recording {tmp_path / 'bag'}" if on_page else "removed")


@pytest.mark.parametrize(("given", "limits"), [([], []), (["--relief"], [0.05])])
def test_relief_is_measured_and_required_where_it_is_wanted(tmp_path, monkeypatch, given, limits):
    started = []
    monkeypatch.setattr(
        "sticker_uq_lab.cli.demo._run", lambda specs, *_: started.extend(specs) or ("not started", 0)
    )
    monkeypatch.setattr("sticker_uq_lab.cli.demo.measure_pace", lambda *_: 0.1)
    CliRunner().invoke(cli.app, ["demo", *given, "--out", str(tmp_path / "out")])
    parameters = {spec.name: spec.parameters for spec in started}
    assert [
        parameters["supervisor"][n] for n in ("min_relief_mm",) if n in parameters["supervisor"]
    ] == limits
    assert parameters["cell_sim"].get("relief", False) == bool(limits)


def test_it_refuses_a_domain_in_which_somebody_is_and_removes_nothing(ros_domain, tmp_path):
    (tmp_path / "report.html").write_text("an earlier one")
    with run_bench():
        run = CliRunner().invoke(cli.app, ["demo", "--domain", str(ros_domain), "--out", str(tmp_path)])
    assert run.exit_code == 2
    assert "somebody on this machine" in " ".join(run.output.replace("│", " ").split())
    assert (tmp_path / "report.html").exists()


class Cell:
    """Stands for the running cell: each look at it takes a second, and ``happens`` says what it has done by then."""

    def __init__(self, monkeypatch, out, happens):
        self.now, self.truth, self.happens = 0.0, out / "truth.json", happens
        self.write()
        monkeypatch.setattr(demo_command.time, "monotonic", lambda: self.now)

    def wait_for_exit(self, seconds):
        self.now += seconds
        return self.write()

    def write(self):
        removed, done, ended = self.happens(self.now)
        record = {
            "workpiece_id": "a", "seed": 1, "condition": "plain", "things": [], "motions_failed": removed,
            "handed_over": done,
        }  # fmt: skip
        self.truth.write_text(json.dumps([record]))
        return ended


@pytest.mark.parametrize(
    ("happens", "patience", "expected"),
    [
        (lambda now: (int(now // 90), False, ("cell_sim", 0) if now > 2000 else None), (None, 120, None), ("cell_sim", 0)),
        (lambda now: (min(int(now // 90), 5), False, None), (None, 120, None), "nothing was removed, answered or done for 120 s"),
        (lambda now: (int(now), now > 400, None), (None, 120, 330), ""),
        (lambda now: (int(now), False, None), (500, None, 330), "timeout after 500 s"),
        (lambda now: (0, False, ("supervisor", 1) if now > 5 else None), (None, None, None), ("supervisor", 1)),
    ],
    ids=["slow, but it goes on", "stands still", "time is over and one is done", "time is over and none is done", "dies"],
)  # fmt: skip
def test_the_end_counts_standstill_and_not_time(tmp_path, monkeypatch, happens, patience, expected):
    cell = Cell(monkeypatch, tmp_path, happens)
    ended = demo_command._wait(cell, tmp_path, demo_command.Patience(*patience))
    assert ended == expected if not isinstance(expected, str) or not expected else ended.startswith(expected)


def test_a_slow_machine_gets_fewer_laptops_and_older_scenes_and_says_so(tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(
        "sticker_uq_lab.cli.demo._run", lambda specs, *_: started.extend(specs) or ("not started", 0)
    )
    monkeypatch.setattr("sticker_uq_lab.cli.demo.measure_pace", lambda *_: 1.5)
    shown = CliRunner().invoke(cli.app, ["demo", "--out", str(tmp_path / "out")]).output
    parameters = {spec.name: spec.parameters for spec in started}
    assert parameters["cell_sim"]["laptops"] == 4
    assert parameters["cell_sim"]["rate"] == pytest.approx(1 / 2.25)
    assert parameters["supervisor"]["max_scene_age_s"] == 7.0
    assert "an image takes 2.2 s here: 4 laptops" in shown
