"""Due times of a cron expression, on the clock of a zone.

Pure apart from the table of zones. The expression is evaluated by `cronsim`, which keeps to Debian's cron: where the
clock is set forward, a time that it skips is due right after the gap; where it is set back, a time that it shows twice
is due the first time only. An expression whose minute or hour begins with `*` is due by real time instead: in no hour
that was skipped, and in both of an hour that comes twice. A call takes 20 µs to some milliseconds, so it is made beside
the loop.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, NamedTuple

from cronsim import CronSim, CronSimError

from hal.core.model import SpecError, shown
from hal.runtime.time_zones import zone_named

FIELDS: Final = 5
ALIASES: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
MAX_COUNTED: Final = 1_000
"""Due times that are counted one by one; of more it is known that there were so many."""
_HINT: Final = (
    "minute hour day month weekday, like '30 2 * * mon-fri' or '*/5 * * * *'; "
    "or @hourly, @daily, @weekly, @monthly, @yearly"
)


class DueTimes(NamedTuple):
    """Due times that have come."""

    last_ms: int
    """The newest of them."""
    earlier: int
    """How many came before it, at most `MAX_COUNTED`."""
    before_ms: int
    """The newest that was counted of those; 0 where there is none."""
    next_ms: int | None
    """The next one, which has not come; None: there is none within 50 years."""


def check_schedule(schedule: str, zone: str, now_ms: int) -> int:
    """Return the first due time after `now_ms`.

    Raises:
        SpecError: not an expression, no such zone, or one that is never due.
    """
    found = next_due_ms(schedule, zone, now_ms)
    if found is None:
        raise SpecError(f"schedule: '{shown(schedule)}' is never due", hint=_HINT)
    return found


def next_due_ms(schedule: str, zone: str, after_ms: int) -> int | None:
    """Return the first due time after an instant; None: there is none within 50 years. Raises: as `check_schedule`."""
    times = _Times(schedule, zone, after_ms)
    return times.next()


def due_times(schedule: str, zone: str, first_ms: int, now_ms: int) -> DueTimes:
    """Return those from `first_ms`, which is one, to `now_ms`. Raises: as `check_schedule`."""
    times = _Times(schedule, zone, first_ms)
    last_ms, before_ms, earlier = first_ms, 0, 0
    while True:
        following = times.next()
        if following is None or following > now_ms:
            return DueTimes(last_ms, earlier, before_ms, following)
        if earlier == MAX_COUNTED:
            newest = _newest(schedule, zone, now_ms)
            return DueTimes(max(newest, following), earlier, last_ms, next_due_ms(schedule, zone, now_ms))
        last_ms, before_ms, earlier = following, last_ms, earlier + 1


class _Times:
    """Due times after an instant, ascending."""

    def __init__(self, schedule: str, zone: str, after_ms: int) -> None:
        self._last_ms = after_ms
        self._cron = _cron(schedule, zone, after_ms)

    def next(self) -> int | None:
        """The next one; None: there is none within 50 years."""
        while True:
            try:
                at_ms = round(next(self._cron).timestamp()) * 1000
            except (StopIteration, OverflowError, ValueError):
                return None
            # Within an hour that the clock shows twice, those of its first time have passed.
            if at_ms > self._last_ms:
                self._last_ms = at_ms
                return at_ms


def _newest(schedule: str, zone: str, now_ms: int) -> int:
    """The newest due time that has come."""
    return round(next(_cron(schedule, zone, now_ms + 1000, reverse=True)).timestamp()) * 1000


def _cron(schedule: str, zone: str, at_ms: int, *, reverse: bool = False) -> CronSim:
    expression = ALIASES.get(schedule.strip().lower(), schedule)
    refused = f"schedule: '{shown(schedule)}'"
    if expression.lstrip().startswith("@"):
        raise SpecError(f"{refused} is not one that HAL knows", hint=_HINT)
    if not expression.isascii() or len(expression.split()) != FIELDS:
        raise SpecError(f"{refused} has not {FIELDS} fields", hint=_HINT)
    table = UTC if zone.upper() == "UTC" else zone_named(zone)
    try:
        return CronSim(expression, datetime.fromtimestamp(at_ms // 1000, table), reverse=reverse)
    except CronSimError as error:
        raise SpecError(f"{refused}: {str(error).lower()}", hint=_HINT) from None
