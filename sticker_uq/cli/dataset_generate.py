# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq dataset generate``: pictures from prompts by an image service."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from sticker_uq.cli.options import output_folder
from sticker_uq.cli.terminal import counting
from sticker_uq.lab.datasets.prompts import read_prompts
from sticker_uq.scene import InvalidInput

KEYS = {"openai": "OPENAI_API_KEY", "stability": "STABILITY_API_KEY"}
GENERATORS = (*KEYS, "diffusers")


def command(
    prompts: Annotated[Path, typer.Option(help="File of `dataset prompts`.")],
    out: Annotated[Path, output_folder("Folder for images/, new or to be continued.")],
    generator: Annotated[
        str,
        typer.Option(
            help=f"{', '.join(GENERATORS)}. Keys come from {' and '.join(KEYS.values())} in the environment."
        ),
    ],
    model: Annotated[
        str, typer.Option(help="Model of the generator; default: the paper's or its successor.")
    ] = "",
    base_url: Annotated[
        str, typer.Option(help="Base URL of another server with the API of the service.")
    ] = "",
    count: Annotated[
        int | None, typer.Option(help="Only the first prompts, which bounds the cost; default: all.")
    ] = None,
    timeout: Annotated[float, typer.Option(help="Timeout of a request, s.")] = 120.0,
) -> None:
    """Generate pictures from prompts. The same command resumes after an interruption."""
    # only this command needs httpx
    from sticker_uq.lab.datasets import image_services as services

    if count is not None and count < 1:
        raise InvalidInput(f"--count {count}: expected 1 or more")
    if not 0 < timeout < float("inf"):
        raise InvalidInput(f"--timeout {timeout}: expected more than 0")
    if generator not in GENERATORS:
        raise InvalidInput(f"--generator {generator!r}: expected {', '.join(GENERATORS)}")
    if base_url and generator not in KEYS:
        raise InvalidInput(f"--base-url: the generator {generator} uses no server")
    asked = read_prompts(prompts)
    number = len(asked[:count])
    given = {"model": model} if model else {}
    if generator == "diffusers":
        generate = services.diffusers(**given)
    else:
        key = os.environ.get(KEYS[generator], "").strip()
        if not key:
            raise InvalidInput(
                f"--generator {generator}: expected its key in the environment variable {KEYS[generator]}"
            )
        url, client = {
            "openai": (services.OPENAI_URL, services.openai),
            "stability": (services.STABILITY_URL, services.stability),
        }[generator]
        generate = client(services.Service(base_url or url, key, timeout), **given)
    with counting() as bar:
        task = bar.add_task("generating", total=number)
        name = f"{generator}:{model or 'default'}"
        refused = services.generate_pictures(out, asked, name, generate, count, lambda: bar.advance(task))
    typer.echo(f"{number - refused} pictures in {out}; {refused} prompts refused")
