"""Parameters of requests that are about jobs, beside those that every daemon knows: every mistake is a `SpecError`."""

from __future__ import annotations

import hashlib

from msgspec.structs import replace

from hal.core.model import AttemptState, SpecError, TaskState, parse_task_ref, parse_tasks_ref
from hal.core.model.name_patterns import check_name_pattern
from hal.daemons.controller.service.idempotency import Key
from hal.planes.tasks import Selection
from hal.rest import parameters
from hal.rest.identity import Identity
from hal.rest.parameters import DEFAULT_PAGE, MAX_LIMIT, MAX_SEQUENCE, MAX_TEXT, AnyRequest, integer
from hal.store import JobFilter

__all__ = [
    "DEFAULT_PAGE",
    "JOB_FILTERS",
    "MAX_KEY_CHARS",
    "MAX_LIMIT",
    "MAX_SEQUENCE",
    "MAX_TASK",
    "MAX_TEXT",
    "AnyRequest",
    "Params",
    "attempt_states_of",
    "integer",
    "job_filter",
    "job_id",
    "job_of",
    "key_of",
    "states_of",
    "task_of",
    "tasks_named",
]

MAX_KEY_CHARS = 200
MAX_MS = 1 << 53
"""Of an instant."""
MAX_TASK = 1 << 31
JOB_FILTERS = ("state", "user", "queue", "name", "account", "label")


class Params(parameters.Params):
    """The query parameters of one request.

    Raises (in the constructor):
        SpecError: one that this path does not know, or one given twice.
    """

    repeatable = frozenset({"state", "label"})

    def states(self) -> tuple[TaskState, ...]:
        """A comma list of states."""
        return states_of(self._values.get("state", ""))

    def job_filter(self) -> JobFilter:
        """The filter of a listing of jobs."""
        wanted = job_filter({name: self._values.get(name, "") for name in JOB_FILTERS})
        return replace(
            wanted,
            node=self._values.get("node", ""),
            submitted_from_ms=self._instant("submitted_from_ms"),
            submitted_before_ms=self._instant("submitted_before_ms"),
        )

    def _instant(self, name: str) -> int | None:
        return self.integer(name, 0, low=0, high=MAX_MS) if name in self._values else None


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


def tasks_named(text: str, job: int, states: tuple[TaskState, ...]) -> Selection:
    """`7-9,12`: tasks by number; `[7-9,12]`: by array index; empty: all; of them those in one of these states."""
    if not text:
        return Selection(states=states)
    ref = parse_tasks_ref(f"{job}{text}" if text.startswith("[") else f"{job}.{text}")
    return Selection(ref.ranges, ref.by_index, states)


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


def attempt_states_of(text: str) -> tuple[AttemptState, ...]:
    """`failed,lost`: states in which an attempt can end."""
    states: list[AttemptState] = []
    for part in filter(None, (piece.strip().lower() for piece in text.split(","))):
        if part not in _ENDED_ATTEMPTS:
            raise SpecError(f"state: '{part}' is not a state in which an attempt ends",
                            hint=f"valid: {', '.join(sorted(_ENDED_ATTEMPTS))}")  # fmt: skip
        states.append(_ENDED_ATTEMPTS[part])
    return tuple(dict.fromkeys(states))


_ENDED_ATTEMPTS: dict[str, AttemptState] = {state.value: state for state in AttemptState if state.ended}
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
        name=check_name_pattern(raw.get("name", "")),
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
