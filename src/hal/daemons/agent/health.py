"""Health checks of one node: HAL's own (disk, read-only file system, memory, clock) and programs of the site.

Each check passes, or fails with the reason at the moment when it began to fail. When all have run once, and whenever
one changes, the agent reports all failing checks to the controller, which starts nothing on the node until none fails.
Load is not a check: a busy node is healthy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from hal.core.model.node_config import BUILT_IN, CheckSection, NodeSection
from hal.core.model.units import format_amount
from hal.daemons.agent.script_outcome import printable, run_site_program
from hal.runtime.interface import Lane, Runtime
from hal.runtime.line_budget import BudgetedLog
from hal.wire.frames.controller_agent import FailingCheck, Health

AGAIN_MS: Final = 5_000
"""After one of HAL's own checks has failed, they run again this soon."""


CLOCK_ANSWERS: Final = 2
"""This many consecutive answers must differ: one may have been on its way while both clocks were set."""


class Condition(NamedTuple):
    """The condition of the machine; None where unknown."""

    disk_free_bytes: int | None = None
    """Of HAL_HOME's file system."""
    read_only: bool = False
    """That file system is read-only."""
    memory_free_bytes: int | None = None


class NodeChecks:
    """All checks of one node."""

    def __init__(
        self,
        runtime: Runtime,
        node: str,
        section: NodeSection,
        condition: Callable[[], Condition],
        changed: Callable[[Health], None],
    ) -> None:
        """Nothing runs before `run`.

        Args:
            condition: reads the machine's condition; it may block.
            changed: called with all failing checks, whenever that set changes.
        """
        self._runtime = runtime
        self._log = BudgetedLog(runtime.log, runtime.monotonic_ms)
        """A step that repeatedly fills and empties a disk causes a log line each time."""
        self._node = node
        self._section = section
        self._condition = condition
        self._changed = changed
        self._failing: dict[str, FailingCheck] = {}
        self._failures: dict[str, int] = {}
        """Consecutive failed runs."""
        self._unknown = {"disk", *section.checks}
        """Checks that have never run."""

    async def run(self) -> None:
        """Run the checks until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._own())
            for name, check in self._section.checks.items():
                group.create_task(self._program(name, check))

    def health(self) -> Health | None:
        """Return all failing checks; None before each check has run once, while the former report remains valid."""
        if self._unknown:
            return None
        return Health(failing=tuple(self._failing[name] for name in sorted(self._failing)))

    def compare_clocks(self, controller_ms: int, took_ms: int) -> None:
        """Compare clocks: the controller sent its time in an answer that arrived `took_ms` after the question."""
        bound_ms, now_ms = int(self._section.health.clock_skew), self._runtime.now_ms()
        if not bound_ms or not controller_ms:
            return
        sent_ms = now_ms - took_ms
        # The controller's clock was read at some instant between question and answer: only a difference beyond that is
        # skew.
        behind_ms, ahead_ms = controller_ms - now_ms, sent_ms - controller_ms
        skew_ms, word = max((behind_ms, "behind"), (ahead_ms, "ahead of"))
        reason = f"the clock is {skew_ms / 1000:.1f} s {word} the controller's; {bound_ms / 1000:g} s are allowed"
        self._verdict("clock", reason if skew_ms > bound_ms else "", CLOCK_ANSWERS)

    # ── HAL's own ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _own(self) -> None:
        health = self._section.health
        while True:
            found = await self._runtime.run_blocking(self._condition, Lane.READER)
            home = self._runtime.paths.root
            self._verdict("read-only", f"the file system of {home} may only be read" if found.read_only else "")
            self._verdict("memory", _too_little(found.memory_free_bytes, health.memory_free_bytes, "of memory"))
            self._verdict("disk", _too_little(found.disk_free_bytes, health.disk_free_bytes, f"at {home}"))
            fails = not self._failing.keys().isdisjoint(BUILT_IN)
            await self._runtime.sleep(min(int(health.every), AGAIN_MS) if fails else int(health.every))

    # ── the site's ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _program(self, name: str, check: CheckSection) -> None:
        env = {"HAL_NODE": self._node, "HAL_HOME": str(self._runtime.paths.root), "HAL_CHECK": name}
        while True:
            ended = await run_site_program(self._runtime, check.command, env, check.timeout)
            self._verdict(name, ended.reason, check.failures)
            await self._runtime.sleep(int(check.every))

    # ── verdicts ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _verdict(self, name: str, reason: str, needed: int = 1) -> None:
        """One run: it failed for that reason, or passed. Of the first run, one failure is enough."""
        first = name in self._unknown
        self._unknown.discard(name)
        before = self._failing.keys() | set()
        if not reason:
            self._failures.pop(name, None)
            self._failing.pop(name, None)
        else:
            self._failures[name] = self._failures.get(name, 0) + 1
            if name not in self._failing and (first or self._failures[name] >= needed):
                self._failing[name] = FailingCheck(name, printable(reason), self._runtime.now_ms())
        if (first and not self._unknown) or before != self._failing.keys():
            self._tell(name)

    def _tell(self, name: str) -> None:
        found = self._failing.get(name)
        if found is not None:
            self._log.warning("a check fails", check=name, reason=found.reason)
        health = self.health()
        if health is not None:
            self._changed(health)


def _too_little(there: int | None, wanted: int, where: str) -> str:
    if there is None or there >= wanted:
        return ""
    return f"{format_amount('memory', there)} free {where}; {format_amount('memory', wanted)} are wanted"
