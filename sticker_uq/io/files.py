# SPDX-License-Identifier: Apache-2.0
"""Atomic file writes, the files of a folder, checks of the places that results go to, before the work that makes them, and
removal of what an earlier run wrote there.
"""

import getpass
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import IO, Any

from sticker_uq.scene import InvalidInput

MOST_FILES = 1_000_000
"""Files of a folder that is searched."""
_UNFINISHED: dict[object, Callable[[], None]] = {}
_UNDOING = threading.RLock()
_HIDDEN = {"thumbs.db", "ehthumbs.db", "desktop.ini", "__macosx", "@eadir", "contact_sheet.jpg"}
"""Names that Windows, macOS, network drives and `dataset import` leave behind, in lower case."""


@contextmanager
def atomic_write(path: str | os.PathLike[str], mode: str = "wb") -> Iterator[IO[Any]]:
    """Open a temporary file beside `path` and rename it to `path` once the block succeeded.

    `mode` is "wb" or "w" (UTF-8). The data is synced to disk before the rename, so a reader sees the old file or the complete
    new one. When the block or the disk fails (OSError: disk full, no permission, no such folder) the temporary file is removed,
    an older file at `path` stays as it was and the error propagates.
    """
    target = Path(path)
    with ExitStack() as unless_finished:
        with _UNDOING:  # no file is begun while others are undone
            descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
            unless_finished.enter_context(undone_unless_finished(partial(Path(name).unlink, missing_ok=True)))
        try:
            with open(descriptor, mode, encoding=None if "b" in mode else "utf-8") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:  # of a full disk it does not say where
            error.filename = error.filename or os.fspath(path)
            raise
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)  # mkstemp creates files that only their owner can read
        os.replace(name, target)


