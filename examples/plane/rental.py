"""Renting machines for work that waits, and returning those that are idle.

A machine here is a node of its own on this host, a `hal agent`; of a cloud it would be an instance whose start script
runs the same command. Everything that HAL is told is what docs/renting.md describes.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from ledger import Ledger

from hal import AsyncClient, HALError, NotFoundError
from hal.client.rest import joining_calls
from hal.client.rest.ask_calls import WantInfo
from hal.client.rest.views import NodeInfo
from hal.core.model import NodeState

LABELS = {"pool": "spot"}
SHAPE = {"cpu": 1, "memory": "128MiB"}
SHAPE_BASE = {"cpu": 1_000, "memory": 128 << 20}
"""The same in base units, as waiting work says what it needs."""
OFFER_EXPIRES = "1m"
OFFER_EVERY_S = 20.0
WITHIN = "10s"
"""How long what still runs on a machine may take when the machine is returned."""
START_S = 120.0


class Rental:
    """Rents, watches and returns; call `look` again and again."""

    def __init__(self, client: AsyncClient, ledger: Ledger, directory: Path, *, most: int, idle_s: float) -> None:
        self._client, self._ledger, self._directory = client, ledger, directory
        self._most, self._idle_s = most, idle_s
        self._idle_since: dict[str, float] = {}
        self._offered_at = float("-inf")

    async def look(self, clock: Callable[[], float]) -> None:
        """Offer what could be rented, rent for what waits, return what is idle."""
        rented = self._ledger.machines()
        if clock() - self._offered_at >= OFFER_EVERY_S:
            left = max(1, self._most - len(rented))
            await self._client.put_offer("spot", SHAPE, labels=LABELS, count=left, expires_in=OFFER_EXPIRES)
            self._offered_at = clock()
        nodes = {node.name: node for node in await self._client.nodes()}
        for name in rented:
            await self._watch(name, nodes.get(name), clock())
        waiting = sum(want.tasks for want in (await self._client.wants()).classes if fits(want))
        idle = sum(1 for name in rented if name in nodes and not nodes[name].running)
        if waiting > idle and len(rented) < self._most:
            await self._rent(next(name for name in names(self._most) if name not in rented))

    async def _rent(self, name: str) -> None:
        self._ledger.rented(name)
        token = await self._client.call(joining_calls.create_token(expires_in="10m", node=name, labels=LABELS))
        machine = self._home(name)
        machine.mkdir(mode=0o700, parents=True, exist_ok=True)
        await _hal(
            machine,
            *("agent", "--no-restart", "--name", name, "--controller", token.wire, "--join", "-"),
            *("--cpus", str(SHAPE["cpu"]), "--memory", str(SHAPE["memory"])),
            text=token.token,
        )

    async def _watch(self, name: str, node: NodeInfo | None, now_s: float) -> None:
        """Return it when it was idle for long, or does not work."""
        if node is not None and (node.state is NodeState.UP or node.running):
            began_s = self._idle_since.setdefault(name, now_s)
            if node.running:
                self._idle_since[name] = now_s
            elif now_s - began_s >= self._idle_s:
                await self._client.drain(name, reason="idle", evict="requeue", within=WITHIN)
                await self._client.wait_drained(name)
                await self._return(name)
        elif node is None or not node.connected:
            await self._return(name)

    async def _return(self, name: str) -> None:
        """The machine ends first; then nothing of it can come back, and HAL forgets it."""
        await _hal(self._home(name), "down", "--kill")
        shutil.rmtree(self._home(name), ignore_errors=True)
        try:
            await self._client.fence(name, machine_gone=True, reason="returned")
            await self._client.remove_nodes(name)
        except NotFoundError:
            pass  # it never joined, or was removed before the plane was killed
        self._ledger.returned(name)
        self._idle_since.pop(name, None)

    def _home(self, name: str) -> Path:
        return self._directory / name


def fits(want: WantInfo) -> bool:
    """Whether a machine would help this work: it asks for the pool, and for no more than the machine has."""
    asks = any(one.label == "pool" and "spot" in one.values for one in want.constraints)
    return asks and want.nodes == 1 and all(SHAPE_BASE.get(name, 0) >= amount for name, amount in want.request.items())


def names(most: int) -> list[str]:
    return [f"spot-{number}" for number in range(1, most + 1)]


async def _hal(home: Path, *words: str, text: str = "") -> None:
    """`hal WORDS` for the node in that home; what it says goes to the plane's own output.

    Raises:
        HALError: it failed, or took too long: nothing may be said of the machine then.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hal.cli.main", "--home", str(home), *words),
        env={**os.environ, "HAL_HOME": str(home)},
        stdin=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(START_S):
            await process.communicate(text.encode() + b"\n")
    except TimeoutError:
        process.kill()
        await process.wait()
        raise HALError(f"hal {words[0]} took longer than {START_S:.0f} s") from None
    if process.returncode:
        raise HALError(f"hal {words[0]} ended with exit code {process.returncode}")
