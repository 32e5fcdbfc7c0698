"""The body of a request about several jobs.

Pure.
"""

from __future__ import annotations

from msgspec import Struct


class ControlBody(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which jobs and tasks something is done to."""

    ids: list[str] = []
    """`42` for a job, `42.7` for its task 7."""
    filter: dict[str, str] | None = None
    """Live jobs that match all of state, user, queue, name, account, label; requeue: ended ones too if asked."""
