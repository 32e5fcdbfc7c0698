"""The keeper's end of one helper: starting its process, messages to and from it, and what it has not answered yet."""

from __future__ import annotations

import array
import marshal
import os
import socket
import sys
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from hal.core.model import StepId
from hal.daemons.agent.keeper.helper_messages import MAX_MESSAGES_BYTES, Message, decode
from hal.daemons.agent.keeper.ports import Launch
from hal.daemons.agent.keeper.processes import ProcessInfo
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

MAX_DESCRIPTORS: Final = 250
"""Descriptors in one message; the kernel passes 253 at once."""

Receive = Callable[["HelperLink", Message], None]


class AccountWords(NamedTuple):
    """What a helper needs to know to become a user."""

    user: str
    least_uid: int
    no_new_privileges: bool
    ways_back: tuple[str, ...]
    """The `cgroup.procs` files of the cgroups to which it returns from those of its steps."""

    def words(self) -> list[str]:
        return [self.user, str(self.least_uid), str(int(self.no_new_privileges)), *self.ways_back]


class Given(NamedTuple):
    """What was opened for a step whose user may not open it."""

    numbers: tuple[int, ...] = ()
    """Of the files of stdout and stderr."""
    script: str = ""
    """Path of its script; '': it has none."""
    outputs: tuple[int, ...] = ()
    """Descriptors of the files of stdout and stderr."""
    into: tuple[int, ...] = ()
    """Descriptors for the moves into its cgroups."""

    @property
    def descriptors(self) -> tuple[int, ...]:
        return (*self.outputs, *self.into)

    def close(self) -> None:
        """Close them all."""
        for fd in self.descriptors:
            os.close(fd)


class Order(NamedTuple):
    """One step to spawn, without what it has in common with others."""

    launch: Launch
    env: dict[str, str]
    """Of its template, complete."""
    prefix: str
    """The beginning of its files' paths."""
    slot: str
    moves: Sequence[tuple[str, str]]
    given: Given | None = None
    """None: its helper opens everything itself."""
    cpus: tuple[int, ...] = ()
    """On which it runs; (): on all, or, if it waits for a slot, on those of the step that had it."""


