"""``sticker-uq dataset review``: a person keeps the realistic ones of generated pictures and drops the others."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from sticker_uq.lab.datasets.reviewing import Review
from sticker_uq.scene import InvalidInput

_HOST = "127.0.0.1"


def command(
    folder: Annotated[
        Path, typer.Argument(help="Folder of `dataset generate`, or any with pictures in images/.")
    ],
    kept: Annotated[
        Path | None, typer.Option(help="Folder to copy the pictures to that are kept, when the review ends.")
    ] = None,
    port: Annotated[int, typer.Option(help="Port of the page on this machine; 0: any free one.")] = 0,
) -> None:
    """Show every picture on a page of this machine, to be kept or dropped. Ctrl-C ends it; the same command goes on."""
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
        raise InvalidInput(f"--port {port}: cannot be listened on, expected a free port") from None
    socket.listen()  # a browser that comes before the server runs waits instead of being turned away
    typer.echo(
        f"http://{_HOST}:{socket.getsockname()[1]}/ shows {len(review.pictures)} pictures; Ctrl-C ends"
    )
    server = uvicorn.Server(config)
    with contextlib.suppress(KeyboardInterrupt):  # uvicorn has closed by then and hands the signal on
        server.run([socket])
    typer.echo(
        f"{review.count('keep')} kept, {review.count('drop')} dropped, {review.count('undecided')} to decide"
    )
    if kept is not None:
        typer.echo(f"{review.export(kept)} pictures in {kept / 'images'}")
