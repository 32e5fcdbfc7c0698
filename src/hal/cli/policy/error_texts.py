"""Errors about an entry of the policy, in terms of the command line's options instead of hal.toml's fields.

Pure. The controller checks changes from everywhere and speaks of fields: `bookings.b: nobody may use it (… or set
`maintenance = true`)` is `booking 'b': nobody may use it (… or set --maintenance)` for `hal booking add b`.
"""

from __future__ import annotations

import re

from hal.cli.policy.fields import option_name
from hal.core.model import ConflictError, HALError, NotFoundError, SpecError
from hal.core.model.policy_change import TABLE, Kind, Operation
from hal.core.model.policy_text import TABLES

_QUOTED = re.compile(r"`([a-z_]+)(?: = true)?`")


def in_options(error: HALError, operation: Operation) -> HALError:
    """The same error about what was given for one entry; others are returned as they are."""
    for kind in (SpecError, ConflictError, NotFoundError):
        if isinstance(error, kind):
            return kind(_translated(error.message, operation), hint=_translated(error.hint, operation))
    return error


def _translated(text: str, operation: Operation) -> str:
    kind, table = operation.kind, TABLE[operation.kind]
    at = re.escape(f"{table}.{operation.name}")
    fields = "|".join(sorted(_fields(kind), key=len, reverse=True))
    # What follows a field is typed behind its option: `weights.age` is `--weights age`.
    text = re.sub(
        rf"(?<!\S){at}\.({fields})\b(\.(?=\S))?", lambda found: _option(found[1]) + (" " if found[2] else ""), text
    )
    text = re.sub(rf"(?<!\S){at}(?=[:\s])", lambda _: f"{kind} '{operation.name}'", text)
    return _QUOTED.sub(lambda found: _quoted(found, kind), text)


def _quoted(found: re.Match[str], kind: Kind) -> str:
    if found[1] in ("add", "set"):
        return f"`hal {kind} {found[1]}`"
    return _option(found[1]) if found[1] in _fields(kind) else found[0]


def _fields(kind: Kind) -> list[str]:
    return [field for field in TABLES[TABLE[kind]].__struct_fields__ if field != "name"]


def _option(field: str) -> str:
    return f"--{option_name(field)}"
