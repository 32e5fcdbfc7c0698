"""Health checks of one node: HAL's own (disk, read-only file system, memory, clock) and programs of the site.

Each check has a verdict: it passes, or it fails with the reason of the moment in which it began to fail. When all have
been run once, and whenever one changes, the agent tells the controller all that fail; the controller lets nothing start
on the node until nothing fails. Load is no check: a busy node is a healthy one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from hal.core.model.node_config import BUILT_IN, CheckSection, NodeSection
from hal.core.model.units import format_amount
from hal.daemons.agent.script_outcome import outcome_of, printable
from hal.runtime.interface import Lane, Runtime
from hal.runtime.line_budget import BudgetedLog
from hal.wire.frames import FailingCheck, Health

AGAIN_MS: Final = 5_000
"""After one of HAL's own checks has failed they are looked at again this soon."""


CLOCK_ANSWERS: Final = 2
"""So many answers in a row must differ: one may have been on its way while both clocks were set."""


class Condition(NamedTuple):
    """How the machine is; None where it does not say."""

    disk_free_bytes: int | None = None
    """Of HAL_HOME's file system."""
    read_only: bool = False
    """That file system may not be written to."""
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
            condition: reads how the machine is; it may block.
            changed: gets all that fails, whenever that is another set.
        """
        self._runtime = runtime
        self._log = BudgetedLog(runtime.log, runtime.monotonic_ms)
        """A step that fills a disk and empties it again causes a line each time."""
        self._node = node
        self._section = section
        self._condition = condition
        self._changed = changed
        self._failing: dict[str, FailingCheck] = {}
        self._failures: dict[str, int] = {}
        """Runs that failed since the last that did not."""
        self._unknown = {"disk", *section.checks}
        """Checks that were never run."""

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._own())
            for name, check in self._section.checks.items():
                group.create_task(self._program(name, check))

    def health(self) -> Health | None:
        """All that fails; None before each check was run once, when what was told before still holds."""
        if self._unknown:
            return None
        return Health(failing=tuple(self._failing[name] for name in sorted(self._failing)))

    def controller_says(self, controller_ms: int, took_ms: int) -> None:
        """The controller told its time in an answer that came `took_ms` after the question."""
        bound_ms, now_ms = int(self._section.health.clock_skew), self._runtime.now_ms()
        if not bound_ms or not controller_ms:
            return
        sent_ms = now_ms - took_ms
        # It was that time there at some instant between sending and now: only what lies outside of these is skew.
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
            ended = await outcome_of(self._runtime, check.command, env, check.timeout)
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
