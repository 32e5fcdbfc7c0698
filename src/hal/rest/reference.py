"""The reference page of a daemon's interface, made from its table of endpoints.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hal.rest.endpoint import JSON, Endpoint
from hal.rest.rights import ADMINS, EVERYBODY, OPERATORS, OWNERS, Right, roles_with

_WHO: Final[dict[Right, str]] = {
    EVERYBODY: "all",
    OWNERS: "owner, operators",
    OPERATORS: "operators",
    ADMINS: "admins",
}


def reference(head: str, endpoints: Sequence[Endpoint]) -> str:
    """The whole page, in Markdown; equal for equal code.

    Args:
        head: what comes before the tables.
    """
    parts = [head]
    for tag in dict.fromkeys(row.tag for row in endpoints):
        parts.append(
            f"\n## {tag.capitalize()}\n\n| endpoint | who | parameters | body | answer | |\n|---|---|---|---|---|---|\n"
        )
        parts += [_row(row) for row in endpoints if row.tag == tag]
    return "".join(parts)


def _row(row: Endpoint) -> str:
    cells = (
        f"`{row.operation}`",
        _WHO.get(row.right, _named(row.right)) + (", also without a token" if row.for_strangers else ""),
        _parameters(row),
        _body(row),
        _answer(row),
        f"{row.summary}. {row.text}".strip(),
    )
    return f"| {' | '.join(cells)} |\n"


def _named(right: Right) -> str:
    """Of a right of the daemon's own: the roles that have it."""
    return ", ".join(f"{role.value}s" for role in roles_with(right)) or "nobody"


def _parameters(row: Endpoint) -> str:
    named = [f"`{param.name}`" for param in row.params if param.where == "query"]
    named += [f"*{param.name}*" for param in row.params if param.where == "header"]
    return ", ".join(named)


def _body(row: Endpoint) -> str:
    if row.body is None:
        return ""
    if row.body.media != JSON:
        return row.body.media
    kinds = row.body.schema.get("anyOf", [row.body.schema])
    return " or ".join(f"`{kind['$ref'].rpartition('/')[2]}`" for kind in kinds)


def _answer(row: Endpoint) -> str:
    forms = [f"`{row.result.__name__}`"] if row.result is not None else []
    forms += row.media
    refused = sorted(set(row.problems) - {"400"})
    statuses = f"{row.status} {' or '.join(forms)}"
    return f"{statuses}; {', '.join(refused)}" if refused else statuses
