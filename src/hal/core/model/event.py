"""The durable event: what happened, why, and what it belongs to.

Pure. An event is written in the same transaction as the rows it changed; watchers and audit read the feed in commit
order. The feed is never used to rebuild state.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from msgspec import Struct


class EventKind(StrEnum):
    """What happened; the payload's fields are listed in docs/events.md."""

    JOBS_SUBMITTED = "jobs-submitted"
    JOBS_CHANGED = "jobs-changed"
    JOBS_HELD = "jobs-held"
    JOBS_RELEASED = "jobs-released"
    JOBS_CANCELLED = "jobs-cancelled"
    JOBS_REQUEUED = "jobs-requeued"
    JOBS_REPLACED = "jobs-replaced"
    JOBS_ENDED = "jobs-ended"
    JOBS_REMOVED = "jobs-removed"
    ATTEMPTS_ALLOCATED = "attempts-allocated"
    ATTEMPTS_STARTED = "attempts-started"
    ATTEMPTS_ENDED = "attempts-ended"
    ATTEMPTS_PREEMPTED = "attempts-preempted"
    ATTEMPTS_RESUMED = "attempts-resumed"
    ATTEMPTS_GATED = "attempts-gated"
    ATTEMPTS_PROBED = "attempts-probed"
    STARTS_REFUSED = "starts-refused"
    NODE_JOINED = "node-joined"
    NODE_CHANGED = "node-changed"
    NODE_LOST = "node-lost"
    OFFER_MADE = "offer-made"
    OFFER_ENDED = "offer-ended"
    POLICY_CHANGED = "policy-changed"
    CONTROLLER_STARTED = "controller-started"


class Event(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry of the feed."""

    sequence: int
    """Position in commit order, from 1, never reused."""
    at_ms: int
    kind: EventKind
    cause: str = ""
    """Who or what caused it: `user:alice`, `engine`, `node:n1`, `retry`, `dependency`."""
    trace_id: str = ""
    """The request that caused it; the same in every event that follows from it."""
    jobs: tuple[int, ...] = ()
    """Jobs it is about (at most the first 1,000 of a large block; `payload.jobs_total` says how many)."""
    payload: dict[str, Any] = {}
    """`truncated` is true in it where it, or `jobs`, does not list all that happened."""
