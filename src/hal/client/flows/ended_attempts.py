"""Reading ended attempts page by page, and on behind the last one as they come: steps for both clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from hal.client.flows.steps import Emit, Flow, Pause
from hal.client.rest import feed_calls
from hal.client.rest.feed_calls import AttemptsPage, EndedAttemptInfo
from hal.client.transport.backoff import Backoff
from hal.core.model import UnreachableError

OnLost = Callable[[int, int], None]
"""Called with the first and last sequence number of ended attempts that are no longer kept."""


IDLE_PAUSE_S: Final = 0.1
"""Between two pages without rows: a controller that is stopping answers at once."""


def ignore_lost(first: int, last: int) -> None:
    """Continue behind what is no longer kept."""


def ended_attempts(
    filters: Mapping[str, str],
    after: str,
    *,
    newest: int | None,
    follow: bool,
    reader: str,
    on_lost: OnLost,
    reconnect_s: float,
    clock: Callable[[], float],
) -> Flow[EndedAttemptInfo]:
    """Emit ended attempts in commit order; with `follow` without end, also when the connection was lost.

    Args:
        newest: begin with the last so many.
        clock: monotonic, in seconds.
    Raises:
        UnreachableError: no page came for `reconnect_s`.
    """
    backoff = Backoff(reconnect_s)
    begins = newest is not None
    while True:
        size = min(newest or feed_calls.PAGE_ROWS, feed_calls.MAX_PAGE_ROWS) if begins else feed_calls.PAGE_ROWS
        call = feed_calls.attempts(
            filters,
            after=after,
            limit=size,
            wait_s=feed_calls.POLL_S if follow and not begins else 0.0,
            newest=begins,
            reader_name="" if begins else reader,
        )
        try:
            page: AttemptsPage = yield call
        except UnreachableError:
            delay_s = backoff.failed(clock()) if follow else None
            if delay_s is None:
                raise
            yield Pause(delay_s)
            continue
        backoff.worked()
        for first, last in page.lost:
            on_lost(first, last)
        for row in page.attempts:
            yield Emit(row)
        after = feed_calls.next_cursor(page, after)
        if not follow and (begins or not (page.attempts or page.more)):
            return
        if follow and not page.attempts and not page.more and not begins:
            yield Pause(IDLE_PAUSE_S)
        begins = False
