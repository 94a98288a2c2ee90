# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq dataset prompts``: prompts for image generators."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sticker_uq.cli.options import output_file
from sticker_uq.io.files import atomic_write
from sticker_uq.lab.datasets.prompts import PACKAGED_TEMPLATE, PromptTemplate, checked_format, write_prompts
from sticker_uq.scene import InvalidInput


def command(
    out: Annotated[Path | None, output_file("File to write the prompts to: .jsonl or .csv.")] = None,
    count: Annotated[int, typer.Option(help="How many prompts.")] = 150,
    seed: Annotated[int, typer.Option(help="Seed of the first prompt; prompt i has seed + i.")] = 0,
    template: Annotated[
        Path, typer.Option(help="YAML file with the phrases.", show_default="the packaged one")
    ] = PACKAGED_TEMPLATE,
    write_template: Annotated[
        Path | None, output_file("Write the phrases to this YAML file for editing.")
    ] = None,
) -> None:
    """Sample prompts for pictures of laptops with stickers (Lu et al., Table 1), for an image generator."""
    if out is None and write_template is None:
        raise InvalidInput("expected --out FILE for prompts, or --write-template FILE for the phrases")
    if count < 1:
        raise InvalidInput(f"--count {count}: expected 1 or more")
    if seed < 0:
        raise InvalidInput(f"--seed {seed}: expected 0 or more")
    if out is not None:
        checked_format(out)
    phrases = PromptTemplate.load(template)
    if write_template is not None:
        if write_template.exists():
            raise InvalidInput(f"--write-template {write_template} exists already")
        with atomic_write(write_template) as stream:
            stream.write(template.read_bytes())
        typer.echo(f"phrases in {write_template}")
    if out is not None:
        write_prompts(out, (phrases.draw(seed + index, index) for index in range(count)))
        typer.echo(f"{count} prompts in {out}")
