"""What a leader's state amounts to in gauges, worked out at each scrape: O(queues + nodes / 1,000), never O(jobs)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from hal.core.kernels.structures import layout as L
from hal.core.model.devices import GPU, is_counted_beside
from hal.daemons.controller.metrics import declared
from hal.daemons.controller.metrics.book import MetricsBook
from hal.daemons.controller.service.parts import Parts
from hal.runtime.metrics.registry import LabelledValue, replace_all

MILLI = {"cpu": 1_000.0, GPU: 1_000.0}
"""Base units of one, of resources that are counted in thousandths."""


class LeaderViews:
    """Of one controller that leads."""

    def __init__(
        self,
        parts: Parts,
        book: MetricsBook,
        advice_ages_s: Callable[[], Mapping[str, float]],
        planes_up: Callable[[], Mapping[str, bool]],
    ) -> None:
        """
        Args:
            advice_ages_s: how long ago each kind was put.
            planes_up: whether each announced plane still announces itself.
        """
        self._planes_up = planes_up
        self._parts = parts
        self._book = book
        self._advice_ages_s = advice_ages_s

    def attach(self) -> None:
        """Show them at each scrape from now on."""
        registry = self._book.registry
        registry.numbers(declared.LEADER).of().set(1)
        registry.before_scrape("leader", self._look)

    def _look(self) -> None:
        numbers = self._book.registry.numbers
        parts, plane = self._parts, self._parts.plane
        numbers(declared.EPOCH).of().set(float(parts.committer.epoch))
        numbers(declared.DURABLE).of().set(0.0 if parts.loop.trouble else 1.0)
        numbers(declared.WAITING_CALLS).of().set(float(parts.loop.inbox.calls_waiting))
        replace_all(numbers(declared.JOBS), ((_key(*key), float(n)) for key, n in plane.tally.jobs.items()))
        replace_all(numbers(declared.TASKS), ((_key(*key), float(n)) for key, n in plane.tally.tasks.items()))
        now_ms = parts.runtime.now_ms()
        waits = plane.tally.waits.since_ms()
        oldest = (((queue,), max(now_ms - since_ms, 0) / 1_000) for queue, since_ms in waits)
        replace_all(numbers(declared.OLDEST_WAIT), oldest)
        replace_all(numbers(declared.NODES), (((s.value,), float(n)) for s, n in plane.node_states.items() if n))
        numbers(declared.AGENTS).of().set(float(parts.agents.connected_count))
        self._look_at_limits()
        self._look_at_resources()
        self._look_at_feeds()
        self._look_at_advice()
        in_service = parts.loop.planes_in_service()
        replace_all(numbers(declared.PLANE), (((name,), float(works)) for name, works in in_service.items()))
        announced = self._planes_up()
        replace_all(numbers(declared.ANNOUNCED), (((name,), float(up)) for name, up in announced.items()))

    def _look_at_limits(self) -> None:
        used: dict[str, float] = {}
        for row in self._parts.engine.ledgers():
            if row.name.limit and row.limit > 0:
                used[row.name.limit] = max(used.get(row.name.limit, 0.0), row.used / row.limit)
        replace_all(self._book.registry.numbers(declared.LIMIT_USED), (((name,), part) for name, part in used.items()))

    def _look_at_resources(self) -> None:
        numbers, nodes = self._book.registry.numbers, self._parts.engine.state.nodes
        count, resources = len(nodes.names), len(nodes.resources)
        capacity, free = nodes.capacity[:count, :resources], nodes.free[:count, :resources]
        up = nodes.rows[:count, L.N_STATE] == L.NODE_UP
        withheld = np.zeros_like(capacity)
        for node, amounts in nodes.withheld.items():
            for resource, amount in amounts.items():
                withheld[node, resource] = amount
        held = np.maximum(capacity - free - withheld, 0).sum(axis=0)
        for metric, amounts in (
            (declared.CAPACITY, capacity[up].sum(axis=0)),
            (declared.FREE, np.maximum(free[up], 0).sum(axis=0)),
            (declared.ALLOCATED, held),
        ):
            replace_all(numbers(metric), _by_resource(nodes.resources, amounts.tolist()))

    def _look_at_feeds(self) -> None:
        numbers, parts = self._book.registry.numbers, self._parts
        newest = {"attempts": parts.ends.flushed, "events": parts.watchers.flushed_seq}
        replace_all(numbers(declared.FEED_NEWEST), (((feed,), float(number)) for feed, number in newest.items()))
        numbers(declared.WATCHERS).of().set(float(len(parts.watchers)))
        lags: list[LabelledValue] = []
        for name, row in parts.readers.rows.items():
            for feed, read in (("attempts", row.attempts), ("events", row.events)):
                if read is not None:
                    lags.append(((name, feed), float(max(newest[feed] - read, 0))))
        replace_all(numbers(declared.READER_LAG), lags)

    def _look_at_advice(self) -> None:
        numbers, parts = self._book.registry.numbers, self._parts
        kinds = parts.engine.state.advice.kinds
        replace_all(numbers(declared.ADVICE_KEYS), (((name,), float(kind.keys)) for name, kind in kinds.items()))
        replace_all(numbers(declared.ADVICE_AGE), (((name,), age_s) for name, age_s in self._advice_ages_s().items()))


def _key(queue: str, state: str) -> tuple[str, str]:
    return queue, str(state)


def _by_resource(names: list[str], amounts: list[int]) -> Iterable[LabelledValue]:
    for name, amount in zip(names, amounts, strict=True):
        if not is_counted_beside(name):
            yield (name,), amount / MILLI.get(name, 1.0)
