"""Periodic jobs: a job spec with a cron expression, and what happens at each of its due times.

Pure. The expression itself is read by `hal.planes.periodic.schedule`, which knows zones.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from msgspec import Meta, Struct
from msgspec.structs import replace

from hal.core.model.errors import SpecError, shown
from hal.core.model.job import JobSpec, is_name
from hal.core.model.policy_hours import UTC_ZONE, check_zone

DEFAULT_KEEP: Final = 50
MAX_KEEP: Final = 1_000
"""Entries of the history of one periodic job."""
MAX_SCHEDULE_CHARS: Final = 256
MAX_PERIODIC_BYTES: Final = 256 << 10
"""Of the spec of a periodic job, as JSON."""
NAME_VARIABLE: Final = "HAL_CRON"
"""In the environment of each job: the name of the periodic job."""
DUE_VARIABLE: Final = "HAL_CRON_DUE"
"""The due time for which it was submitted, in UTC, like `2026-03-29T01:00:00Z`."""


class Overlap(StrEnum):
    """What happens at a due time while an earlier job of the same periodic job has not ended."""

    SKIP = "skip"
    """No job is submitted."""
    QUEUE = "queue"
    """The new job waits for the end of the earlier ones."""
    REPLACE = "replace"
    """The earlier ones are cancelled, and the new job waits for their end."""
    ALLOW = "allow"
    """The new job may run beside them."""


class CatchUp(StrEnum):
    """What happens to due times that passed while no controller led."""

    NONE = "none"
    """They are recorded as missed."""
    ONE = "one"
    """One job is submitted for the last of them; the others are recorded as missed."""


class RunOutcome(StrEnum):
    """What became of a due time."""

    SUBMITTED = "submitted"
    SKIPPED = "skipped"
    """The overlap policy left it out."""
    MISSED = "missed"
    """It passed while no controller led."""
    REFUSED = "refused"
    """The job could not be accepted, or its owner may not submit it."""


class PeriodicSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A periodic job as its owner describes it."""

    schedule: Annotated[str, Meta(description="five fields of cron, or @hourly, @daily, @weekly, @monthly, @yearly")]
    zone: Annotated[str, Meta(description="the zone of the clock that the schedule is read on")] = UTC_ZONE
    overlap: Overlap = Overlap.SKIP
    catch_up: CatchUp = CatchUp.NONE
    keep: Annotated[int, Meta(description="entries of its history", ge=1, le=MAX_KEEP)] = DEFAULT_KEEP
    job: JobSpec


_NOT_PERIODIC: Final = {
    "ship": "keep its files where the nodes can read them, and name that directory as workdir",
    "dependencies": "each of its jobs would name the same one; --overlap queue lets each wait for the one before",
    "begin_at_ms": "the schedule says when its jobs begin",
    "deadline_ms": "each of its jobs would have the same one",
    "hold": "`hal cron hold` holds a periodic job",
    "interactive": "nobody is attached to a job that the schedule submits",
}
"""Fields that a job which is submitted again and again cannot have, and what to do instead."""


def check_periodic(name: str, asked: PeriodicSpec) -> PeriodicSpec:
    """Return the periodic job with its job in the form in which it is kept.

    Args:
        name: of the periodic job; its jobs have it where they name none.
    Raises:
        SpecError: a field that it cannot have; names it. The schedule is not read here.
    """
    if not is_name(name):
        raise SpecError(f"name: '{shown(name)}' is not a name", hint="letters, digits and _ . : @ / + -, at most 128")
    if "/" in name:
        raise SpecError(f"name: '{shown(name)}' has a slash", hint="write - or . instead")
    if len(asked.schedule) > MAX_SCHEDULE_CHARS:
        raise SpecError(f"schedule: longer than {MAX_SCHEDULE_CHARS} characters")
    check_zone(asked.zone, "zone")
    if not 1 <= asked.keep <= MAX_KEEP:
        raise SpecError(f"keep: {asked.keep} entries", hint=f"between 1 and {MAX_KEEP}")
    for field, instead in _NOT_PERIODIC.items():
        if getattr(asked.job, field):
            raise SpecError(f"job.{field}: a periodic job has none", hint=instead)
    if asked.job.priority > 0:
        raise SpecError(
            f"job.priority: {asked.job.priority} is above 0; jobs of a periodic job have the rights of its owner",
            hint="lower it, or give its queue or account a higher priority",
        )
    job = replace(asked.job, name=asked.job.name or name, traceparent="")
    return replace(asked, job=job)
