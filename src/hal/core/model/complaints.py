"""Translate msgspec's validation messages into terms that people use, with what would be valid.

Pure.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

import msgspec

from hal.core.model.errors import shown

AT: Final = re.compile(r"(.*) - at `\$?\.?(.*)`$", re.DOTALL)
"""A message and the path that it is about."""
_UNKNOWN: Final = re.compile(r"contains unknown field `(.*?)`(?: - at `(.*)`)?$", re.DOTALL)

MAX_COMPARED: Final = 100
"""Unknown names up to this length are compared with the valid ones."""

_KINDS: Final = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "null": "nothing",
    "array": "a list",
    "object": "a table",
}
_FOUND: Final = {**_KINDS, "float": "a fraction", "int": "a number"}
"""The value that was found: a number that is not whole is a fraction."""
_BOUND: Final = re.compile(r"expected `(?:int|float)` (<=|>=|<|>) (\S+)")
_LENGTH: Final = re.compile(r"expected `(\w+)` of length (<=|>=) (\S+)")
_KIND: Final = re.compile(r"expected `([^`]+)`(?:, got `([^`]+)`)?")
_MISSING: Final = re.compile(r"object missing required field `([^`]+)`")
_ENUM: Final = re.compile(r"invalid enum value (.*)", re.DOTALL)
_LIMITS: Final = {"<=": "at most", ">=": "at least", "<": "less than", ">": "more than"}


_UNBUILT: Final = frozenset({"inputs", "outputs", "environment"})
"""Fields that are refused themselves; no typo means them."""


def explain_complaint(text: str, kind: Any) -> str:
    """Format a message for people.

    Args:
        text: of a `msgspec.ValidationError`.
        kind: the type that the data was converted to.
    """
    unknown = _UNKNOWN.search(text)
    if unknown:
        return _unknown_field(unknown.group(1), (unknown.group(2) or "$").removeprefix("$").removeprefix("."), kind)
    match = AT.match(text)
    complaint, path = (match.group(1), match.group(2)) if match else (text, "")
    said = _complaint_text(f"{complaint[:1].lower()}{complaint[1:]}", lambda: _kind_at(kind, path))
    return f"{path}: {said}" if path else said


def _unknown_field(name: str, path: str, kind: Any) -> str:
    import difflib  # imported only when an error is explained, because it is slow to import

    valid = sorted(
        {field.encode_name for one in _structs(_kind_at(kind, path)) for field in msgspec.structs.fields(one)}
    )
    others: dict[str, str] = {}
    for one in _structs(_kind_at(kind, path)):
        others |= getattr(one, "INSTEAD", {})
    if name in others:
        there = f" in {shown(path)}" if path else ""
        return f"unknown field '{shown(name)}'{there}; in files and JSON it is '{others[name]}'"
    able = [field for field in valid if field not in _UNBUILT]
    near = difflib.get_close_matches(name, able, n=1, cutoff=0.5) if len(name) <= MAX_COMPARED else []
    advice = f"; did you mean '{near[0]}'?" if near else f"; valid fields are {', '.join(valid)}" if valid else ""
    return f"unknown field '{shown(name)}'{f' in {shown(path)}' if path else ''}{advice}"


def _complaint_text(complaint: str, kind: Callable[[], Any]) -> str:
    if bound := _BOUND.fullmatch(complaint):
        return f"must be {_LIMITS[bound.group(1)]} {bound.group(2)}"
    if length := _LENGTH.fullmatch(complaint):
        return f"must be {_LIMITS[length.group(2)]} {length.group(3)} long"
    if missing := _MISSING.fullmatch(complaint):
        return f"'{missing.group(1)}' is missing"
    if enum := _ENUM.fullmatch(complaint):
        names = [str(one.value) for option in _options(kind()) if _is_enum(option) for one in option]
        return f"{shown(enum.group(1))} is not one of {', '.join(names)}" if names else complaint
    if found := _KIND.fullmatch(complaint):
        wanted = " or ".join(_KINDS.get(name.strip(), name.strip()) for name in found.group(1).split("|"))
        return f"expected {wanted}" + (f", got {_FOUND.get(found.group(2), found.group(2))}" if found.group(2) else "")
    return complaint


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Enum)


def _kind_at(kind: Any, path: str) -> Any:
    """Return the type that `path` (as msgspec prints it: `a.b[...].c`) leads to."""
    for step in filter(None, re.split(r"\.(?!\.|\])|(?=\[)", path)):
        kind = _step_into(kind, step)
    return kind


def _step_into(kind: Any, step: str) -> Any:
    if step.startswith("["):
        args = [a for k in _options(kind) for a in get_args(k) if a is not Ellipsis]
        return args[-1] if args else None
    for candidate in _structs(kind):
        hints = get_type_hints(candidate)
        if step in hints:
            return hints[step]
    return None


def _options(kind: Any) -> Iterator[Any]:
    yield from get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def _structs(kind: Any) -> list[type[msgspec.Struct]]:
    return [k for k in _options(kind) if isinstance(k, type) and issubclass(k, msgspec.Struct)]
