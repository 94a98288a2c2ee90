# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq dataset generate``: pictures from prompts by an image generator."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from sticker_uq.cli.options import output_folder
from sticker_uq.lab.datasets.generating import Limits, generate_pictures
from sticker_uq.lab.datasets.generators import Generator, RenderedGenerator
from sticker_uq.lab.datasets.prompts import read_prompts
from sticker_uq.scene import InvalidInput

KEYS = {"openai": "OPENAI_API_KEY", "stability": "STABILITY_API_KEY"}
GENERATORS = ("rendered", *KEYS, "diffusers")


def command(
    prompts: Annotated[Path, typer.Option(help="File of `dataset prompts`.")],
    out: Annotated[Path, output_folder("Folder for images/ and manifest.jsonl, new or to be continued.")],
    generator: Annotated[
        str,
        typer.Option(
            help=f"{', '.join(GENERATORS)}. Keys come from {' and '.join(KEYS.values())} in the environment."
        ),
    ] = "rendered",
    model: Annotated[
        str, typer.Option(help="Model of the generator; default: the paper's or its successor.")
    ] = "",
    base_url: Annotated[
        str, typer.Option(help="Base URL of another server with the API of the service.")
    ] = "",
    count: Annotated[
        int | None, typer.Option(help="Stop at this number of pictures in --out; default: all prompts.")
    ] = None,
    price: Annotated[
        float | None, typer.Option(help="Price of a request, in any currency; required by --max-cost.")
    ] = None,
    max_cost: Annotated[
        float | None, typer.Option(help="Stop before the total cost of all requests for --out exceeds this.")
    ] = None,
    attempts: Annotated[int, typer.Option(help="Requests per prompt before it counts as failed.")] = 5,
    timeout: Annotated[float, typer.Option(help="Timeout of a request, s.")] = 120.0,
) -> None:
    """Generate pictures from prompts. The same command resumes after an interruption. Exit status 1 when prompts failed."""
    if count is not None and count < 1:
        raise InvalidInput(f"--count {count}: expected 1 or more")
    for option, value in (("--price", price), ("--max-cost", max_cost)):
        if value is not None and not 0 <= value < float("inf"):
            raise InvalidInput(f"{option} {value}: expected 0 or more")
    if max_cost is not None and not price:
        raise InvalidInput(f"--max-cost {max_cost}: expected --price PRICE_OF_A_REQUEST above 0 with it")
    if not 1 <= attempts <= 20:
        raise InvalidInput(f"--attempts {attempts}: expected 1 to 20")
    if not 0 < timeout < float("inf"):
        raise InvalidInput(f"--timeout {timeout}: expected more than 0")
    asked = read_prompts(prompts)
    source = _generator(generator, model, base_url, timeout)
    limits = Limits(count, price or 0.0, max_cost, attempts)
    columns = (TextColumn("generating"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=len(asked))
        outcome = generate_pictures(out, asked, source, limits, lambda: bar.advance(task))
    cost = f", cost at most {outcome.spent:.2f}" if outcome.spent else ""
    typer.echo(f"{outcome.done} pictures in {out}; {outcome.refused} refused, {outcome.failed} failed{cost}")
    if outcome.stopped:
        typer.echo(f"stopped at {outcome.stopped}")
    if outcome.failed:
        raise typer.Exit(1)


def _generator(name: str, model: str, base_url: str, timeout: float) -> Generator:
    if name not in GENERATORS:
        raise InvalidInput(f"--generator {name!r}: expected {', '.join(GENERATORS)}")
    if base_url and name not in KEYS:
        raise InvalidInput(f"--base-url: the generator {name} uses no server")
    given = {"model": model} if model else {}
    if name == "rendered":
        if model:
            raise InvalidInput(f"--model {model}: the generator rendered has no models")
        return RenderedGenerator()
    if name == "diffusers":
        from sticker_uq.cli.diffusion import DiffusersGenerator

        return DiffusersGenerator(**given)
    key = os.environ.get(KEYS[name], "").strip()
    if not key:
        raise InvalidInput(f"--generator {name}: expected its key in the environment variable {KEYS[name]}")
    # only the services need httpx
    from sticker_uq.lab.datasets.image_services import OpenAIGenerator, StabilityGenerator

    if base_url:
        given["base_url"] = base_url
    service = OpenAIGenerator if name == "openai" else StabilityGenerator
    return service(key, timeout=timeout, **given)