class HelperLink:
    """One helper process."""

    def __init__(
        self,
        journal: Path,
        watcher: Watcher,
        receive: Receive,
        log_fd: int,
        *,
        lease_fd: int = -1,
        account: AccountWords | None = None,
    ) -> None:
        """Start it.

        Args:
            account: of the user whom it is to serve; None: it stays who this process is.
            lease_fd: of the memory with the end of the lease: its steps die with the lease, and all of it with this
                process; -1: it outlives both.
        Raises:
            OSError: no process or no descriptor could be created.
        """
        self.journal = journal
        self.account = account
        self.uid = -1
        """Of the user whom it has become, as the kernel says; -1: none."""
        self.refusal = ""
        """Why it serves nobody."""
        self.moves = True
        """It can move into the cgroups of its steps."""
        self.retiring = False
        """It gets no more steps, and ends when it has none."""
        self.idle_since_ms = 0
        """By the boot clock; 0: it is busy, or nobody has looked yet."""
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
        self._descriptors: list[int] = []
        """Those that go with them."""
        self._parcels: deque[tuple[bytes, list[int]]] = deque()
        """What could not be sent yet and takes descriptors along, after `_outgoing`."""
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
            if account is not None:
                script += account.words()
            argv = [sys.executable, "-I", "-S", *script]
            try:
                self.pid = os.posix_spawn(sys.executable, argv, os.environ, file_actions=actions, setsid=True)
            except OSError:
                ours.close()
                raise
        self.worker = self.pid
        """Pid of the helper itself, once reported; `pid` is that of its recorder or guard."""
        self.process: ProcessInfo | None = None
        """The helper itself, if it serves a user: that very process, whatever gets its pid later."""
        self.greeted = False
        """Whether it has reported its pid: before that, it spawns nothing."""
        watcher.watch(ours.fileno(), self.ready)

    def expect(self, launch: Launch) -> None:
        """One step will be ordered here."""
        self.outstanding[launch.step] = launch
        self.places[launch.step.job] += 1

    def launch(self, order: Order) -> None:
        """Order one step that is expected."""
        self._queue_order("S", order, self._recipe(order.launch.template, order.env), 0)

    def launch_ahead(self, order: Order, until_boot_ms: int) -> None:
        """Order one step that waits here until a step of its job has ended."""
        launch = order.launch
        recipe = self._recipe(launch.template, order.env)
        self.ahead[launch.step] = launch
        self._queue_order("Q", order, recipe, until_boot_ms)

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

    def pass_slot(
        self, step: StepId, heir: StepId | None, *, free: bool = True, cpus: tuple[int, ...] = ()
    ) -> StepId | None:
        """Handle a step that has ended here, or failed to start.

        Args:
            step: which.
            heir: who has its slot now, as the helper reports; None: nobody waited there.
            free: nothing is left of the step, so that its slot may be passed on.
            cpus: on which it was begun, and its heir is to begin.

        Returns: who gets the slot, including a step that was on its way to the helper when the step ended; None if it
        is free.
        """
        self.outstanding.pop(step, None)
        self.running.pop(step, None)
        if heir is None and free:
            lane = (one for one in self.ahead if one.job == step.job and one not in self._recalled)
            heir = next(lane, None)
            if heir is not None:
                self._queue("B", str(heir), str(step), cpus)
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
        if not (self._outgoing or self._messages or self._parcels) or not self.open:
            return
        self._pack()
        try:
            while True:
                while self._outgoing:
                    del self._outgoing[: self._socket.send(self._outgoing)]
                if not self._parcels:
                    break
                data, fds = self._parcels[0]
                sent = self._socket.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
                self._parcels.popleft()
                _close_all(fds)
                self._outgoing += data[sent:]
        except BlockingIOError:
            self._watcher.watch(self._socket.fileno(), self.ready, write=True)
            return
        except ConnectionError:
            return  # its end is reported by its exit, after the rest of its messages was read
        except OSError:
            self.ended = True  # no descriptors can be passed to it now: another takes its place
            return
        self._watcher.watch(self._socket.fileno(), self.ready)

    def _pack(self) -> None:
        """Make one frame of the queued messages; frames stay in order, whatever they take along."""
        if not self._messages:
            return
        data = marshal.dumps(self._messages)
        self._messages.clear()
        head = len(data).to_bytes(4, "little")
        if self._descriptors or self._parcels:
            self._parcels.append((head + data, self._descriptors))
            self._descriptors = []
        else:
            self._outgoing += head
            self._outgoing += data

    def ready(self) -> None:
        """Read what it has sent; send what waits."""
        if not self.open:
            return
        try:
            while True:
                data = self._socket.recv(READ_BYTES)
                if not data:
                    self.ended = True
                    self._watcher.unwatch(self._socket.fileno())
                    break
                self.heard = True
                self._incoming += data
                if len(data) < READ_BYTES or len(self._incoming) > MAX_MESSAGES_BYTES:
                    break
        except BlockingIOError:
            pass
        except ConnectionError:
            self.ended = True
            self._watcher.unwatch(self._socket.fileno())
        buffer = self._incoming
        at = 0
        while len(buffer) - at >= 4:
            size = int.from_bytes(buffer[at : at + 4], "little")
            if size > MAX_MESSAGES_BYTES:
                self._disbelieve()
                return
            end = at + 4 + size
            if len(buffer) < end:
                break
            try:
                messages = decode(buffer[at + 4 : end])
            except (msgspec.DecodeError, UnicodeDecodeError):
                self._disbelieve()
                return
            for message in messages:
                self._receive(self, message)
            at = end
        del buffer[:at]
        self.flush()

    def _disbelieve(self) -> None:
        """What it sends is not what a helper sends: it is left to end with its steps, as after a keeper's death."""
        self.ended = True
        self._incoming.clear()
        self._watcher.unwatch(self._socket.fileno())

    def close(self) -> None:
        """Disconnect: it spawns nothing more, and ends when its steps have ended."""
        if self.open:
            self.open = False
            self._watcher.unwatch(self._socket.fileno())
            self._socket.close()
            _close_all(self._descriptors)
            for _, fds in self._parcels:
                _close_all(fds)
            self._parcels.clear()

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
        plain = plain_template(template, env)
        if self.account is not None:
            plain["script"] = plain["script"] and "in a file"  # which this process writes
        self._queue("T", self._recipe_count, plain)
        return self._recipe_count

    def _queue(self, *message: Any) -> None:
        self._messages.append(message)

    def _queue_order(self, kind: str, order: Order, recipe: int, until_boot_ms: int) -> None:
        """Queue what `helper_process.orders.Order` is made of, and what is opened for it."""
        launch, given = order.launch, order.given
        stays = not launch.template.memory_bytes
        streams = None if launch.streams is None else tuple(launch.streams)
        fields: tuple[Any, ...] = (
            str(launch.step),
            recipe,
            dict(launch.env),
            order.prefix,
            order.slot,
            list(order.moves),
            stays,
            order.cpus,
            until_boot_ms,
            streams,
        )
        if given is not None:
            fields = (*fields, (given.numbers, given.script, len(given.outputs), len(given.into)))
            if len(self._descriptors) + len(given.descriptors) > MAX_DESCRIPTORS:
                self._pack()
            self._descriptors += given.descriptors
        self._queue(kind, *fields)


def plain_template(template: StepTemplate, env: dict[str, str]) -> dict[str, Any]:
    """Return what helpers need of the template as plain values, by the names of its fields; `env` is its environment,
    complete."""
    return {name: getattr(template, name) for name in template.__struct_fields__ if name != "service"} | {"env": env}


def _close_all(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)
    fds.clear()
