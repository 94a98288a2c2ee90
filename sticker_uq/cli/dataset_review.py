# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq dataset review``: manual selection of the realistic ones among generated pictures."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from sticker_uq.cli.options import output_folder
from sticker_uq.lab.datasets.reviewing import Review
from sticker_uq.scene import InvalidInput

_HOST = "127.0.0.1"


def command(
    folder: Annotated[
        Path, typer.Argument(help="Folder of `dataset generate`, or any with pictures in images/.")
    ],
    kept: Annotated[
        Path | None, output_folder("Folder to copy the kept pictures to when the review ends.")
    ] = None,
    port: Annotated[int, typer.Option(help="Port of the local web page; 0: any free one.")] = 0,
) -> None:
    """Review pictures on a local web page. Ctrl-C ends the review; the same command resumes it."""
    import uvicorn

    from sticker_uq.cli.review_app import make_app

    if not 0 <= port <= 65535:
        raise InvalidInput(f"--port {port}: expected 0 to 65535")
    if kept is not None and kept.resolve() == folder.resolve():
        raise InvalidInput(f"--kept {kept}: expected another folder than {folder}")
    review = Review(folder)
    config = uvicorn.Config(make_app(review), _HOST, port, log_level="warning")
    try:
        socket = config.bind_socket()
    except SystemExit:
        raise InvalidInput(f"--port {port}: already in use or not permitted, expected a free port") from None
    socket.listen()  # a browser that connects before the server runs waits instead of being refused
    typer.echo(
        f"http://{_HOST}:{socket.getsockname()[1]}/ shows {len(review.pictures)} pictures; Ctrl-C ends"
    )
    server = uvicorn.Server(config)
    with contextlib.suppress(KeyboardInterrupt):  # uvicorn has shut down by then and re-raises the signal
        server.run([socket])
    typer.echo(
        f"{review.count('keep')} kept, {review.count('drop')} dropped, {review.count('undecided')} to decide"
    )
    if kept is not None:
        typer.echo(f"{review.export(kept)} pictures in {kept / 'images'}")
