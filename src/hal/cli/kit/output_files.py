"""Files that commands write: checked before the work begins, and in place only when complete."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Hand out a temporary path beside `path`, and rename it to `path` only when the block succeeds. What is no regular
    file, a device or a pipe, stays what it is: the whole content is written to it then.

    Raises:
        SpecError: the file cannot be written; `path` is unchanged.
    """
    from hal.core.model.errors import SpecError

    apart: str | None = None
    unfinished = path.with_name(f".{path.stem}.{os.getpid()}.part{path.suffix}")
    try:
        if path.exists() and not path.is_file():
            apart = tempfile.mkdtemp(prefix="hal-")
            unfinished = Path(apart) / path.name
        yield unfinished
        if apart is None:
            os.replace(unfinished, path)
        else:
            with unfinished.open("rb") as whole, path.open("wb") as file:
                shutil.copyfileobj(whole, file)
    except OSError as error:
        raise SpecError(f"cannot write {path}: {error.strerror or error}", hint="choose another file name") from None
    finally:
        unfinished.unlink(missing_ok=True)
        if apart is not None:
            shutil.rmtree(apart, ignore_errors=True)


def checked_output(ctx: click.Context, param: click.Parameter, path: Path | None) -> Path | None:
    """Check the path of an output file before the work begins.

    Raises:
        click.BadParameter: it is a directory, or its directory does not exist.
    """
    if path is not None and path.is_dir():
        raise click.BadParameter(f"{path} is a directory", ctx, param)
    if path is not None and not path.parent.is_dir():
        raise click.BadParameter(f"directory {path.parent} does not exist", ctx, param)
    return path
