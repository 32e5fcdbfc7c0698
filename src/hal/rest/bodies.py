"""Bodies of requests, read strictly: every mistake is a `SpecError` that names it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from hal.core.model import SpecError, convert
from hal.rest.body_entries import LARGE_BYTES, MAX_ENTRIES, check_entries, too_many_entries
from hal.runtime.interface import Lane, Runtime

T = TypeVar("T")

TURN_S: Final = 0.0005
"""How soon the loop gets the interpreter while a large body is read; else a thread keeps it for 5 ms."""
_JSON_TYPES: Final = {type(None): "null", str: "a string", bool: "true or false", list: "an array"}


def body_as(body: bytes, kind: type[T], *, most: int = MAX_ENTRIES) -> T:
    """The body, with at most so many entries, as a value of that type."""
    if len(body) > LARGE_BYTES and not check_entries(body, most):
        raise too_many_entries(most)
    return convert(plain_json(body), kind)


async def beside(runtime: Runtime, body: bytes, read: Callable[[], T]) -> T:
    """Read a body, on the thread for large ones where it is large.

    Raises:
        SpecError: as `read`.
        OverloadedError: too many large ones wait.
    """
    return read() if len(body) <= LARGE_BYTES else await runtime.run_blocking(partial(_yielding, read), Lane.DECODE)


def _yielding(read: Callable[[], T]) -> T:
    """Read, with the interpreter given up whenever another thread has waited for `TURN_S`. Only on the one thread."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(TURN_S)
    try:
        return read()
    finally:
        sys.setswitchinterval(before)


def plain_json(body: bytes) -> Any:
    """Plain data."""
    if not body.strip():
        raise SpecError("the body is empty; a JSON object is expected")
    try:
        raw = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SpecError(f"the body is not JSON: {error}") from error
    if not isinstance(raw, dict):
        raise SpecError(f"the body is JSON, but {_JSON_TYPES.get(type(raw), 'a number')}; an object is expected")
    return raw
