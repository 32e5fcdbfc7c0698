"""Job files read from disk or standard input: TOML, YAML, JSON by suffix or `--format`, scripts by their first line."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hal.core.model import DeniedError, JobSpec, NotFoundError, SpecError
from hal.core.model.codec import MAX_SPEC_BYTES
from hal.core.model.text import plain_from_text, specs_from_text

SUFFIXES = {".toml": "toml", ".yaml": "yaml", ".yml": "yaml", ".json": "json"}
STDIN = "-"


def read_text(name: str) -> str:
    """The file's text, or that of standard input.

    Raises:
        NotFoundError: no such file.
        DeniedError: it may not be read.
        SpecError: a directory, too long, or not text.
    """
    try:
        with sys.stdin.buffer if name == STDIN else Path(name).open("rb") as file:
            data = file.read(MAX_SPEC_BYTES + 1)
    except FileNotFoundError:
        raise NotFoundError(f"there is no file '{name}'", hint=f"you are in {os.getcwd()}") from None
    except PermissionError:
        raise DeniedError(f"the file '{name}' may not be read", hint=f"see: ls -l {name}") from None
    except OSError as error:
        raise SpecError(f"'{name}' cannot be read: {error.strerror or error}") from error
    if len(data) > MAX_SPEC_BYTES:
        raise SpecError(f"'{name}' is longer than {MAX_SPEC_BYTES} bytes", hint="is it a job file?")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SpecError(
            f"'{name}' is not text: {error.reason} at byte {error.start}", hint="is it a job file?"
        ) from None
    if not text.strip():
        raise SpecError(f"'{name}' is empty")
    return text


def format_of(name: str, text: str, given: str | None) -> str:
    """'toml', 'yaml', 'json' or 'script'.

    Raises:
        SpecError: the suffix does not say.
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
    raise SpecError(
        f"'{name}': its suffix does not say what it is", hint="add --format toml, yaml or json, or begin it with #!"
    )


def specs_of(name: str, text: str, kind: str, settings: Mapping[str, Any]) -> list[JobSpec]:
    """The jobs in a file, with `--set` applied to each.

    Raises:
        SpecError: malformed; names the file.
    """
    try:
        if not settings:
            return specs_from_text(text, kind=kind)
        import msgspec

        raw = plain_from_text(text, kind=kind)
        whole = raw.get("jobs") if isinstance(raw, Mapping) and set(raw) == {"jobs"} else raw
        items = whole if isinstance(whole, list) else [whole]
        changed = [_changed(item, settings) if isinstance(item, Mapping) else item for item in items]
        return specs_from_text(msgspec.json.encode(changed).decode(), kind="json")
    except SpecError as error:
        raise SpecError(f"{'standard input' if name == STDIN else name}: {error.message}", hint=error.hint) from error


def settings_of(entries: Sequence[str]) -> dict[str, Any]:
    """`['request.cpu=4', 'name=fit']` as paths and values; a value that is TOML is read as such, else it is text.

    Raises:
        SpecError: no `=`.
    """
    out: dict[str, Any] = {}
    for entry in entries:
        path, equals, text = entry.partition("=")
        if not equals or not path.strip("."):
            raise SpecError(f"--set: '{entry}' is not FIELD=VALUE", hint="write it like --set request.cpu=4")
        try:
            out[path] = plain_from_text(f"value = {text}", kind="toml")["value"]
        except SpecError:
            out[path] = text
    return out


def _changed(raw: Mapping[Any, Any], settings: Mapping[str, Any]) -> dict[Any, Any]:
    out = dict(raw)
    for path, value in settings.items():
        *tables, last = path.split(".")
        at = out
        for name in tables:
            inner = at.get(name)
            at[name] = dict(inner) if isinstance(inner, Mapping) else {}
            at = at[name]
        at[last] = value
    return out
