# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq ask``: a page that asks yes or no about what could be released, in place of labels for ``calibrate``."""

import signal
from contextlib import closing, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path

import typer

from sticker_uq.calibration.answers import About, AnswerFile
from sticker_uq.calibration.asked import AskedPictures
from sticker_uq.calibration.fitting import take_over
from sticker_uq.calibration.making import see_sources
from sticker_uq.cell.node_settings import NODE_ONLY
from sticker_uq.cli import option
from sticker_uq.cli.calibrate import CACHE
from sticker_uq.cli.options import Jobs, RayAddress, settings_options
from sticker_uq.cli.terminal import make_progress_bar, tell_of_source
from sticker_uq.console.asking import Asking, serve
from sticker_uq.console.server import ConsoleSettings, access_of
from sticker_uq.gate import Policy
from sticker_uq.io.stopping import take_time_to_end
from sticker_uq.perception import PerceptionSettings
from sticker_uq.scene import InvalidInput


@settings_options("settings", PerceptionSettings, "detector", also_known=NODE_ONLY)
def command(
    settings: PerceptionSettings,
    data: Path = option(
        ..., "Folder of pictures without labels, one of each laptop; answers.jsonl in it gets the answers."
    ),
    base: Path = option(..., "Policy with the score that `calibrate --fit-share 0` is to prove, as there."),
    host: str = option("127.0.0.1", "Address to listen on; other than loopback needs --token-file."),
    port: int = option(8781, "TCP port of the page; 0: any free one.", min=0, max=65535),
    token_file: str = option(
        "", "File with the token that everybody signs in with, made when it is missing."
    ),
    cache: Path = option(CACHE, "File that caches assessments between runs."),
    jobs: Jobs = 0,
    ray_address: RayAddress = "",
) -> None:
    """Ask a person about each laptop which boxes take a sticker, and whether any other is on it. Ctrl-C ends, the same command
    resumes.

    `sticker-uq calibrate --data FOLDER --fit-share 0 --base POLICY` proves a policy with the answers.
    """
    policy = take_over(Policy.load(base), clean=False)
    reached = ConsoleSettings(host=host, port=port, token_file=token_file)
    access_of(reached)  # before the work
    source = AskedPictures(data)
    tell_of_source(source.path, source.remarks, "")
    with make_progress_bar() as bar:
        advance = partial(bar.advance, bar.add_task("assessing", total=len(source)))
        needed = policy.unmeasured_novelty == "ask"
        (seen,) = see_sources([source], settings, cache, advance, jobs, ray_address, needed)
    questions = source.questions(seen, policy)
    for before, question in pairwise(questions):
        if before.image == question.image:
            raise InvalidInput(
                f"{data}: {question.name} has the same pixels as {before.name}: expected every laptop once"
            )
    about = About.of(next(iter(seen.values())))
    take_time_to_end()
    with closing(AnswerFile(source.file, about)) as answers:
        asking = Asking(questions, answers)
        with suppress(KeyboardInterrupt), serve(asking, reached) as address:
            typer.echo(f"{asking.progress()}: {address} asks; Ctrl-C ends")
            while True:
                signal.pause()
        typer.echo(f"{asking.progress()}, in {source.file}")
