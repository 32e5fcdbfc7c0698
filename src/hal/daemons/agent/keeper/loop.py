"""The keeper's process: one thread, one selector; it wakes at least once a second and then reads the boot clock.

A turn: ready descriptors, ended children, the spawner's events → core → journal → helpers and agent. Signals: SIGTERM
and SIGINT hand over (steps continue under their helpers), SIGUSR1 ends every step first.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import selectors
import signal
from collections.abc import Callable
from typing import Final

from hal.daemons.agent.keeper.agent_link import AgentLink
from hal.daemons.agent.keeper.agent_process import AgentProcess
from hal.daemons.agent.keeper.core import KeeperCore
from hal.daemons.agent.keeper.helper_journal import BLOCK_BYTES
from hal.daemons.agent.keeper.old_outputs import OldOutputs
from hal.daemons.agent.keeper.outputs import OutputFiles
from hal.daemons.agent.keeper.ports import Instant
from hal.daemons.agent.keeper.spawner import HelperSpawner
from hal.daemons.agent.keeper.watch import read_clocks
from hal.wire.frames.agent_keeper import Usage
from hal.wire.frames.hello import Goodbye

PR_SET_CHILD_SUBREAPER: Final = 36
BOUND_EVERY_MS: Final = 1_000
BOUND_BUSY_MS: Final = 200
"""How often outputs are trimmed to their bound; more often while one grows fast."""
ACK_WAIT_MS: Final = 2_000
"""How long a shutdown waits for the controller to acknowledge exits."""
KILL_WAIT_MS: Final = 20_000
"""Longest shutdown with SIGUSR1."""


class Descriptors:
    """A `Watcher` over a selector."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def watch(self, fd: int, ready: Callable[[], None], *, write: bool = False) -> None:
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if write else 0)
        known = self._selector.get_map().get(fd)
        if known is None:
            self._selector.register(fd, events, ready)
        elif known.events != events or known.data != ready:
            self._selector.modify(fd, events, ready)

    def unwatch(self, fd: int) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(fd)

    def wait(self, timeout_ms: int) -> None:
        """Wait for any descriptor and call its handler if it is ready."""
        for key, _ in self._selector.select(timeout_ms / 1000):
            if self._selector.get_map().get(key.fd) is key:  # not unwatched by an earlier handler
                key.data()


class KeeperLoop:
    """Runs until it is asked to end."""

    def __init__(
        self,
        *,
        core: KeeperCore,
        spawner: HelperSpawner,
        outputs: OutputFiles,
        old_outputs: OldOutputs,
        descriptors: Descriptors,
        link: AgentLink,
        agent: AgentProcess | None,
        log: Callable[[str], None],
    ) -> None:
        self._core = core
        self._spawner = spawner
        self._outputs = outputs
        self._old_outputs = old_outputs
        self._descriptors = descriptors
        self._link = link
        self._agent = agent
        self._log = log
        self._next_bound_ms = 0
        self._deleting = False
        """There are outputs left to delete."""
        self._handing_over = False
        self._kill_deadline_ms = 0
        self._ack_deadline_ms = 0

    def run(self) -> None:
        """Serve until SIGTERM or SIGUSR1."""
        become_subreaper()
        self._take_signals()
        now = read_clocks()
        self._spawner.start_helpers(now)
        while not self._finished(now):
            self._descriptors.wait(self._timeout_ms(now))
            now = read_clocks()
            self._turn(now)
        self._link.send([Goodbye(code="stopping", reason="the keeper was asked to end")])
        if self._agent is not None:
            self._agent.stop()
        self._link.close()
        self._spawner.close()
        self._log("ended: its steps continue" if self._core.active_steps else "ended: no step is left")

    def _turn(self, now: Instant) -> None:
        self._reap(now)
        self._spawner.turn(now)
        self._tell_core(now)
        gone, frames = self._link.take()
        if gone:
            self._core.detached(now)
        for frame in frames:
            self._core.received(frame, now)
        self._core.wake(now)
        self._tell_core(now)
        self._deleting = self._outputs.work()
        self._core.report_forgotten()
        self._link.send(self._core.take_frames(now))
        if self._core.durable:
            self._spawner.confirm()
        if now.boot_ms >= self._next_bound_ms:
            busy = self._outputs.bound(self._core.output_bounds())
            self._next_bound_ms = now.boot_ms + (BOUND_BUSY_MS if busy else BOUND_EVERY_MS)
        if now.boot_ms >= self._old_outputs.next_boot_ms:
            self._old_outputs.advance(now, self._core.is_running)
        if self._agent is not None and not self._ending:
            self._agent.turn(now)

    def _tell_core(self, now: Instant) -> None:
        events = self._spawner.take_events()
        if events:
            self._core.handle_events(events, now)

    def _timeout_ms(self, now: Instant) -> int:
        if self._link.pending or self._deleting:
            return 0
        times = [
            self._core.next_wake(now),
            self._spawner.next_ms(),
            self._next_bound_ms,
            self._old_outputs.next_boot_ms,
        ]
        if self._agent is not None:
            times.append(self._agent.next_ms)
        return max(0, min(time for time in times if time) - read_clocks().boot_ms)

    def _reap(self, now: Instant) -> None:
        while True:
            try:
                pid, status, spent = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if self._agent is not None and self._agent.child_ended(pid, now):
                continue
            usage = Usage(
                round(spent.ru_utime * 1000),
                round(spent.ru_stime * 1000),
                spent.ru_maxrss << 10,
                spent.ru_inblock * BLOCK_BYTES,
                spent.ru_oublock * BLOCK_BYTES,
            )
            self._spawner.child_ended(pid, os.waitstatus_to_exitcode(status), usage, now)

    # ── ending ────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _ending(self) -> bool:
        return self._handing_over or self._kill_deadline_ms > 0

    def _finished(self, now: Instant) -> bool:
        if self._handing_over:
            return True
        if not self._kill_deadline_ms:
            return False
        if now.boot_ms >= self._kill_deadline_ms:
            return True
        if not self._core.idle:
            return False
        self._ack_deadline_ms = self._ack_deadline_ms or now.boot_ms + ACK_WAIT_MS
        return not self._core.unacknowledged or now.boot_ms >= self._ack_deadline_ms

    def _take_signals(self) -> None:
        wake_read, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)

        def drain() -> None:
            with contextlib.suppress(BlockingIOError):
                os.read(wake_read, 4096)

        self._descriptors.watch(wake_read, drain)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, frame: self._hand_over())
        signal.signal(signal.SIGUSR1, lambda number, frame: self._kill_all())

    def _hand_over(self) -> None:
        self._handing_over = True

    def _kill_all(self) -> None:
        if not self._kill_deadline_ms:
            now = read_clocks()
            self._kill_deadline_ms = now.boot_ms + KILL_WAIT_MS
            self._core.stop_all(now)


def become_subreaper() -> None:
    """Adopt processes whose parent dies: those of a killed helper are still seen to end.

    Raises:
        OSError: the kernel refused.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
