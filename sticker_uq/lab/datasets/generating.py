# SPDX-License-Identifier: Apache-2.0
"""Generates pictures from prompts, with retries, limits on number and cost, and resumption of interrupted runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sticker_uq.io.files import atomic_write
from sticker_uq.lab.datasets.generators import Generator, Refused, TryAgain, picture_suffix
from sticker_uq.lab.datasets.manifest import Entry, Manifest, open_manifest
from sticker_uq.lab.datasets.prompts import Prompt
from sticker_uq.scene import InvalidInput

IMAGES = "images"
_FIRST_WAIT = 1.0
_LONGEST_WAIT = 60.0
_LONGEST_ASKED_WAIT = 900.0
_FAILURES_IN_A_ROW = 3


@dataclass(frozen=True)
class Limits:
    """Where a run stops. Costs are in the currency of `price`."""

    pictures: int | None = None
    """Pictures in the folder, those of earlier runs included."""
    price: float = 0.0
    """Of one request."""
    cost: float | None = None
    """Of all requests, those of earlier runs included."""
    attempts: int = 5
    """Requests for one prompt in one run."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run."""

    done: int
    """Pictures in the folder."""
    refused: int
    failed: int
    spent: float
    stopped: str = ""
    """The limit that ended the run; empty when every prompt was processed."""


def generate_pictures(
    folder: Path,
    prompts: Sequence[Prompt],
    generator: Generator,
    limits: Limits,
    on_prompt: Callable[[], None] = lambda: None,
    sleep: Callable[[float], None] = time.sleep,
) -> Outcome:
    """Make a picture of every prompt in `folder`/images, with the manifest beside it.

    Prompts that have a picture or were refused are not requested again. `on_prompt` is called after each prompt.
    InvalidInput when the folder belongs to other prompts, when the service refuses the account or the request itself, or
    when it fails for three prompts in a row; finished pictures are kept, and the next run resumes.
    """
    if folder.exists() and not folder.is_dir():
        raise InvalidInput(f"{folder}: expected a folder, found a file")
    images = folder / IMAGES
    images.mkdir(parents=True, exist_ok=True)
    refused = failed = in_a_row = 0
    stopped = ""
    with open_manifest(folder) as manifest:
        for left in images.glob(
            ".[0-9][0-9][0-9][0-9][0-9].*.tmp"
        ):  # of a killed run: the lock excludes other writers
            left.unlink()
        before = [manifest.last(prompt, generator.name) for prompt in prompts]
        run = _Run(folder, manifest, generator, limits, sleep)
        for prompt, last in zip(prompts, before, strict=True):
            if last is not None and (
                last.status == "refused" or (last.status == "done" and (folder / last.file).is_file())
            ):
                refused += last.status == "refused"
                on_prompt()
                continue
            stopped = run.limit()
            if stopped:
                break
            status = run.ask(prompt, last.attempt if last else 0)
            refused += status == "refused"
            failed += status == "failed"
            in_a_row = in_a_row + 1 if status == "failed" else 0
            if in_a_row == _FAILURES_IN_A_ROW:
                raise InvalidInput(
                    f"{generator.name} failed for {in_a_row} prompts in a row, last: {run.reason}; "
                    "the same command resumes from here"
                )
            on_prompt()
        return Outcome(manifest.done, refused, failed, manifest.spent, stopped)


class _Run:
    """The requests of one run."""

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        generator: Generator,
        limits: Limits,
        sleep: Callable[[float], None],
    ) -> None:
        self._folder = folder
        self._manifest = manifest
        self._generator = generator
        self._limits = limits
        self._sleep = sleep
        self.reason = ""

    def limit(self) -> str:
        """The limit that forbids to generate one more picture; empty if none does."""
        limits, manifest = self._limits, self._manifest
        if limits.pictures is not None and manifest.done >= limits.pictures:
            return f"{limits.pictures} pictures"
        # tolerance for rounding in sums of prices such as 0.04
        if limits.cost is not None and manifest.spent + limits.price > limits.cost + 1e-9:
            return f"a cost of {manifest.spent:.2f}; another request would exceed {limits.cost:.2f}"
        return ""

    def ask(self, prompt: Prompt, asked: int) -> str:
        """Request one prompt until there is an answer; `asked` requests were made in earlier runs. Returns the last status."""
        for attempt in range(1, self._limits.attempts + 1):
            entry = Entry(
                index=prompt.index,
                seed=prompt.seed,
                prompt=prompt.prompt,
                generator=self._generator.name,
                attempt=asked + attempt,
                status="asked",
                cost=self._limits.price,
            )
            self._manifest.append(entry)
            try:
                self._manifest.append(self._answered(prompt, entry))
                return "done"
            except Refused as refusal:
                self._manifest.append(replace(entry, status="refused", cost=0.0, detail=str(refusal)))
                return "refused"
            except InvalidInput as error:
                self._manifest.append(replace(entry, status="failed", cost=0.0, detail=str(error)))
                raise
            except TryAgain as failure:
                self.reason = str(failure)
                wait = self._wait(failure, attempt)
                failed = wait is None or attempt == self._limits.attempts
                status, cost = "failed" if failed else "retry", entry.cost if failure.paid else 0.0
                self._manifest.append(replace(entry, status=status, cost=cost, detail=self.reason))
            if wait is None or failed or self.limit():
                break
            self._sleep(wait)
        return "failed"

    def _answered(self, prompt: Prompt, entry: Entry) -> Entry:
        """The manifest entry of a successful request, after its picture was written."""
        picture = self._generator.generate(prompt)
        file = f"{IMAGES}/{prompt.index:05d}{picture_suffix(picture.data)}"
        with atomic_write(self._folder / file) as stream:
            stream.write(picture.data)
        return replace(entry, status="done", file=file, detail=picture.revised_prompt)

    @staticmethod
    def _wait(failure: TryAgain, attempt: int) -> float | None:
        """Seconds until the next request; None when the service asks for more than the longest wait."""
        if failure.wait is None:
            return min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** (attempt - 1))
        return failure.wait if failure.wait <= _LONGEST_ASKED_WAIT else None
