# SPDX-License-Identifier: Apache-2.0
"""What the detector computes on a GPU and how long it takes, beside complete torchvision passes on the same device.

    OMP_NUM_THREADS=2 python -m benchmarks.gpu --out benchmarks/results/gpu.jsonl      rows are added to the file
    python -m benchmarks.tables                                                        the tables of docs/gpu.md

Needs neither ROS nor pytest nor a network. Each part runs in a process of its own, for each model where it is about one, and a
crash loses that part alone; `--parts`, `--models` and `--precisions` run some of them again, and what a part said last
counts.
`--device cpu` tries the program where there is no GPU.

environment: versions, device, copies in GB/s. kernels: masks, order and suppression, equal to the processor's bit for bit or not;
pixels and pooling, largest difference. agreement: per precision, the passes against the processor's in float32 with the same
masks (share of boxes matched with IoU >= 0.9 and the same label, differences of scores), whether they repeat, all passes at once
against one by one, the gradients of DiL and whether these repeat, whether NaN is found, and whether torch's masks and modules on
shared features give the boxes of complete passes bit for bit. speed: per precision, ms with everything awaited (p50, p95, p99), T
complete passes over the engine's encode and T passes, interleaved, kernels and GPU milliseconds of these, peak memory, waits for
the GPU, and whether three assessments of one image are the same bytes. graphs: per precision, encode, passes and assessment
without and with CUDA graphs (the setting `graphs`), whether passes and whole assessments are the same bytes, and which stages
could not be captured. compiled: encode by torch.compile(mode="reduce-overhead"), for a person who decides.
SSDLite has its packaged weights, and with them the novelty network; the others have random ones.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

from benchmarks.gpu_parts import OF_A_MODEL, PARTS, Row
from benchmarks.result_files import argument_parser, result_file
from sticker_uq.detection import MODEL_NAMES, DetectorSettings
from sticker_uq.detection.detector import name_of, resolve_device
from sticker_uq.detection.settings import Precision
from sticker_uq.scene import InvalidInput


def main() -> int:
    """Run the parts, add their rows to the file and print them. Returns the exit status: 1 if a part failed, 2 for bad input."""
    arguments = _arguments()
    if arguments.only:
        arguments.result.write_text(json.dumps(PARTS[arguments.only](arguments)))
        return 0
    try:
        name = name_of(resolve_device(arguments.device))
    except InvalidInput as error:
        print(
            f"error: {error}; `sticker-uq doctor` says why no GPU is found, --device cpu tries this program",
            file=sys.stderr,
        )
        return 2
    work = [
        (part, model)
        for part in arguments.parts
        for model in (arguments.models if part in OF_A_MODEL else [""])
    ]
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for part, model in work:
            started = time.monotonic()
            outcome = _in_a_process(part, model, arguments, Path(folder))
            failed += "error" in outcome
            row = {
                "part": part,
                "model": model,
                "device": name,
                "passes": arguments.passes,
                "min_size": arguments.min_size,
                "seconds": round(time.monotonic() - started, 1),
            } | outcome
            line = json.dumps(row)
            with arguments.out.open("a", encoding="utf-8") as stream:
                stream.write(line + "\n")
            print(line, flush=True)
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    parser = argument_parser(__doc__)
    parser.add_argument(
        "--out", type=result_file, required=True, help="file of JSON lines that rows are added to"
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=PARTS)
    parser.add_argument("--models", nargs="*", default=list(MODEL_NAMES), choices=MODEL_NAMES)
    parser.add_argument(
        "--precisions", nargs="*", choices=get_args(Precision), help="of those that the device has; all"
    )
    parser.add_argument("--passes", type=int, default=DetectorSettings().passes)
    parser.add_argument("--min-size", type=int, default=DetectorSettings().min_size)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--limit", type=float, default=600.0, help="most seconds of a part")
    parser.add_argument("--only", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def _in_a_process(part: str, model: str, arguments: argparse.Namespace, folder: Path) -> Row:
    """What ``part`` measured, or the "error" that ended it. ``folder`` keeps weights for the next part."""
    result = folder / "result.json"
    result.unlink(missing_ok=True)
    command = [sys.executable, "-m", "benchmarks.gpu", "--only", part, "--result", str(result)]
    for option in ("out", "device", "passes", "min_size", "rounds"):
        command += [f"--{option.replace('_', '-')}", str(getattr(arguments, option))]
    if model:
        command += ["--models", model]
    if arguments.precisions:
        command += ["--precisions", *arguments.precisions]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=arguments.limit)
    except subprocess.TimeoutExpired:
        return {"error": f"took longer than {arguments.limit:g} s"}
    if done.returncode or not result.exists():
        said = done.stderr.strip().splitlines()[-1:] or ["nothing"]
        return {"error": f"exit status {done.returncode}: {said[0]}"}
    found: Row = json.loads(result.read_text())
    return found


def read(path: Path) -> list[Row]:
    """The rows of a result file, joined for each part and model of one device; what was said last counts. None without a file."""
    if not path.exists():
        return []
    joined: dict[tuple[str, str], Row] = {}
    for row in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        before = joined.get((row["part"], row["model"]), {})
        kept = {name: value for name, value in before.items() if name != "error"}
        joined[row["part"], row["model"]] = (kept if before.get("device") == row["device"] else {}) | row
    return list(joined.values())


def table(rows: Iterable[Mapping[str, Any]]) -> str:
    """The table of docs/gpu.md: a line per model and precision, "not measured" where nothing is."""
    rows = list(rows)
    agreements = {row["model"]: row for row in rows if row["part"] == "agreement"}
    speeds = {row["model"]: row for row in rows if row["part"] == "speed"}
    device = next((row["device"] for row in rows), "model")
    heads = (
        "precision", "encode, ms", "passes, ms", "DiL, ms", "assessment p50 / p95 / p99, ms", "images/s",
        "complete passes / engine", "kernels", "GPU, ms", "memory, MB", "waits", "matched", "repeats",
    )  # fmt: skip
    lines = [f"| {device} | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    for model in dict.fromkeys([*speeds, *agreements]):
        of_speed, of_agreement = speeds.get(model, {}), agreements.get(model, {})
        for precision in get_args(Precision):
            costs, same = of_speed.get(precision), of_agreement.get(precision)
            if costs or same:
                lines.append(f"| {model} | {precision} | {' | '.join(_cells(costs or {}, same or {}))} |")
        for row in (of_speed, of_agreement):
            if "error" in row:
                lines.append(f"| {model} | {row['part']}: {row['error'].replace('|', '/')} |" + " |" * 12)
    if len(lines) == 2:
        lines.append("| not measured |" + " |" * len(heads))
    return "\n".join(lines)


def _cells(costs: Mapping[str, Any], same: Mapping[str, Any]) -> list[str]:
    def number(name: str, digits: int = 1) -> str:
        value = costs.get(name)
        value = value.get("p50") if isinstance(value, Mapping) else value
        return "" if value is None else f"{value:.{digits}f}"

    assessment = costs.get("assessment", {})
    return [
        number("encode"),
        number("passes"),
        number("dil"),
        " / ".join(f"{value:.1f}" for value in assessment.values()),
        number("images_per_s"),
        number("ratio", 2),
        number("kernels", 0),
        number("gpu_ms"),
        number("peak_mb", 0),
        number("waits", 0),
        f"{same['matched']:.1%}" if same else "",
        ("yes" if costs["repeats"] else "no") if "repeats" in costs else "",
    ]


if __name__ == "__main__":
    sys.exit(main())
