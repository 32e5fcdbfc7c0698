"""What is told of a run that failed: the seed, the plan, what was killed, and the life of the job concerned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from hal.core.model import HALError
from tests.chaos.diary import Diary
from tests.chaos.plan import Move
from tests.chaos.records import read_records
from tests.chaos.ruin import Ruin
from tests.e2e.conftest import LiveHal

LOG_LINES: Final = 12
"""Of each process's log."""
MAX_LINES: Final = 60
"""Of the diary, when no job is named."""


def tell(seed: int, moves: Sequence[Move], ruin: Ruin, diary: Diary, live: LiveHal, job: int | None) -> str:
    """All of it, as text."""
    parts: list[str] = [f"seed {seed}", "", "the plan:", *map(str, moves), "", "what was killed:"]
    parts += [*map(str, ruin.kills), "", "what else happened:", *ruin.notes, ""]
    lines = diary.read()
    if job is None:
        parts += ["the last lines of the diary:", *map(str, lines[-MAX_LINES:])]
    else:
        parts += [f"the diary of job {job}:", *(str(line) for line in lines if line.step.job == job)]
        parts += ["", f"what HAL says of job {job}:", *_said(live, job)]
    return "\n".join([*parts, "", *_logs(live)])


def _said(live: LiveHal, job: int) -> Iterator[str]:
    try:
        records = read_records(live.home.database)
    except HALError as error:
        yield f"nothing: {error}"
        return
    yield str(records.jobs.get(job))
    yield from map(str, records.tasks.get(job, []))
    yield from (str(row) for rows in records.attempts.values() for row in rows if row.job == job)
    yield from (str(event) for event in records.events if job in event.jobs)


def _logs(live: LiveHal) -> Iterator[str]:
    for path in sorted(live.home.log_dir.glob("*")):
        if path.is_file():
            yield f"end of {path.name}:"
            yield from path.read_text(errors="replace").splitlines()[-LOG_LINES:]
            yield ""
