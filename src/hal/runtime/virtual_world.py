"""The virtual world: hosts, processes and a network under virtual time, all from one seed.

    with VirtualWorld(seed=7) as world:
        host = world.host("n1")
        controller = world.start(host, "controller", main)     # main(runtime), as for the real runtime
        world.run(driver())                                    # a coroutine of the test, outside every process
        controller.kill()                                      # as SIGKILL, at this very point

One seed gives one run, the same byte for byte: `world.digest()` covers every byte sent, every log line, every blocking
call, start and end. Hours pass in milliseconds.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextvars import Context
from pathlib import Path
from typing import Any, Final, TypeVar

from hal.core.model.errors import NotFoundError, TimedOutError
from hal.runtime.home import Home
from hal.runtime.interface import Credentials
from hal.runtime.script_end import ScriptEnd
from hal.runtime.virtual_directory import VirtualDisk
from hal.runtime.virtual_loop import VirtualLoop
from hal.runtime.virtual_network import Conditions, VirtualNetwork
from hal.runtime.virtual_process import Main, VirtualProcess
from hal.wire.peer import CertifiedName

T = TypeVar("T")

EPOCH_MS: Final = 1_767_225_600_000
"""The wall clocks' time when a world begins: 2026-01-01."""
BOOTED_BEFORE_MS: Final = 3_600_000
"""How long a host has been up when it is created."""
KEPT_TRACE_LINES: Final = 5_000
"""The newest lines of the trace that are kept for reading; the digest covers all lines."""
POLL_S: Final = 0.005


class SimulatedFaultError(Exception):
    """A process of the world ended by its own fault; the text has the process, the time and the newest trace."""


class VirtualHome(Home):
    """A home of a virtual host: paths only; nothing is created on any disk."""

    __slots__ = ()

    def socket_dir(self) -> Path:
        return self.run_dir

    def known_socket_dir(self) -> Path | None:
        return self.run_dir

    def drop_socket_dir(self) -> None:
        """Nothing to remove."""

    def create(self) -> None:
        """Nothing to create."""

    def exists(self) -> bool:
        return True

    def token_text(self) -> str:
        return "0" * 64


class VirtualHost:
    """A machine: its processes, clocks, and what outlives its processes.

    Attributes:
        processes: those that run, by pid; `dead` are those that ended.
        disk: whatever daemons store on it (a `MemoryDatabase`, a journal), by name; survives kills and power loss.
        programs: what `start_process` starts: the first argument that is a key here selects the main, created from the
            whole argument list.
    """

    def __init__(self, world: VirtualWorld, name: str, *, uid: int) -> None:
        self.world = world
        self.name = name
        self.uid = uid
        self.home = VirtualHome(f"/virtual/{name}/hal")
        self.disk: dict[str, Any] = {}
        self.directories = VirtualDisk(f"{world.seed}/{name}")
        """What processes keep through `Runtime.open_directory`."""
        self.programs: dict[str, Callable[[Sequence[str]], tuple[str, Main]]] = {}
        self.scripts: dict[str, Callable[[Mapping[str, str]], tuple[int, ScriptEnd]]] = {}
        """What `run_script` runs, by program: a function from the environment to its duration and its end."""
        self.services: dict[str, Callable[[bytes], tuple[int, bytes]]] = {}
        """What answers `ask_service`, by the socket's file name: a function from a line to how many milliseconds its
        answer takes, and the answer; empty: it closes the connection."""
        self.processes: dict[int, VirtualProcess] = {}
        self.dead: list[VirtualProcess] = []
        self.boots = 0
        self.wall_ahead_ms = 0
        self.name_shown: CertifiedName | None = None
        """What processes that specify no credentials present over TCP."""
        self.rate = 1.0
        """The rate of its clocks; set it before anything runs on the host."""
        self._booted_s = 0.0
        self._boot()

    @property
    def boot_id(self) -> str:
        return f"{self.name}-boot-{self.boots}"

    def now_ms(self) -> int:
        return EPOCH_MS + self.wall_ahead_ms + round(self.world.loop.time() * self.rate * 1000)

    def boot_ms(self) -> int:
        return BOOTED_BEFORE_MS + round((self.world.loop.time() - self._booted_s) * self.rate * 1000)

    def jump_clock(self, ms: int) -> None:
        """Move the wall clock forward, or back if negative."""
        self.wall_ahead_ms += ms

    def suspend(self) -> None:
        """Stop everything on it; its boot clock continues."""
        self.world.note(self.name, "suspended", "")
        for process in list(self.processes.values()):
            process.pause()

    def thaw(self) -> None:
        """Continue everything; what became due meanwhile happens now."""
        self.world.note(self.name, "thawed", "")
        for process in list(self.processes.values()):
            process.resume()

    def power_off(self) -> None:
        """Kill everything at once; the disk remains. The host's next process begins a new boot."""
        for process in list(self.processes.values()):
            process.kill()
        self.directories.lose_power()
        self.world.note(self.name, "power off", "")
        self._boot()

    def certify(self, file: Path, name: CertifiedName) -> None:
        """Put a certificate into this file of the host, which its processes then present over TCP. No cryptography:
        the other end sees the name itself."""
        self.disk[str(file)] = name

    def certified(self, credentials: Credentials | None) -> CertifiedName | None:
        """The name that these credentials present on this host."""
        if credentials is None:
            return self.name_shown
        found = self.disk.get(str(credentials.certificate))
        return found if isinstance(found, CertifiedName) else None

    def start_program(self, argv: Sequence[str]) -> VirtualProcess:
        """Create the main of `python -m …` on this host.

        Raises:
            NotFoundError: no argument is one of `programs`.
        """
        for argument in argv:
            if argument in self.programs:
                name, main = self.programs[argument](argv)
                return self.world.start(self, name, main)
        raise NotFoundError(f"{' '.join(argv)} cannot be started: host {self.name} has no such program")

    def _boot(self) -> None:
        self.boots += 1
        self._booted_s = self.world.loop.time()


