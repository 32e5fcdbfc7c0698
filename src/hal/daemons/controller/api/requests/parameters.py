"""Parameters of requests in path, query and headers, read strictly: every mistake is a `SpecError` that names it."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Sequence
from typing import Any, TypeVar

from litestar import Request

from hal.core.model import SpecError, TaskState, parse_task_ref
from hal.daemons.controller.access.identity import Identity
from hal.daemons.controller.service.idempotency import Key
from hal.store import JobFilter

T = TypeVar("T")
AnyRequest = Request[Any, Any, Any]

DEFAULT_PAGE = 100
MAX_LIMIT = 1_000
MAX_KEY_CHARS = 200
MAX_TASK = 1 << 31
MAX_SEQUENCE = (1 << 63) - 1
MAX_TEXT = 1_000
"""Longest value of a query parameter."""
_NUMBER = re.compile(r"[-+]?([0-9]{1,19}\.?[0-9]{0,19}|\.[0-9]{1,19})([eE][-+]?[0-9]{1,3})?")
JOB_FILTERS = ("state", "user", "queue", "name", "account", "label")


class Params:
    """The query parameters of one request.

    Raises (in the constructor):
        SpecError: one that this path does not know, or one given twice.
    """

    def __init__(self, request: AnyRequest, known: Sequence[str]) -> None:
        self._values: dict[str, str] = {}
        for name, value in request.query_params.multi_items():
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
                hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(known) or 'none'}"
                raise SpecError(f"'{name}' is not a query parameter of this path", hint=hint)
            if name in self._values:
                if name not in ("state", "label"):
                    raise SpecError(f"{name}: given twice")
                value = f"{self._values[name]},{value}"
            if len(value) > MAX_TEXT:
                raise SpecError(f"{name}: longer than {MAX_TEXT} characters")
            self._values[name] = value

    def text(self, name: str, default: str = "") -> str:
        """As it stands."""
        return self._values.get(name, default)

    def integer(self, name: str, default: int, *, low: int, high: int) -> int:
        """A whole number within bounds."""
        text = self._values.get(name)
        return default if text is None else integer(text, name, low=low, high=high)

    def seconds(self, name: str, default: float) -> float:
        """A number of seconds."""
        text = self._values.get(name)
        if text is None:
            return default
        if not _NUMBER.fullmatch(text):
            raise SpecError(f"{name}: '{text}' is not a number of seconds")
        value = float(text)
        if not 0 <= value < 1e9:
            raise SpecError(f"{name}: '{text}' is out of range")
        return value

    def flag(self, name: str) -> bool:
        """`1`, `true`, `0`, `false`, or the bare name."""
        text = self._values.get(name)
        if text is None or text.lower() in ("0", "false", "no"):
            return False
        if text.lower() in ("", "1", "true", "yes"):
            return True
        raise SpecError(f"{name}: '{text}' is neither true nor false", hint="write 1 or 0")

    def limit(self) -> int:
        """How many entries a page may have."""
        return self.integer("limit", DEFAULT_PAGE, low=1, high=MAX_LIMIT)

    def cursor(self) -> int | None:
        """Where the page before ended; what the answer to it called `cursor`."""
        text = self._values.get("cursor")
        return None if not text else integer(text, "cursor", low=0, high=MAX_SEQUENCE)

    def states(self) -> tuple[TaskState, ...]:
        """A comma list of states."""
        return states_of(self._values.get("state", ""))

    def job_filter(self) -> JobFilter:
        """The filter of a listing of jobs."""
        return job_filter({name: self._values.get(name, "") for name in JOB_FILTERS})


def integer(text: str, name: str, *, low: int, high: int) -> int:
    """A whole number within bounds."""
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or len(digits) > 19 or text.startswith("-0"):
        raise SpecError(f"{name}: '{text[:40]}' is not a whole number")
    value = int(text)
    if not low <= value <= high:
        raise SpecError(f"{name}: {value} is out of range", hint=f"between {low} and {high}")
    return value


def job_id(text: str) -> int:
    """The id of a whole job, from a path."""
    job, task = parse_task_ref(text)
    if task is not None:
        raise SpecError(f"'{text}' names a task; this path is about a job", hint=f"write {job}")
    return job


def job_of(request: AnyRequest) -> int:
    """The job that the path names."""
    return job_id(request.path_params["job"])


def task_of(request: AnyRequest) -> int:
    """The task that the path names."""
    return integer(request.path_params["task"], "task", low=0, high=MAX_TASK)


def states_of(text: str) -> tuple[TaskState, ...]:
    """`running,pending`; also `active`, `live` and `ended` for several at once."""
    states: list[TaskState] = []
    for part in filter(None, (piece.strip().lower() for piece in text.split(","))):
        group = _STATE_GROUPS.get(part)
        if group is None:
            valid = ", ".join(sorted(_STATE_GROUPS))
            raise SpecError(f"state: '{part}' is not a state", hint=f"valid: {valid}")
        states.extend(group)
    return tuple(dict.fromkeys(states))


_STATE_GROUPS: dict[str, tuple[TaskState, ...]] = {state.value: (state,) for state in TaskState} | {
    "active": tuple(state for state in TaskState if state.active),
    "live": tuple(state for state in TaskState if not state.ended),
    "ended": tuple(state for state in TaskState if state.ended),
}


def job_filter(raw: dict[str, str]) -> JobFilter:
    """A filter from its texts; `label` is a comma list of `key` and `key=value`."""
    labels: dict[str, str] = {}
    for part in filter(None, raw.get("label", "").split(",")):
        key, _, value = part.partition("=")
        labels[key.strip()] = value.strip()
    return JobFilter(
        states=states_of(raw.get("state", "")),
        user=raw.get("user", ""),
        queue=raw.get("queue", ""),
        name=raw.get("name", ""),
        account=raw.get("account", ""),
        labels=labels,
    )


def key_of(request: AnyRequest, body: bytes, who: Identity) -> Key | None:
    """The idempotency key, with a digest of what is asked for; everybody has keys of their own."""
    text = request.headers.get("idempotency-key")
    if text is None:
        return None
    if not 0 < len(text) <= MAX_KEY_CHARS or not text.isascii() or not text.isprintable():
        raise SpecError(f"Idempotency-Key: 1 to {MAX_KEY_CHARS} printable ASCII characters are expected")
    digest = hashlib.blake2b(body, digest_size=16)
    digest.update(f"{request.method} {request.url.path}?{request.url.query}".encode())
    return Key(text, digest.hexdigest(), "" if who.inside else who.user)
