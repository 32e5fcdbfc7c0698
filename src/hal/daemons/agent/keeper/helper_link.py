"""The keeper's end of one helper: starting its process, messages to and from it, and what it has not answered yet."""

from __future__ import annotations

import marshal
import os
import socket
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from hal.core.model import StepId
from hal.daemons.agent.keeper.ports import Launch
from hal.daemons.agent.keeper.watch import Watcher
from hal.wire.frames.agent_keeper import StepTemplate

RECORDER_SCRIPT: Final = str(Path(__file__).with_name("recorder.py"))
GUARD_SCRIPT: Final = str(Path(__file__).with_name("guard.py"))
GUARD_LEASE_FD: Final = 3
MAX_OUTSTANDING: Final = 8
"""Launches that one helper has received and not answered."""
MAX_AHEAD: Final = 16
"""Steps that wait for a slot at one helper: two batches of what it reports together."""
MAX_RECIPES: Final = 64
"""Templates that a helper remembers."""
CONFIRM_EVERY: Final = 64
"""Ends after which a helper is told that it can forget them."""
READ_BYTES: Final = 1 << 16
"""Bytes read at once; a larger buffer would be mapped and unmapped for each message, however small it is."""

Receive = Callable[["HelperLink", tuple[Any, ...]], None]


class HelperLink:
    """One helper process."""

    def __init__(self, journal: Path, watcher: Watcher, receive: Receive, log_fd: int, *, lease_fd: int = -1) -> None:
        """Start it.

        Args:
            lease_fd: of the memory with the end of the lease: its steps die with the lease, and all of it with this
                process; -1: it outlives both.
        Raises:
            OSError: no process or no descriptor could be created.
        """
        self.journal = journal
        self.outstanding: dict[StepId, Launch] = {}
        """Sent, and neither spawned nor failed yet."""
        self.ahead: dict[StepId, Launch] = {}
        """Sent ahead, to wait for the slot of a step of its job."""
        self._recalled: set[StepId] = set()
        """Of those, the recalled ones."""
        self.places: Counter[int] = Counter()
        """Steps that run or are about to, by job."""
        self.running: dict[StepId, int] = {}
        """Pid by step, of those whose end it has not reported."""
        self.strays = False
        """It has children that are not first processes of steps: remnants of ended steps."""
        self.taken_seq = 0
        """Number of the last end that it reported."""
        self.confirmed_seq = 0
        self.unsettled: dict[StepId, int] = {}
        """Reported ends, by step, that the keeper's own journal does not contain yet, because something is left of
        the step."""
        self.heard = False
        """It has sent something since this was last reset."""
        self.silent_looks = 0
        """Checks since it was asked for an echo and has sent nothing; 0: it was not asked."""
        self.good_looks = 0
        """Checks at which it had sent something, or had nothing to send."""
        self.wakes = 0
        """How often it was recently sent SIGCONT."""
        self.open = True
        self.ended = False
        """The helper has died: its end of the socket is closed."""
        self._watcher = watcher
        self._receive = receive
        self._recipes: OrderedDict[int, tuple[int, StepTemplate]] = OrderedDict()
        self._recipe_count = 0
        self._incoming = bytearray()
        self._outgoing = bytearray()
        self._messages: list[tuple[Any, ...]] = []
        """Queued messages, sent together."""
        ours, theirs = socket.socketpair()
        with theirs:
            ours.setblocking(False)
            self._socket = ours
            actions: tuple[tuple[int, int, int], ...] = (
                (os.POSIX_SPAWN_DUP2, theirs.fileno(), 0),
                (os.POSIX_SPAWN_DUP2, log_fd, 1),
                (os.POSIX_SPAWN_DUP2, log_fd, 2),
            )
            script = [RECORDER_SCRIPT, str(journal)]
            if lease_fd >= 0:
                script = [GUARD_SCRIPT, str(os.getpid()), str(journal), str(GUARD_LEASE_FD)]
                actions = (*actions, (os.POSIX_SPAWN_DUP2, lease_fd, GUARD_LEASE_FD))
            argv = [sys.executable, "-I", "-S", *script]
            try:
                self.pid = os.posix_spawn(sys.executable, argv, os.environ, file_actions=actions, setsid=True)
            except OSError:
                ours.close()
                raise
        self.worker = self.pid
        """Pid of the helper itself, once reported; `pid` is that of its recorder or guard."""
        self.greeted = False
        """Whether it has reported its pid: before that, it spawns nothing."""
        watcher.watch(ours.fileno(), self.ready)

    def launch(
        self, launch: Launch, env: dict[str, str], prefix: str, slot: str, moves: Sequence[tuple[str, str]]
    ) -> None:
        """Order one step; `env` is its template's, complete; `prefix` is the beginning of its files' paths."""
        recipe = self._recipe(launch.template, env)
        self.outstanding[launch.step] = launch
        self.places[launch.step.job] += 1
        self._queue("S", *_order(launch, recipe, prefix, slot, moves))

    def launch_ahead(
        self,
        launch: Launch,
        env: dict[str, str],
        prefix: str,
        slot: str,
        moves: Sequence[tuple[str, str]],
        until_boot_ms: int,
    ) -> None:
        """Order one step that waits here until a step of its job has ended."""
        recipe = self._recipe(launch.template, env)
        self.ahead[launch.step] = launch
        self._queue("Q", *_order(launch, recipe, prefix, slot, moves, until_boot_ms))

    @property
    def busy(self) -> bool:
        """Whether it will have something to report."""
        return bool(self.running or self.outstanding or self.ahead)

    def ask(self) -> None:
        """Ask for an echo."""
        self._queue("E")
        self.flush()

    def recall(self, steps: Sequence[StepId]) -> None:
        """Recall those of these steps that wait."""
        waiting = [step for step in steps if step in self.ahead and step not in self._recalled]
        if waiting:
            self._recalled.update(waiting)
            self._queue("K", [str(step) for step in waiting])
            self.flush()

    def returned(self, step: StepId) -> None:
        """Handle a step that no longer waits here, and has not begun."""
        self.ahead.pop(step, None)
        self._recalled.discard(step)
        if self.outstanding.pop(step, None) is not None:  # it got a slot here while its return was on the way
            self._one_place_less(step.job)

    def pass_slot(self, step: StepId, heir: StepId | None, *, free: bool = True) -> StepId | None:
        """Handle a step that has ended here, or failed to start.

        Args:
            step: which.
            heir: who has its slot now, as the helper reports; None: nobody waited there.
            free: nothing is left of the step, so that its slot may be passed on.

        Returns: who gets the slot, including a step that was on its way to the helper when the step ended; None if it
        is free.
        """
        self.outstanding.pop(step, None)
        self.running.pop(step, None)
        if heir is None and free:
            lane = (one for one in self.ahead if one.job == step.job and one not in self._recalled)
            heir = next(lane, None)
            if heir is not None:
                self._queue("B", str(heir), str(step))
                self.flush()
        if heir is not None and (waiting := self.ahead.pop(heir, None)) is not None:
            self._recalled.discard(heir)
            self.outstanding[heir] = waiting
            return heir
        self._one_place_less(step.job)
        return heir

    def _one_place_less(self, job: int) -> None:
        self.places[job] -= 1
        if self.places[job] <= 0:
            del self.places[job]
            self.recall([waiting for waiting in self.ahead if waiting.job == job])

    def confirm(self) -> None:
        """Tell the helper, once there are many, which of its reported ends are in the keeper's journal."""
        settled_seq = min(self.unsettled.values(), default=self.taken_seq + 1) - 1
        if self.open and settled_seq - self.confirmed_seq >= CONFIRM_EVERY:
            self.confirmed_seq = settled_seq
            self._queue("A", settled_seq)
            self.flush()

    def flush(self) -> None:
        """Send what is queued; what does not fit waits."""
        if not (self._outgoing or self._messages) or not self.open:
            return
        if self._messages:
            data = marshal.dumps(self._messages)
            self._messages.clear()
            self._outgoing += len(data).to_bytes(4, "little")
            self._outgoing += data
        try:
            while self._outgoing:
                del self._outgoing[: self._socket.send(self._outgoing)]
        except BlockingIOError:
            self._watcher.watch(self._socket.fileno(), self.ready, write=True)
            return
        except ConnectionError:
            return  # its end is reported by its exit, after the rest of its messages was read
        self._watcher.watch(self._socket.fileno(), self.ready)

    def ready(self) -> None:
        """Read what it has sent; send what waits."""
        try:
            while True:
                data = self._socket.recv(READ_BYTES)
                if not data:
                    self.ended = True
                    self._watcher.unwatch(self._socket.fileno())
                    break
                self.heard = True
                self._incoming += data
                if len(data) < READ_BYTES:
                    break
        except BlockingIOError:
            pass
        except ConnectionError:
            self.ended = True
            self._watcher.unwatch(self._socket.fileno())
        buffer = self._incoming
        at = 0
        while len(buffer) - at >= 4:
            end = at + 4 + int.from_bytes(buffer[at : at + 4], "little")
            if len(buffer) < end:
                break
            for message in marshal.loads(buffer[at + 4 : end]):
                self._receive(self, message)
            at = end
        del buffer[:at]
        self.flush()

    def close(self) -> None:
        """Disconnect: it spawns nothing more, and ends when its steps have ended."""
        if self.open:
            self.open = False
            self._watcher.unwatch(self._socket.fileno())
            self._socket.close()

    def _recipe(self, template: StepTemplate, env: dict[str, str]) -> int:
        known = self._recipes.get(id(template))
        if known is not None:
            self._recipes.move_to_end(id(template))
            return known[0]
        if len(self._recipes) >= MAX_RECIPES:
            _, (old, _) = self._recipes.popitem(last=False)
            self._queue("D", old)
        self._recipe_count += 1
        # The template itself is kept, so that its id stays unique.
        self._recipes[id(template)] = (self._recipe_count, template)
        self._queue("T", self._recipe_count, plain_template(template, env))
        return self._recipe_count

    def _queue(self, *message: Any) -> None:
        self._messages.append(message)


def plain_template(template: StepTemplate, env: dict[str, str]) -> dict[str, Any]:
    """Return the whole template as plain values, by the names of its fields; `env` is its environment, complete."""
    return {name: getattr(template, name) for name in template.__struct_fields__} | {"env": env}


def _order(
    launch: Launch, recipe: int, prefix: str, slot: str, moves: Sequence[tuple[str, str]], until_boot_ms: int = 0
) -> tuple[Any, ...]:
    """Return what `helper_process.orders.Order` is made of."""
    stays = not launch.template.memory_bytes
    order = (str(launch.step), recipe, dict(launch.env), prefix, slot, list(moves), stays, until_boot_ms)
    return order if launch.streams is None else (*order, tuple(launch.streams))
