"""`max_running`: which waiting tasks of an array the engine is told of, so that no more than so many can ever run.

Pure. The engine knows at most N minus the active ones: whatever it starts, the limit holds, also when this or the next
controller starts anew, because what is fed follows from the spans. Tasks go in order; one that waits for a back-off to
pass keeps no place from one that could start. O(spans that are told of), of which there are at most `MAX_FED`.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from msgspec.structs import replace

from hal.core.engine.events import INF
from hal.planes.tasks.live import LiveJob
from hal.planes.tasks.spans import Span, pieces, startable

MAX_FED: Final = 256
"""Most spans of one array that the engine is told of: as they start, it is told of the next."""


def fed(job: LiveJob, now_ms: int) -> tuple[Span, ...]:
    """The tasks of the array that the engine should know now."""
    room = job.window - len(job.active)
    if room <= 0 or job.eligible_ms >= INF:
        return ()
    chosen: list[Span] = []
    for span in islice(startable(job.spans, now_ms), MAX_FED):
        chosen.append(_cut(span, room))
        room -= chosen[-1].count
        if room == 0:
            break
    return tuple(sorted(chosen, key=_first))


def missing(whole: tuple[Span, ...], part: tuple[Span, ...]) -> list[Span]:
    """What of `whole` is not in `part`."""
    out = []
    for span in whole:
        at = span.first
        for known in pieces(part, span.first, span.count):
            if at < known.first:
                out.append(replace(span, first=at, count=known.first - at))
            at = known.end
        if at < span.end:
            out.append(replace(span, first=at, count=span.end - at))
    return out


def _cut(span: Span, room: int) -> Span:
    return span if span.count <= room else replace(span, count=room)


def _first(span: Span) -> int:
    return span.first
