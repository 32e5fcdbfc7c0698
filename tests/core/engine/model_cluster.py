"""A slow, obvious cluster in plain Python that watches what the engine does and objects when it breaks a promise.

It knows nothing of classes, buckets, windows or timelines: it keeps nodes as dicts and tasks one by one, applies the
same events, and checks each plan against first principles. It decides nothing: it is a judge, not a second scheduler.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

INF = 1 << 60


@dataclass
class Node:
    """Amounts in base units; `up` says whether new work may start."""

    capacity: dict[str, int]
    labels: dict[str, str]
    up: bool = True
    gone: bool = False
    domains: tuple[str, ...] = ()


@dataclass
class Task:
    """One task of one job, in plain fields."""

    job: int
    task: int
    attempt: int
    request: dict[str, int]
    gang: int
    constraints: tuple
    priority: int
    planned_ms: int
    eligible_ms: int
    held: bool
    state: str = "pending"
    nodes: tuple[str, ...] = ()
    start_ms: int = -1
    within: str = ""


@dataclass
class Cluster:
    """The judge."""

    nodes: dict[str, Node] = field(default_factory=dict)
    tasks: dict[tuple[int, int], Task] = field(default_factory=dict)
    levels: tuple[str, ...] = ()

    def running(self) -> list[Task]:
        return [t for t in self.tasks.values() if t.state == "running"]

    def waiting(self, now: int) -> list[Task]:
        """Tasks that may start now if there is room."""
        return [t for t in self.tasks.values() if t.state == "pending" and not t.held and t.eligible_ms <= now]

    def used(self, name: str) -> dict[str, int]:
        total: dict[str, int] = {}
        for t in self.running():
            if name in t.nodes:
                for r, n in t.request.items():
                    total[r] = total.get(r, 0) + n
        return total

    def free(self, name: str) -> dict[str, int]:
        used = self.used(name)
        return {r: n - used.get(r, 0) for r, n in self.nodes[name].capacity.items()}

    def may_host(self, task: Task, name: str) -> bool:
        """The node is up and its labels satisfy the task, whatever is free."""
        node = self.nodes[name]
        inside = not task.within or self.domain(name, task.within) is not None
        return inside and node.up and not node.gone and all(c.holds(node.labels) for c in task.constraints)

    def domain(self, name: str, level: str) -> tuple[str, ...] | None:
        """The domain of a level that a node is in."""
        domains = self.nodes[name].domains
        at = self.levels.index(level) if level in self.levels else -1
        return domains[: at + 1] if 0 <= at < len(domains) and domains[at] else None

    def together(self, task: Task, names: list[str]) -> int:
        """How many of these nodes a task may use: of one domain, where it asks for that."""
        if not task.within:
            return len(names)
        return max(Counter(self.domain(name, task.within) for name in names).values(), default=0)

    def start(self, job: int, task: int, attempt: int, names: tuple[str, ...], now: int) -> None:
        """Check one start of a plan against first principles, then let it hold its resources."""
        t = self.tasks.get((job, task))
        assert t is not None, f"{job}.{task} was never submitted"
        assert t.state == "pending", f"{job}.{task} is {t.state} and was started again"
        assert t.attempt == attempt, f"{job}.{task}: attempt {attempt} started, {t.attempt} expected"
        assert not t.held, f"{job}.{task} is held"
        assert t.eligible_ms <= now, f"{job}.{task} is not eligible before {t.eligible_ms}, now {now}"
        assert len(names) == t.gang, f"{job}.{task} needs {t.gang} nodes and got {names}"
        assert len(set(names)) == len(names), f"{job}.{task} got a node twice: {names}"
        assert self.together(t, list(names)) == len(names), f"{job}.{task} is not in one {t.within}: {names}"
        for name in names:
            assert self.may_host(t, name), f"{job}.{task} may not run on {name}"
            free = self.free(name)
            for r, n in t.request.items():
                assert n <= free.get(r, 0), f"{name} over-subscribed in {r} by {job}.{task}: {n} > {free.get(r, 0)}"
        t.state, t.nodes, t.start_ms = "running", names, now

    def earliest(self, task: Task, now: int) -> int:
        """When `task` could start if nothing else ever did: the first instant at which enough nodes fit it."""
        ends = {now}
        for t in self.running():
            end = INF if t.planned_ms >= INF else max(t.start_ms + t.planned_ms, now + 1)
            ends.add(end)
        for instant in sorted(ends):
            if instant >= INF:
                break
            if self._fitting(task, instant, now) >= task.gang:
                return instant
        return INF

    def possible(self, task: Task) -> bool:
        """Enough up nodes would fit it if they were empty."""
        fits = [
            name
            for name, node in self.nodes.items()
            if self.may_host(task, name) and all(node.capacity.get(r, 0) >= n for r, n in task.request.items())
        ]
        return self.together(task, fits) >= task.gang

    def _fitting(self, task: Task, instant: int, now: int) -> int:
        fits = []
        for name, node in self.nodes.items():
            if not self.may_host(task, name):
                continue
            free = dict(node.capacity)
            for t in self.running():
                end = INF if t.planned_ms >= INF else max(t.start_ms + t.planned_ms, now + 1)
                if name in t.nodes and end > instant:
                    for r, n in t.request.items():
                        free[r] = free.get(r, 0) - n
            if all(free.get(r, 0) >= n for r, n in task.request.items()):
                fits.append(name)
        return self.together(task, fits)
