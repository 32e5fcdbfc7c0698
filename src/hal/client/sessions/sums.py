"""The numbers of the brokers of one session as one. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, islice, zip_longest

from hal.wire.frames.sessions import (
    MAX_GROUPS_TOLD,
    MAX_SLOTS_TOLD,
    GroupNumbers,
    SessionNumbers,
    ShapeNumbers,
)


def sum_of(shards: Sequence[SessionNumbers]) -> SessionNumbers:
    """What a session does that has these brokers, one at least. A client has a connection to each of them."""
    if len(shards) == 1:
        return shards[0]
    return SessionNumbers(
        uptime_ms=max(one.uptime_ms for one in shards),
        clients=max(one.clients for one in shards),
        waiting=sum(one.waiting for one in shards),
        unanswered=sum(one.unanswered for one in shards),
        done=sum(one.done for one in shards),
        busy=sum(one.busy for one in shards),
        slots=sum(one.slots for one in shards),
        latencies=_added(one.latencies for one in shards),
        latency_ms=sum(one.latency_ms for one in shards),
        ended=_added(one.ended for one in shards),
        retried=sum(one.retried for one in shards),
        lost_workers=sum(one.lost_workers for one in shards),
        each=tuple(islice(chain.from_iterable(one.each for one in shards), MAX_SLOTS_TOLD)),
        functions=_groups(one.functions for one in shards),
        tags=_groups(one.tags for one in shards),
        seconds=_added_from_end(one.seconds for one in shards),
        minutes=_added_from_end(one.minutes for one in shards),
        shapes=_shapes(one.shapes for one in shards),
    )


def _added(columns: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """Sums of what is at the same index."""
    return tuple(map(sum, zip_longest(*columns, fillvalue=0)))


def _added_from_end(columns: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """The same, counted from the end."""
    return _added(column[::-1] for column in columns)[::-1]


def _groups(shards: Iterable[Iterable[GroupNumbers]]) -> tuple[GroupNumbers, ...]:
    found: dict[str, GroupNumbers] = {}
    for one in chain.from_iterable(shards):
        before = found.get(one.name)
        if before is not None:
            one = GroupNumbers(
                name=one.name,
                done=before.done + one.done,
                failed=before.failed + one.failed,
                retried=before.retried + one.retried,
                busy_us=before.busy_us + one.busy_us,
            )
        found[one.name] = one
    return tuple(sorted(found.values(), key=lambda one: -one.busy_us)[:MAX_GROUPS_TOLD])


def _shapes(shards: Iterable[Iterable[ShapeNumbers]]) -> tuple[ShapeNumbers, ...]:
    found: dict[str, ShapeNumbers] = {}
    for one in chain.from_iterable(shards):
        before = found.get(one.shape)
        if before is not None:
            one = ShapeNumbers(shape=one.shape, wanted=before.wanted + one.wanted, slots=before.slots + one.slots)
        found[one.shape] = one
    return tuple(found.values())
