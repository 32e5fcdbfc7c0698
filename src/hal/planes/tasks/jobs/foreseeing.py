"""When jobs would start that nobody has submitted: the engine is told of them on a copy, which is played forward.

Pure. Bounded as an answer of `why` is; more than MAX_FORESEEN jobs are not tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hal.core.engine.events import INF
from hal.core.model import Forecast
from hal.planes.tasks.engine.interning import Interning
from hal.planes.tasks.engine.view import EngineView
from hal.planes.tasks.jobs.explanation import AT_LEAST, PLAYED
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.table.engine_feed import EngineFeed

MAX_FORESEEN: Final = 8
"""Jobs of one submission."""
NOW: Final = "it would start at once"
HELD: Final = "it is held until somebody releases it"
DEPENDENT: Final = "it waits for other jobs"
NOT_PLAYED: Final = "the engine was not played forward: too much waits, or a policy gave no answer"
NOTHING: Final = "nothing that ends or opens as planned lets it start"


def foresee(engine: EngineView, jobs: Sequence[LiveJob], now_ms: int) -> list[Forecast]:
    """The forecast of each job's first task, if all of them were submitted now; none where there are too many.

    Args:
        jobs: of a dry run.
    """
    if len(jobs) > MAX_FORESEEN:
        return []
    feed = EngineFeed(Interning())  # of its own: the table's has indices of what is staged and not fed yet
    asked = [job for job in jobs if not job.hold and job.eligible_ms < INF]
    for job in asked:
        first = next(iter(job.ranges))
        tasks = min(first.count, job.spec.first_extension) if job.spec.extensions else first.count
        tasks = min(tasks, job.window) if job.window else tasks
        walltime = INF if job.walltime_ms is None else job.walltime_ms
        feed.submit(job, first.first, tasks, first.attempt, job.eligible_of(first), (job.priority, walltime))
    found = engine.foresee(feed.take(), [job.id for job in asked], now_ms) if asked else ({}, now_ms)
    return [_forecast(job, found, now_ms) for job in jobs]


def _forecast(job: LiveJob, found: tuple[dict[int, int], int] | None, now_ms: int) -> Forecast:
    if job.hold:
        return Forecast(basis=HELD)
    if job.eligible_ms >= INF:
        return Forecast(basis=DEPENDENT)
    if found is None:
        return Forecast(basis=NOT_PLAYED)
    starts, last_ms = found
    at_ms = starts.get(job.id)
    if at_ms is not None:
        now = at_ms <= now_ms
        return Forecast(starts_at_ms=at_ms, basis=NOW if now else PLAYED, now=now)
    return Forecast(basis=NOTHING) if last_ms >= INF else Forecast(starts_at_ms=last_ms, basis=AT_LEAST)