class VirtualWorld:
    """One whole simulation."""

    def __init__(self, seed: int, conditions: Conditions | None = None) -> None:
        self.seed = seed
        self.loop = VirtualLoop()
        self.context = Context()
        """The context of the world's own callbacks, which belong to no process."""
        self.conditions = conditions or Conditions()
        self.hosts: dict[str, VirtualHost] = {}
        self.faults: list[tuple[str, BaseException | None]] = []
        """Faults that occurred by themselves: description and exception."""
        self.trace: deque[str] = deque(maxlen=KEPT_TRACE_LINES)
        self.errors: deque[str] = deque(maxlen=KEPT_TRACE_LINES)
        """The newest trace lines that are errors in a log."""
        self.tasks: list[asyncio.Task[Any]] = []
        """Unfinished tasks of dead processes, kept so that none is collected, and thereby unwound, while the world
        runs."""
        self.closing = False
        self._digest = hashlib.blake2b(digest_size=16)
        self._next_pid = 1_000
        self.network = VirtualNetwork(self, self.rng("network"), self.conditions)

    def __enter__(self) -> VirtualWorld:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def rng(self, purpose: str) -> random.Random:
        """Random numbers for one purpose, so that one use does not shift another."""
        return random.Random(f"{self.seed}/{purpose}")

    def host(self, name: str, *, uid: int = 1000) -> VirtualHost:
        """The host of that name, created on first use."""
        if name not in self.hosts:
            self.hosts[name] = VirtualHost(self, name, uid=uid)
        return self.hosts[name]

    def start(self, host: VirtualHost, name: str, main: Main) -> VirtualProcess:
        """Start a process; its `main(runtime)` begins after a seeded delay."""
        self._next_pid += 1
        return VirtualProcess(self, host, name, main, pid=self._next_pid)

    # ── running ───────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self, driver: Coroutine[Any, Any, T]) -> T:
        """Run the world until the driver has ended; returns its result.

        Raises:
            SimulatedFaultError: a process failed by itself, or a callback raised.
            SimulationStuckError: nothing can happen any more, or something spins.
        """
        work = self.loop.create_task(driver, name="driver")
        try:
            result = self.loop.run_until_complete(work)
        except BaseException:
            if self.faults or self.loop.stray:
                self.check()
            raise
        self.check()
        return result

    def run_for(self, ms: int) -> None:
        """Let that much virtual time pass."""
        self.run(asyncio.sleep(ms / 1000))

    async def until(self, holds: Callable[[], bool], *, limit_ms: int, what: str) -> None:
        """For drivers: wait until `holds()`, checking every 5 virtual ms.

        Raises:
            TimedOutError: it does not hold within `limit_ms` of virtual time.
            SimulatedFaultError: a process failed by itself meanwhile.
        """
        deadline_s = self.loop.time() + limit_ms / 1000
        while not holds():
            self.check()
            if self.loop.time() > deadline_s:
                raise TimedOutError(f"seed {self.seed}: {what}: not within {limit_ms} ms\n{self.tail()}")
            await asyncio.sleep(POLL_S)

    def check(self) -> None:
        """Raise if something failed that was not made to fail.

        Raises:
            SimulatedFaultError: it did.
        """
        problems = [*self.faults, *((f"{type(error).__name__}: {error}", error) for error in self.loop.stray)]
        if problems:
            text = "\n".join(words for words, _ in problems)
            raise SimulatedFaultError(f"seed {self.seed}: {text}\n{self.tail()}") from problems[0][1]

    def close(self) -> None:
        """End everything, unwind what was killed, and close the loop. Nothing is checked or traced any more."""
        for host in self.hosts.values():
            for process in list(host.processes.values()):
                process.kill()
        self.closing = True
        tasks = list(self.tasks)
        for host in self.hosts.values():
            for process in host.dead:
                process.release()
        self.loop.unwind(tasks)
        for task in tasks:
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
        self.loop.stray.clear()
        self.loop.close()

    # ── the trace ─────────────────────────────────────────────────────────────────────────────────────────────────

    def note(self, who: str, what: str, detail: str) -> None:
        """Add a line to the trace."""
        if not self.closing:
            line = f"{self.loop.time():.6f} {who} {what} {detail}"
            self._digest.update(line.encode() + b"\n")
            self.trace.append(line)
            if what == "error":
                self.errors.append(line)

    def digest(self) -> str:
        """Checksum of the whole trace so far: equal for equal runs."""
        return self._digest.hexdigest()

    def tail(self, lines: int = 40) -> str:
        """The newest lines of the trace."""
        return "\n".join(list(self.trace)[-lines:])
