# SPDX-License-Identifier: Apache-2.0
"""Options of benchmarks; files and folders to write are checked before the measurement, which may take hours."""

import argparse
from pathlib import Path

from sticker_uq.io.files import check_output_file, check_output_folder
from sticker_uq.scene import InvalidInput


def argument_parser(doc: str | None) -> argparse.ArgumentParser:
    """A parser of options whose help begins with ``doc``, line by line as it is written."""
    return argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)


def result_file(text: str) -> Path:
    """``text`` as the path of a file that can be written, for ``type=`` of argparse; its folder is made."""
    try:
        return _file(Path(text))
    except (InvalidInput, OSError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def result_folder(text: str) -> Path:
    """``text`` as the path of a folder that can be written to, for ``type=`` of argparse."""
    try:
        check_output_folder(Path(text))
    except InvalidInput as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return Path(text)


def checked_file(path: Path | None) -> Path | None:
    """``path``, which can be written, for ``callback=`` of typer; its folder is made."""
    import typer  # here: a machine that measures a GPU may be without

    try:
        return None if path is None else _file(path)
    except (InvalidInput, OSError) as error:
        raise typer.BadParameter(str(error)) from None


def checked_folder(path: Path) -> Path:
    """``path``, which can be written to, for ``callback=`` of typer."""
    import typer

    try:
        check_output_folder(path)
    except InvalidInput as error:
        raise typer.BadParameter(str(error)) from None
    return path


def _file(path: Path) -> Path:
    check_output_folder(path.parent)
    path.parent.mkdir(parents=True, exist_ok=True)
    check_output_file(path)
    return path