def write_file(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write ``content`` to ``path``, whole or not at all, as :func:`atomic_write` does."""
    with atomic_write(path, "w" if isinstance(content, str) else "wb") as stream:
        stream.write(content)


@contextmanager
def undone_unless_finished(undo: Callable[[], None]) -> Iterator[None]:
    """Call ``undo`` if the block raises, or if :func:`undo_unfinished` is called in it."""
    key = object()
    _UNFINISHED[key] = undo
    try:
        yield
    except BaseException:
        _undo(key)
        raise
    del _UNFINISHED[key]


def _undo(key: object) -> None:
    with _UNDOING:  # what another thread has begun to undo is awaited
        if key in _UNFINISHED:
            _UNFINISHED[key]()
            del _UNFINISHED[key]


def undo_unfinished() -> None:
    """Undo, the innermost first, what :func:`undone_unless_finished` has begun: the process is about to be ended."""
    with _UNDOING:
        for key in reversed(list(_UNFINISHED)):
            with suppress(OSError, InvalidInput):  # what cannot be undone must not keep the others
                _undo(key)


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def files_in(folder: Path, below: bool = False) -> list[Path]:
    """The files in ``folder``, or ``below`` it, by name, without hidden ones.

    InvalidInput for more than :data:`MOST_FILES` files and for a folder that cannot be listed.
    """
    found: list[Path] = []
    seen = {os.path.realpath(folder)}
    for here, inner, files in os.walk(folder, onerror=_refuse, followlinks=True):
        chosen = sorted(name for name in inner if below and not _is_hidden(name))
        inner.clear()
        for name in chosen:  # links to folders may form a circle
            real = os.path.realpath(os.path.join(here, name))
            inner += [name] if real not in seen else []
            seen.add(real)
        found += [Path(here, name) for name in sorted(files) if not _is_hidden(name)]
        if len(found) > MOST_FILES:
            raise InvalidInput(
                f"{folder}: has more than {MOST_FILES} files; expected the folder of a data set"
            )
    return found


def _refuse(error: OSError) -> None:
    raise InvalidInput(f"{error.filename}: the folder cannot be listed ({error.strerror})")


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name.lower() in _HIDDEN


def whereabouts() -> dict[str, Any]:
    """Which process this is: host, user and number."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = str(os.getuid())
    return {"host": socket.gethostname(), "user": user, "pid": os.getpid()}


def check_output_file(path: Path, name: str = "") -> None:
    """Raise :class:`InvalidInput`, naming ``name`` (default: ``path``), unless the file can be written in an existing folder."""
    name = name or str(path)
    if _is_dir(path, name):
        raise InvalidInput(f"{name}: is a folder, expected the name of a file")
    if path.exists() and not path.is_file():  # writing atomically would put a file in the place of a device
        raise InvalidInput(f"{name}: is no regular file; choose another name")
    if not (folder := path.parent).is_dir():
        raise InvalidInput(f"{name}: the folder {folder} does not exist; create it or choose another one")
    _check_writable(folder, name)


def check_output_folder(path: Path, name: str = "", empty: bool = False) -> None:
    """Raise :class:`InvalidInput`, which calls the place ``name`` (default: ``path``), unless files can be written below it.

    The folder and those above it may be missing. With ``empty`` it must be, or hold nothing. Nothing is created or changed.
    """
    name = name or str(path)
    if _is_dir(path, name):
        _check_writable(path, name)
        if empty and any(path.iterdir()):
            raise InvalidInput(f"{name}: not an empty folder; choose another one or remove it")
        return
    if os.path.lexists(path):
        raise InvalidInput(f"{name}: is no folder; choose another name")
    above = next(folder for folder in path.absolute().parents if os.path.lexists(folder))
    if not above.is_dir():
        raise InvalidInput(f"{name}: {above} is no folder; choose another name")
    _check_writable(above, name)


def check_result_folder(folder: Path, patterns: Iterable[str], name: str, overwrite: bool) -> None:
    """Raise :class:`InvalidInput`, which calls the folder ``name``, unless it is new or empty, and can be written to.

    With ``overwrite`` it may hold what an earlier run wrote, see :func:`remove_earlier_result`. Nothing is created or changed.
    """
    check_output_folder(folder, name)
    if overwrite:
        _earlier_result(folder, patterns, name)
    elif folder.is_dir() and any(folder.iterdir()):
        raise InvalidInput(
            f"{name}: not an empty folder; choose another one, or give --overwrite to replace what an earlier run wrote there"
        )


@contextmanager
def whole_folder(out: Path) -> Iterator[Path]:
    """A new folder beside ``out`` that takes its place when the block succeeds, and is removed when it fails.

    ``out`` must be missing or empty, and is created with the folders above it. A mount point, whose place nothing can take, gets
    what is in the new folder.
    """
    out = out.resolve()
    out.parent.mkdir(parents=True, exist_ok=True)
    mounted = out.is_mount()
    folder = Path(mkdtemp(dir=out if mounted else out.parent, prefix=f".{out.name}.", suffix=".tmp"))
    with undone_unless_finished(partial(shutil.rmtree, folder, ignore_errors=True)):
        yield folder
        folder.chmod(0o755)
        if not mounted:
            folder.replace(out)
            return
        for made in sorted(folder.iterdir()):
            made.replace(out / made.name)
        folder.rmdir()


def remove_earlier_result(folder: Path, patterns: Iterable[str], name: str = "") -> None:
    """Remove from ``folder`` the files that an earlier run wrote: those that match ``patterns`` (globs, relative to it).

    Raises :class:`InvalidInput`, which calls the folder ``name`` (default: its path), and removes nothing when there is
    anything else in it: a file of another name, a link, a folder that would not become empty.
    """
    written, emptied = _earlier_result(folder, patterns, name)
    for file in written:
        file.unlink(missing_ok=True)
    for inner in sorted(emptied, reverse=True):  # the deepest first
        inner.rmdir()


def _earlier_result(folder: Path, patterns: Iterable[str], name: str) -> tuple[set[Path], set[Path]]:
    """Files that an earlier run wrote to ``folder``, and the folders below it that hold nothing else."""
    written = {file for pattern in patterns for file in folder.glob(pattern) if _is_own(folder, file)}
    own = [folder / Path(pattern).parent for pattern in patterns]
    emptied = {above for file in written for above in file.parents if folder in above.parents}
    emptied |= {inner for inner in own if inner != folder and inner.is_dir() and not inner.is_symlink()}
    foreign = sorted(set(folder.rglob("*")) - written - emptied)
    if foreign:
        raise InvalidInput(
            f"{name or folder}: holds {foreign[0].relative_to(folder)}, which no earlier run wrote; choose another folder"
        )
    return written, emptied


def _is_own(folder: Path, file: Path) -> bool:
    inner = (above for above in file.parents if folder in above.parents)
    return file.is_file() and not any(path.is_symlink() for path in (file, *inner))


def _is_dir(path: Path, name: str) -> bool:
    try:
        return path.is_dir()
    except OSError as error:  # above it is a folder that must not be entered
        raise InvalidInput(f"{name}: {error.strerror}") from None


def _check_writable(folder: Path, name: str) -> None:
    # Effective ids: with sudo -u they differ from the real ones. A read-only disk answers no even to root.
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        raise InvalidInput(f"{name}: no permission to write to {folder}")
