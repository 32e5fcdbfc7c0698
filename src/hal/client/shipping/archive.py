"""Extract what was collected of a job. A job has chosen the names in the archive, so nothing of it is believed.

Plain files are created, below one directory; nothing is written through a link, and no file replaces another one unless
that was asked for.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from hal.core.model.bundle import check_relative
from hal.core.model.errors import ConflictError, InternalError, shown

MODE: Final = 0o777
MAX_FILES: Final = 1_000_000


def extract(archive: IO[bytes], to: Path, *, replace: bool) -> Iterator[Path]:
    """Create the archive's files below a directory; gives each.

    Args:
        replace: also where a file is there already.
    Raises:
        ConflictError: a file is there, a link leads elsewhere, or it cannot be written; those before it were created.
        InternalError: the archive is none.
    """
    try:
        to.mkdir(parents=True, exist_ok=True)
        top = to.resolve()
        with tarfile.open(fileobj=archive, mode="r:") as tar:
            for count, member in enumerate(tar):
                if count >= MAX_FILES or not member.isreg() or member.issparse():
                    raise InternalError(f"'{shown(member.name)}' is not what a job's archive has")
                check_relative(member.name)
                source = tar.extractfile(member)
                assert source is not None
                yield _create(top, member, source, replace=replace)
    except tarfile.TarError as error:
        raise InternalError(f"the archive of a job cannot be read: {error}") from error
    except OSError as error:
        what = shown(str(error.filename)) if error.filename else "a file"
        raise ConflictError(
            f"{what} cannot be written: {error.strerror or error}", hint="fetch to another directory: --to DIR"
        ) from error


def _create(top: Path, member: tarfile.TarInfo, source: IO[bytes], *, replace: bool) -> Path:
    path = top / member.name
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.parent.resolve().is_relative_to(top):
        raise ConflictError(
            f"{shown(str(path.parent))} leads out of {shown(str(top))}", hint="fetch to another directory"
        )
    if replace:
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):
            path.unlink()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(path, flags, (member.mode & MODE) | 0o600)
    except FileExistsError:
        raise ConflictError(
            f"{shown(str(path))} is there already", hint="fetch to another directory, or replace it: --force"
        ) from None
    with open(fd, "wb") as file:
        shutil.copyfileobj(source, file)
    os.utime(path, (member.mtime, member.mtime))
    return path
