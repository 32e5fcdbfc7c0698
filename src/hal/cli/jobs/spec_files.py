"""The jobs in a job file (TOML, YAML or JSON), with `--set` applied to each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hal.cli.kit.input_files import STDIN
from hal.core.model import JobSpec, SpecError
from hal.core.model.text import plain_from_text, specs_from_text

_WITH_UNIT = frozenset(
    {"walltime", "signal.before", "retries.backoff", "retries.longest"}
    | {f"request.{name}" for name in ("memory", "mem", "disk")}
)
"""Fields whose numbers need a unit where people type them; in a file a number has the documented one."""


def specs_of(name: str, text: str, kind: str, settings: Mapping[str, Any]) -> list[JobSpec]:
    """Read the jobs in a file, and apply `--set` to each.

    Raises:
        SpecError: it is malformed; the error names the file.
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
        hint = error.hint or ("a script begins with #!, such as #!/bin/sh" if name == STDIN else "")
        raise SpecError(f"{'standard input' if name == STDIN else name}: {error.message}", hint=hint) from error


def _changed(raw: Mapping[Any, Any], settings: Mapping[str, Any]) -> dict[Any, Any]:
    out = dict(raw)
    for path, value in settings.items():
        *tables, last = path.split(".")
        at = out
        for name in tables:
            inner = at.get(name)
            at[name] = dict(inner) if isinstance(inner, Mapping) else {}
            at = at[name]
        plain = isinstance(value, int | float) and not isinstance(value, bool)
        at[last] = str(value) if plain and path in _WITH_UNIT else value
    return out
