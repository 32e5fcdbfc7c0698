"""What an event says beside its kind: tasks, nodes, exit codes, reasons; of one job where that is asked for. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from hal.client.rest.views import EventInfo

SHOWN: Final = 5
"""Entries of a list that are shown."""
MAX_CHARS: Final = 200
"""Of one text."""
_NAMES: Final = ("reason", "note", "node", "state", "user", "version", "offer", "removed", "epoch")
"""Fields of a payload that stand for themselves."""


def told(event: EventInfo, job: str | None) -> str:
    """One line, perhaps empty.

    Args:
        job: only what concerns this job is told.
    """
    payload: Mapping[str, Any] = event.payload
    parts: list[str] = []
    if "attempts" in payload and isinstance(payload["attempts"], list):
        parts.append(_listed(_attempt(one) for one in payload["attempts"] if _is_of(_id_of(one), job)))
    if isinstance(payload.get("ended"), list):
        ends = [one for one in payload["ended"] if job is None or str(one[0]) == job]
        parts.append(_listed(_end(one, with_job=job is None) for one in ends))
    if isinstance(payload.get("fields"), Mapping):
        parts.append(_listed(f"{name} {value}" for name, value in payload["fields"].items()))
    if payload.get("tasks"):
        parts.append(f"{payload['tasks']} task{'s' if payload['tasks'] != 1 else ''}")
    parts += [f"{name} {payload[name]}" for name in _NAMES if payload.get(name) not in (None, "", [])]
    if payload.get("truncated"):
        parts.append("(not all is told here)")
    return "; ".join(part for part in parts if part)


def _is_of(attempt: str, job: str | None) -> bool:
    return job is None or attempt.partition(".")[0] == job


def _id_of(one: Any) -> str:
    return str(one.get("id", "")) if isinstance(one, Mapping) else str(one)


def _attempt(one: Any) -> str:
    """`42.7.1 failed, exit code 3: out of memory`"""
    if not isinstance(one, Mapping):
        return str(one)
    parts = [str(one[name]) for name in ("state", "mode", "gate", "code") if one.get(name) not in (None, "")]
    if isinstance(one.get("ready"), bool):
        parts.append("ready" if one["ready"] else "not ready")
    if one.get("nodes"):
        parts.append(f"on {','.join(one['nodes'])}")
    if one.get("node"):
        parts.append(f"on {one['node']}")
    if one.get("exit_code") is not None:
        parts.append(f"exit code {one['exit_code']}")
    parts += [f"{name} {one[name]}" for name in ("for", "by") if one.get(name)]
    why = one.get("message") or one.get("reason") or (one.get("cause") if one.get("cause") != "exited" else "")
    text = f"{_id_of(one)} {', '.join(parts)}".rstrip()
    return f"{text}: {_cut(str(why))}" if why else text


def _end(one: Any, *, with_job: bool) -> str:
    job, state, code = (*one, None, None, None)[:3]
    text = f"{state}" if code is None else f"{state}, exit code {code}"
    return f"{job} {text}" if with_job else text


def _listed(texts: Iterable[str]) -> str:
    found = list(texts)
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return f"{', '.join(found[:SHOWN])}{more}"


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CHARS else f"{text[: MAX_CHARS - 1]}…"
