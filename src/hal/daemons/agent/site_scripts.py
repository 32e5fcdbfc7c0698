"""Prolog and epilog: the programs of the site that a node runs for each step, each as a gate with a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from hal.core.lifecycle.gates import Gate, GateRegister, GateWatch
from hal.core.model.gate import EPILOG, PROLOG, GatePhase, GatePolicy
from hal.core.model.node_config import NodeSection
from hal.daemons.agent.script_outcome import printable, run_site_program
from hal.runtime.identity import ProcessIdentity
from hal.runtime.interface import Runtime

MAX_SCRIPTS: Final = 32
"""Prologs and epilogs of one node that run at once; more wait for one of them to end."""


def gates_of(section: NodeSection) -> GateRegister:
    """Create the built-in gates of a node's section: after a failed prolog the task runs elsewhere; a failed epilog
    does not affect it."""
    register = GateRegister()
    if section.prolog:
        deadline_ms = int(section.prolog_timeout)
        register = register.add(
            Gate(name=PROLOG, phase=GatePhase.PREPARING, deadline_ms=deadline_ms, policy=GatePolicy.ELSEWHERE)
        )
    if section.epilog:
        deadline_ms = int(section.epilog_timeout)
        register = register.add(
            Gate(name=EPILOG, phase=GatePhase.FINALISING, deadline_ms=deadline_ms, policy=GatePolicy.IGNORE)
        )
    return register


class SiteScripts:
    """The scripts of one node."""

    def __init__(self, runtime: Runtime, section: NodeSection) -> None:
        self._runtime = runtime
        self._section = section
        self._register = gates_of(section)
        self._room = asyncio.Semaphore(MAX_SCRIPTS)

    def __bool__(self) -> bool:
        """Whether the node has any."""
        return bool(self._register.gates)

    def has(self, gate: str) -> bool:
        """Whether the node has that one."""
        return any(one.name == gate for one in self._register.gates)

    async def run(
        self, gate: str, phase: GatePhase, env: Mapping[str, str], began: Callable[[ProcessIdentity], None]
    ) -> GateWatch:
        """Run the script of a gate, when there is room; returns the gate's state afterwards.

        Args:
            began: called with its process.
        """
        section = self._section
        command, timeout = (
            (section.prolog, section.prolog_timeout) if gate == PROLOG else (section.epilog, section.epilog_timeout)
        )
        async with self._room:
            watch = self._register.enter(phase, self._runtime.now_ms())
            ended = await run_site_program(self._runtime, command, {**env, "HAL_SCRIPT": gate}, timeout, began)
        if not ended.reason:
            return watch.passed(gate)
        return watch.failed(
            gate, printable(f"{command[0]}: {ended.reason}" if command[0] not in ended.reason else ended.reason)
        )
