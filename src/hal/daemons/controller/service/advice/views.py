"""What a plane puts, and what is shown of advice.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from msgspec import Struct

from hal.core.engine.tables.advice import Floats
from hal.core.model import SpecError
from hal.core.model.advice import (
    DEFAULT_EXPIRES_MS,
    MAX_EXPIRES_MS,
    MAX_KEY_CHARS,
    MAX_KEYS_A_REQUEST,
    MAX_VERSION,
    KeySpace,
)
from hal.core.model.units import parse_duration

JOB_DIGITS: Final = 18
PIECE: Final = 4_096
"""Entries that are looked at by one call in C, during which the loop waits."""


class AdviceBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An update of one kind of advice."""

    space: KeySpace
    """What the keys name."""
    keys: list[str | int]
    """Names, or job ids as numbers or text. Unknown ones are kept."""
    values: list[float | int | None]
    """One for each key; null: none."""
    delta: bool = False
    """These keys change and all others stay; else this is all there is."""
    version: int | None = None
    """Ascending; absent: one more than the version held."""
    base: int | None = None
    """For a delta: the version that it changes; refused if another one is held."""
    expires_in: str | int | float | None = None
    """How long it holds unless it is put again, "90s" or a number of seconds; absent: five minutes."""


class Update(Struct, frozen=True, kw_only=True):
    """An update as the engine takes it, checked."""

    space: KeySpace
    keys: tuple[str, ...] | tuple[int, ...]
    values: Floats
    """One for each key; NaN: none."""
    delta: bool
    version: int | None
    base: int | None
    expires_in_ms: int


class AdviceView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One kind of advice."""

    kind: str
    space: KeySpace
    version: int
    count: int
    """Keys that have a value."""
    known: int | None = None
    """Those that name something the scheduler knows now; absent for jobs, which are not counted."""
    user: str = ""
    """Who put it last."""
    updated_ms: int
    age_ms: int
    """Since it was put last."""
    expires_ms: int
    read_by: tuple[str, ...] = ()
    """Policies in use that read it."""


class AdvicePut(Struct, frozen=True, kw_only=True):
    """The outcome of an update."""

    applied: bool
    """False: this version was held already, and nothing has changed."""
    advice: AdviceView


class AdviceList(Struct, frozen=True, kw_only=True):
    """All kinds of advice by name."""

    advice: list[AdviceView]


class AdviceColumns(Struct, frozen=True, kw_only=True):
    """A kind of advice, and a page of its keys with their values."""

    advice: AdviceView
    keys: list[str | int]
    values: list[float]
    cursor: str = ""
    """For the next page; empty: this was the last."""


def update_of(body: AdviceBody) -> Update:
    """Check an update.

    Raises:
        SpecError: names the field that is wrong.
    """
    if len(body.keys) != len(body.values):
        raise SpecError(f"values: {len(body.values)} for {len(body.keys)} keys", hint="one for each key, null for none")
    if len(body.keys) > MAX_KEYS_A_REQUEST:
        raise SpecError(
            f"keys: {len(body.keys)} in one request; at most {MAX_KEYS_A_REQUEST} are allowed",
            hint="put the first part whole, and the others as deltas",
        )
    for name, version in (("version", body.version), ("base", body.base)):
        if version is not None and not 1 <= version <= MAX_VERSION:
            raise SpecError(f"{name}: {version} is out of range", hint=f"between 1 and {MAX_VERSION}")
    if body.base is not None and not body.delta:
        raise SpecError("base: only a delta has one", hint="leave it out, or set delta to true")
    return Update(
        space=body.space,
        keys=_read_keys(body.keys, body.space),
        values=_numbers(body.values),
        delta=body.delta,
        version=body.version,
        base=body.base,
        expires_in_ms=_expires_in_ms(body.expires_in),
    )


def _read_keys(given: list[str | int], space: KeySpace) -> tuple[str, ...] | tuple[int, ...]:
    """All of them, in pieces."""
    read: Callable[[list[str | int], int], list[Any]] = _jobs if space is KeySpace.JOBS else _names
    keys: list[Any] = []
    known: set[Any] = set()
    for at in range(0, len(given), PIECE):
        some = read(given[at : at + PIECE], at)
        keys += some
        known.update(some)
    if len(known) < len(keys):
        raise SpecError("keys: one is there twice", hint="name each key once")
    return tuple(keys)


def _names(keys: list[str | int], at: int) -> list[str]:
    names = [key for key in keys if isinstance(key, str)]
    if len(names) < len(keys) or not _lengths_within(names, MAX_KEY_CHARS):
        at += next(at for at, key in enumerate(keys) if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY_CHARS)
        raise SpecError(f"keys[{at}]: a text of 1 to {MAX_KEY_CHARS} characters is expected")
    return names


def _jobs(keys: list[str | int], at: int) -> list[int]:
    texts = list(map(str, keys))
    if not (_lengths_within(texts, JOB_DIGITS) and _is_number("".join(texts))):
        at += next(at for at, text in enumerate(texts) if not (_is_number(text) and len(text) <= JOB_DIGITS))
        raise SpecError(f"keys[{at}]: a job id is expected")
    jobs = list(map(int, texts))
    if 0 in jobs:
        raise SpecError(f"keys[{at + jobs.index(0)}]: a job id is expected")
    return jobs


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _lengths_within(texts: list[str], most: int) -> bool:
    return min(map(len, texts)) > 0 and max(map(len, texts)) <= most


def _numbers(values: list[float | int | None]) -> Floats:
    numbers = np.empty(len(values))
    try:
        for at in range(0, len(values), PIECE):
            numbers[at : at + PIECE] = np.array(values[at : at + PIECE], np.float64)  # null becomes NaN
    except OverflowError:
        numbers = np.array([np.inf])
    if np.isinf(numbers).any():
        raise SpecError("values: one is too large for a number of 64 bits")
    return numbers


def _expires_in_ms(given: str | float | None) -> int:
    if given is None:
        return DEFAULT_EXPIRES_MS
    duration = parse_duration(given, field="expires_in")
    if not 0 < duration <= MAX_EXPIRES_MS:
        raise SpecError(f"expires_in: '{duration}' is out of range", hint="more than 0, at most 7d")
    return int(duration)
