"""What taking back must satisfy, in plain Python over dicts: it tries every set of victims, so clusters must be small.

It shares nothing with the kernels but the definitions: what a victim gives back, what it loses, when it is protected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import combinations
from math import inf

Amounts = dict[str, int]


@dataclass(frozen=True)
class Running:
    """One attempt that runs; `mode` is how its QOS lets it be taken back."""

    job: int
    quality: str
    mode: str
    grace_ms: int
    request: tuple[tuple[str, int], ...]
    nodes: tuple[str, ...]
    start_ms: int
    end_ms: int
    attempt: int = 1

    def gives(self) -> Amounts:
        """On each of its nodes."""
        given = dict(self.request)
        return {"cpu": given.get("cpu", 0)} if self.mode == "suspend" else given


@dataclass
class Scene:
    """A cluster at one instant, and the gang that waits."""

    now_ms: int
    capacity: dict[str, Amounts]
    running: list[Running]
    request: Amounts
    gang: int
    takes: set[str]
    min_run_ms: int
    going: set[int] = field(default_factory=set)
    prices: dict[int, float] | None = None
    """By job, what a plugin says instead of `lost`."""
    racks: dict[str, str] | None = None
    """Where the gang must be in one rack: the rack of each node, '' = it is in none."""

    def candidates(self) -> list[Running]:
        """Whom the waiting gang may take."""
        return [run for run in self.running if self.may_go(run)]

    def may_go(self, run: Running) -> bool:
        """Its QOS may be taken from, it is not protected by its youth, it does not leave by itself in its grace."""
        protected = run.attempt > 1 and self.now_ms < run.start_ms + (self.min_run_ms << (run.attempt - 2))
        never = self.prices is not None and self.prices[run.job] == inf
        return run.quality in self.takes and run.mode != "off" and not (protected or never or self.leaves(run))

    def leaves(self, run: Running) -> bool:
        """It ends by itself within the time that it would be given."""
        return (
            run.quality in self.takes and run.mode != "off" and self.now_ms < run.end_ms <= self.now_ms + run.grace_ms
        )

    def grace(self, run: Running) -> int:
        """How long it may take to leave."""
        return 0 if run.mode == "suspend" else run.grace_ms

    def lost(self, run: Running) -> float:
        """Time times what it holds, in thousandths of the largest node."""
        if self.prices is not None:
            return self.prices[run.job]
        if run.mode == "suspend":
            return 0
        elapsed = max(self.now_ms - run.start_ms, 0)
        if run.mode == "checkpoint":
            elapsed = min(elapsed, run.grace_ms)
        largest = {name: max(node.get(name, 0) for node in self.capacity.values()) for name, _ in run.request}
        weight = max([1, *(amount * 1000 // largest[name] for name, amount in run.request)])
        return elapsed * weight * len(run.nodes)

    def fitting(self, gone: Iterable[Running], *, until_ms: int | None = None) -> int:
        """On how many nodes, of one rack if need be, the request fits when these have left, and those that leave by
        themselves anyway.

        until_ms: instead of them, whatever ends by then by its plan.
        """
        leaving = {run.job: run for run in gone}
        count: Counter[str] = Counter({"": 0})
        for name, capacity in self.capacity.items():
            free = dict(capacity)
            for run in self.running:
                if name not in run.nodes:
                    continue
                for resource, amount in run.request:
                    free[resource] = free.get(resource, 0) - amount
                by_itself = self.now_ms < run.end_ms <= until_ms if until_ms is not None else self.leaves(run)
                back = dict(run.request) if by_itself else leaving[run.job].gives() if run.job in leaving else {}
                for resource, amount in back.items():
                    free[resource] = free.get(resource, 0) + amount
            rack = "anywhere" if self.racks is None else self.racks[name]
            count[rack] += (
                all(free.get(resource, 0) >= amount for resource, amount in self.request.items()) and rack != ""
            )
        return max(count.values())

    def enough(self, gone: Iterable[Running]) -> bool:
        """Whether the gang fits then."""
        return self.fitting(gone) >= self.gang

    def sets(self) -> list[tuple[Running, ...]]:
        """Every set of candidates that makes room."""
        all_of_them = self.candidates()
        return [
            chosen
            for size in range(1, len(all_of_them) + 1)
            for chosen in combinations(all_of_them, size)
            if self.enough(chosen)
        ]
