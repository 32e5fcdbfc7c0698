"""The metrics of a controller's process: counted from its start on, whether it leads or follows.

A controller that begins to lead gives it views of its state; one that follows takes them away.
"""

from __future__ import annotations

from collections.abc import Sequence

from hal.daemons.controller.metrics import declared
from hal.planes.tasks import GroupFigures
from hal.rest.endpoint import Endpoint
from hal.runtime.interface import Runtime
from hal.runtime.metrics.loop_lag import watch_lag
from hal.runtime.metrics.process import watch_process
from hal.runtime.metrics.registry import Registry
from hal.runtime.metrics.scrape import scrape

MS = 1_000
NO_OPERATION = "(none)"


class MetricsBook:
    """Of one process."""

    def __init__(self) -> None:
        registry = self.registry = Registry(declared.CONTROLLER)
        self.cycles = registry.histograms(declared.CYCLE).of()
        self.slices = registry.histograms(declared.SLICE).of()
        self.groups = registry.histograms(declared.GROUP).of()
        self.commits = registry.histograms(declared.COMMIT).of()
        self.commit_failures = registry.numbers(declared.COMMIT_FAILURES).of()
        self.faults = registry.numbers(declared.FAULTS)
        for met_in in ("request", "report", "node"):
            self.faults.of(met_in).add(0)  # a rule on their increase sees the first
        self.flushes = registry.histograms(declared.FLUSH).of()
        self._submit_to_start = registry.histograms(declared.SUBMIT_TO_START).of()
        self._queue_wait = registry.histograms(declared.QUEUE_WAIT)
        self._submitted = registry.numbers(declared.SUBMITTED)
        self._started = registry.numbers(declared.ATTEMPTS_STARTED)
        self._jobs_ended = registry.numbers(declared.JOBS_ENDED)
        self._attempts_ended = registry.numbers(declared.ATTEMPTS_ENDED)
        self._requests = registry.numbers(declared.REQUESTS)
        self._request = registry.histograms(declared.REQUEST)
        self._names: dict[str, str] = {}
        self.follow()

    def watch(self, runtime: Runtime, version: str) -> None:
        """Show the process itself, too: a real one, on a real loop."""
        self.registry.numbers(declared.BUILD).of(version).set(1)
        watch_process(self.registry)
        runtime.spawn_task(watch_lag(runtime, self.registry), "watch-lag")

    def count_group(self, figures: GroupFigures) -> None:
        """Count what was committed. O(queues, and different times)."""
        for queue, jobs in figures.submitted.items():
            self._submitted.of(queue).add(jobs)
        for (queue, wait_ms), tasks in figures.waited.items():
            self._queue_wait.of(queue).observe(wait_ms / MS, tasks)
        for (queue, passed_ms), tasks in figures.started.items():
            self._started.of(queue).add(tasks)
            self._submit_to_start.observe(passed_ms / MS, tasks)
        for (queue, result), attempts in figures.ended_attempts.items():
            self._attempts_ended.of(queue, result).add(attempts)
        for (queue, state), jobs in figures.ended_jobs.items():
            self._jobs_ended.of(queue, state.value).add(jobs)

    def name_operations(self, rows: Sequence[Endpoint]) -> None:
        """By which names `count_answer` counts."""
        self._names = {row.operation: row.name for row in rows}

    def count_answer(self, operation: str, status: int, taken_ns: int) -> None:
        """Count a request that was answered.

        Args:
            operation: as `Visit.operation`; empty where none was found.
        """
        name = self._names.get(operation, NO_OPERATION)
        self._requests.of(name, str(status)).add()
        self._request.of(name).observe(taken_ns / 1e9)

    def follow(self) -> None:
        """This controller does not lead (any more): what only a leader knows is not shown."""
        self.registry.drop_view("leader")
        for metric in declared.LEADING:
            self.registry.numbers(metric).clear()
        self.registry.numbers(declared.LEADER).of().set(0)

    async def scrape(self, runtime: Runtime, *, accept: str = "", operator: bool = True) -> tuple[bytes, str]:
        """See `hal.runtime.metrics.scrape`."""
        return await scrape(runtime, self.registry, accept=accept, operator=operator)
