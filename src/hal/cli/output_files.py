"""Files that commands write: refused before the work where they could not be written, there only when whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Hand out a temporary path beside `path`; it takes the name `path` only when all went well.

    Raises: SpecError when the file cannot be written; then `path` is as it was.
    """
    from hal.core.model.errors import SpecError

    unfinished = path.with_name(f".{path.stem}.{os.getpid()}.part{path.suffix}")
    try:
        yield unfinished
        os.replace(unfinished, path)
    except OSError as error:
        raise SpecError(f"cannot write {path}: {error.strerror or error}", hint="choose another place") from None
    finally:
        unfinished.unlink(missing_ok=True)


def checked_output(ctx: click.Context, param: click.Parameter, path: Path | None) -> Path | None:
    """An output file's path; refuses before the work what would fail after it."""
    if path is not None and path.is_dir():
        raise click.BadParameter(f"{path} is a directory", ctx, param)
    if path is not None and not path.parent.is_dir():
        raise click.BadParameter(f"there is no directory {path.parent}", ctx, param)
    return path
