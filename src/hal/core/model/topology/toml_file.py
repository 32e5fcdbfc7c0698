"""HAL's own file of a topology: the levels, and the path of domains that each node is in.

    levels = ["zone", "rack"]       # widest first

    [nodes]
    "n[001-032]" = "east/r1"
    "n[033-064]" = "east/r2"

Pure.
"""

from __future__ import annotations

import re
from typing import Any, Final

from hal.core.model.errors import SpecError, shown
from hal.core.model.text import plain_from_text
from hal.core.model.topology.drafts import Declared, Draft, Place, names_at, refuse_unknown
from hal.core.model.topology.tree import Topology, path_names

_KEYS: Final = ("levels", "nodes")
_PART: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?\Z")


def read_toml(text: str, file: str) -> Topology:
    """
    Args:
        file: its name, for errors.
    Raises:
        SpecError: a mistake in it; names file and line.
    """
    try:
        raw = plain_from_text(text, kind="toml")
    except SpecError as error:
        raise Place(file, 0).error(error.message, error.hint) from None
    for key in raw:
        if key not in _KEYS:
            refuse_unknown(key, _KEYS, Place(file, _line_of(text, key)))
    top = Place(file, _line_of(text, "levels"))
    levels, nodes = raw.get("levels"), raw.get("nodes", {})
    if not isinstance(levels, list) or not levels:
        raise top.error("levels: it names none", 'widest first: levels = ["zone", "rack"]')
    draft = Draft(levels, top)
    if not isinstance(nodes, dict):
        raise Place(file, _line_of(text, "nodes")).error("nodes: not a table", '[nodes], then "n[001-032]" = "east/r1"')
    lines = _lines_by_key(text)
    for key, path in nodes.items():
        place = Place(file, lines.get(key, 0))
        names = _path(path, levels, key, place)
        for level, name in enumerate(names):
            if name:
                parent = next((wider for wider in reversed(names[:level]) if wider), "")
                draft.declare(Declared(name, level, parent, place))
        draft.put(names_at(key, place, "nodes"), next(name for name in reversed(names) if name), place)
    return draft.finished()


def _path(path: Any, levels: list[str], key: str, place: Place) -> tuple[str, ...]:
    """Names of the domains of a path.

    Raises:
        SpecError: it is none.
    """
    if isinstance(path, dict):
        raise place.error(f"nodes: '{shown(key)}' is a table", "write names with dots in quotes")
    parts = path.split("/") if isinstance(path, str) else []
    if not any(parts):
        raise place.error(f"'{shown(key)}': {shown(path)!r} is not a path of domains", 'like "east/r1"')
    if len(parts) > len(levels):
        raise place.error(
            f"'{shown(path)}' has {len(parts)} domains for {len(levels)} levels", f"levels are {', '.join(levels)}"
        )
    for part in parts:
        if part and not _PART.match(part):
            raise place.error(
                f"'{shown(path)}': '{shown(part)}' is not a name", "at most 63 of letters, digits, . _ - inside"
            )
    return path_names(parts)


def _lines_by_key(text: str) -> dict[str, int]:
    """Lines on which keys are written, in quotes or bare; what is written in another way is not found."""
    found: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        key, equals, _ = line.partition("=")
        if equals:
            key = key.strip()
            found.setdefault(key[1:-1] if key[:1] in ("'", '"') and key[-1:] == key[:1] else key, number)
    return found


def _line_of(text: str, key: str) -> int:
    """The line on which a key of the file itself is written, also as the head of a table; 0: not found."""
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(rf"\s*\[*\s*[\"']?{re.escape(key)}[\"']?\s*[\].=]", line):
            return number
    return 0
