# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq dataset generate`` and ``review``: pictures from prompts, and which of them are realistic."""

from pathlib import Path
from typing import Literal

import typer

from sticker_uq.cli import option
from sticker_uq.cli.options import output_folder
from sticker_uq.cli.terminal import make_progress_bar
from sticker_uq.io.stopping import resumable
from sticker_uq.scene import InvalidInput
from sticker_uq_lab.datasets.generating import (
    MODELS,
    diffusers_client,
    generate_pictures,
    openai_client,
    read_prompts,
)


def generate(
    prompts: Path = option(..., "File of `dataset prompts`."),
    out: Path = output_folder(
        ..., "Folder for pictures/ and manifest.jsonl; the same command resumes in it."
    ),
    client: Literal["openai", "diffusers"] = option(
        "openai",
        "openai: OpenAI's images API, with the key in OPENAI_API_KEY; diffusers: a model on this machine.",
    ),
    model: str = option(
        "", "Model of the service; of diffusers a folder or a published name. Default: the paper's."
    ),
    base_url: str | None = option(
        None, "Server with OpenAI's images API. Default: OPENAI_BASE_URL, else OpenAI's."
    ),
) -> None:
    """Make a picture of each prompt; manifest.jsonl names prompt, model and seed of each (Lu et al., Section 3.3).

    Needs `pip install './sticker_uq_lab[generate]'`. OpenAI charges for each picture, and takes no seed.
    """
    if base_url is not None and client != "openai":
        raise InvalidInput(f"--base-url {base_url}: expected none with --client {client}")
    asked, model = read_prompts(prompts), model or MODELS[client]
    make = openai_client(model, base_url) if client == "openai" else diffusers_client(model)
    resumable("the same call resumes", out)
    with make_progress_bar() as bar:
        task = bar.add_task("generating", total=len(asked))
        refused = generate_pictures(out, asked, model, make, lambda: bar.advance(task))
    typer.echo(f"{len(asked) - refused} pictures in {out / 'pictures'}, {refused} refused")


def review(
    folder: Path = typer.Argument(..., help="Folder of `dataset generate`, or any with pictures/."),
    port: int = option(0, "Port of the page on this machine; 0: any free one.", min=0, max=65535),
) -> None:
    """Say of each picture on a local page whether it is realistic: it moves to kept/ or dropped/. Ctrl-C ends."""
    import uvicorn

    from sticker_uq_lab.datasets.reviewing import count, review_app

    config = uvicorn.Config(review_app(folder), "127.0.0.1", port, log_level="warning")
    try:
        socket = config.bind_socket()
    except SystemExit:
        raise InvalidInput(f"--port {port}: in use or not allowed, expected a free one") from None
    socket.listen()  # a browser that is faster than the server waits
    typer.echo(f"http://127.0.0.1:{socket.getsockname()[1]}/ shows {folder}; Ctrl-C ends")
    try:
        uvicorn.Server(config).run([socket])
    finally:
        typer.echo(", ".join(f"{number} in {place}" for place, number in count(folder).items()))
