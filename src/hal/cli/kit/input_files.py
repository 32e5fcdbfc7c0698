"""Files that commands read, from disk or standard input, and the `FIELD=VALUE` settings that change them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hal.core.model import DeniedError, NotFoundError, SpecError
from hal.core.model.codec import MAX_SPEC_BYTES
from hal.core.model.text import plain_from_text

SUFFIXES = {".toml": "toml", ".yaml": "yaml", ".yml": "yaml", ".json": "json"}
STDIN = "-"


def read_text(name: str) -> str:
    """The file's text, or that of standard input.

    Raises:
        NotFoundError: no such file.
        DeniedError: it may not be read.
        SpecError: it is a directory, too long, or not text.
    """
    try:
        with sys.stdin.buffer if name == STDIN else Path(name).open("rb") as file:
            data = file.read(MAX_SPEC_BYTES + 1)
    except FileNotFoundError:
        raise NotFoundError(f"file '{name}' does not exist", hint=f"the current directory is {os.getcwd()}") from None
    except PermissionError:
        raise DeniedError(f"file '{name}' may not be read by you", hint=f"see its permissions: ls -l {name}") from None
    except OSError as error:
        why = error.strerror or str(error)
        raise SpecError(f"file '{name}' cannot be read: {why}", hint=f"see what it is: ls -ld {name}") from error
    if len(data) > MAX_SPEC_BYTES:
        raise SpecError(f"file '{name}' is longer than {MAX_SPEC_BYTES} bytes", hint="check that it is the right file")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SpecError(
            f"file '{name}' is not UTF-8 text: {error.reason} at byte {error.start}",
            hint="check that it is the right file",
        ) from None
    if not text.strip():
        raise SpecError(f"file '{name}' is empty", hint="check that it is the right file, and was written")
    return text


_OF_SCRIPTS = frozenset({".bash", ".job", ".pbs", ".pl", ".py", ".r", ".sbatch", ".sh", ".slurm", ".zsh"})
"""Suffixes of what must be a script."""


def format_of(name: str, text: str, given: str | None) -> str:
    """'toml', 'yaml', 'json' or 'script'.

    Raises:
        SpecError: the suffix names none.
    """
    if given:
        return given
    kind = SUFFIXES.get(Path(name).suffix.lower())
    if kind:
        return kind
    if text.startswith("#!"):
        return "script"
    if name == STDIN:
        return "json" if text.lstrip()[0] in "{[" else "toml"
    if Path(name).suffix.lower() in _OF_SCRIPTS:
        raise SpecError(
            f"file '{name}' does not begin with #!, as a script must",
            hint="make its first line #!/bin/sh, say; or submit a command: hal submit -- sh FILE",
        )
    raise SpecError(
        f"file '{name}': the format is not clear from its suffix",
        hint="add --format toml, yaml or json; a script begins with #!",
    )


def settings_of(entries: Sequence[str]) -> dict[str, Any]:
    """Read `['request.cpu=4', 'name=fit']` as paths and values; a value that is not TOML is text.

    Raises:
        SpecError: no `=`.
    """
    out: dict[str, Any] = {}
    for entry in entries:
        path, equals, text = entry.partition("=")
        if not equals or not path.strip("."):
            raise SpecError(f"--set: '{entry}' is not FIELD=VALUE", hint="write, for example, --set request.cpu=4")
        try:
            out[path] = plain_from_text(f"value = {text}", kind="toml")["value"]
        except SpecError:
            out[path] = text
    return out
