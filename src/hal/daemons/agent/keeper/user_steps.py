"""Steps that run as users other than the keeper's own: what they are given, and which reports of their helpers count.

A user's helper is that user's process: they may stop or end it, and it could say anything. So nothing waits for it,
what it says counts only about steps that it was given, and whose process something is, is asked of the kernel.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from hal.core.lifecycle.outcome import NO_ACCOUNT
from hal.core.model import StepId
from hal.daemons.agent.keeper import processes
from hal.daemons.agent.keeper.given_files import GivenFiles, Scripts
from hal.daemons.agent.keeper.helper_journal import step_of
from hal.daemons.agent.keeper.helper_link import HelperLink, Order
from hal.daemons.agent.keeper.helper_messages import (
    Begun,
    Failed,
    Finished,
    Greeting,
    Message,
    NotSpawned,
    Remark,
    Returned,
)
from hal.daemons.agent.keeper.helper_process.spawn_failures import CannotSpawnError
from hal.daemons.agent.keeper.ports import Launch, NeverStarted, Noted, SpawnerEvent, SpawnFailed
from hal.daemons.agent.keeper.user_helpers import MAX_USER_HELPERS, Start, UserHelpers
from hal.daemons.agent.keeper.watch import Watcher, read_clocks

MAX_LOOKUP_LOOKS: Final = 10
"""Checks, one a second, after which a helper is ended that has not become its user yet."""
NO_ANSWER: Final = "the account of user '{}' could not be looked up on this node"

Provide = Callable[[Launch, int], tuple[dict[str, str], str, str, Sequence[tuple[str, str]]]]
"""Gives the template's environment, the beginning of the paths of its files, and its slot: name and moves."""


class UserSteps:
    """Those of all users of a node but the keeper's own."""

    def __init__(
        self,
        *,
        start: Start,
        most: int,
        provide: Provide,
        bind: Callable[[Launch], tuple[int, ...]],
        over: Callable[[StepId], None],
        events: list[SpawnerEvent],
        scripts: Scripts,
        watcher: Watcher,
    ) -> None:
        """Args:
        start: starts a helper.
        most: helpers of one user.
        bind: gives the CPUs on which a step is to begin.
        over: told of a step that has not begun.
        """
        self.helpers = UserHelpers(start, most)
        self._provide = provide
        self._bind = bind
        self._over = over
        self._events = events
        self._scripts = scripts
        self._watcher = watcher
        self._given: dict[int, GivenFiles] = {}
        """By the pid of its recorder or guard: what a helper was given."""
        self._unsent: dict[int, deque[Launch]] = {}
        """By the same: steps that wait until their helper has become its user, or is back from another's cgroup."""
        self._away: dict[int, list[str]] = {}
        """By the same: helpers in the cgroup of a step that is being spawned, with the files that lead them back."""
        self._moves_helpers = False
        """The kernel looks at who writes to a file of a cgroup, not at who opened it (before Linux 5.16, version 2):
        this process moves helpers, which then spawn one step at a time."""

    # ── steps ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def room(self, user: str) -> int:
        """Return how many more steps of a user may be launched now."""
        return self.helpers.room(user, read_clocks().boot_ms)

    def launch(self, launch: Launch, user: str) -> None:
        """Launch a step as that user."""
        boot_ms = read_clocks().boot_ms
        if text := self.helpers.refusal(user, boot_ms):
            self._events.append(NeverStarted(launch.step, text, NO_ACCOUNT))
            return
        link = self.helpers.choose(user, boot_ms, guarded=launch.template.guard)
        if link is None:
            text = f"no helper could be started for user '{user}'; there are {len(self.helpers.links)} of all users"
            self._events.append(NeverStarted(launch.step, text + f", and at most {MAX_USER_HELPERS}"))
            return
        link.expect(launch)
        self._unsent.setdefault(link.pid, deque()).append(launch)
        self._send_waiting(link)

    def takes_ahead(self, link: HelperLink) -> bool:
        """Whether steps may wait at that helper for the slot of another."""
        return link.account is None or (link.greeted and not self._moves_helpers and not link.retiring)

    def launch_ahead(self, link: HelperLink, launch: Launch, until_boot_ms: int) -> None:
        """Launch a step that waits at its user's helper for the slot of another."""
        order = self._order(link, launch)
        if order is not None:
            link.launch_ahead(order, until_boot_ms)

    def _send_waiting(self, link: HelperLink) -> None:
        waiting = self._unsent.get(link.pid)
        while waiting and link.greeted and link.pid not in self._away:
            launch = waiting.popleft()
            if launch.step not in link.outstanding:
                continue
            order = self._order(link, launch)
            if order is None:
                link.pass_slot(launch.step, None, free=False)
            else:
                link.launch(order._replace(cpus=self._bind(launch)))

    def _order(self, link: HelperLink, launch: Launch) -> Order | None:
        """Open what a step needs; None if that failed, which has been reported."""
        step = launch.step
        into: list[int] = []
        try:
            env, prefix, slot, moves = self._provide(launch, link.uid)
            if self._moves_helpers:
                self._move_helper(link, moves)
            else:
                into += [os.open(path, os.O_WRONLY | os.O_CLOEXEC) for path, _ in moves]
            given = self._given[link.pid].open(launch, prefix, tuple(into))
        except CannotSpawnError as error:
            event: SpawnerEvent = SpawnFailed(step, error.code, error.message, read_clocks().wall_ms)
        except OSError as error:
            event = NeverStarted(step, f"what it needs could not be opened: {error}")
        else:
            return Order(launch, env, prefix, slot, moves, given)
        for fd in into:
            os.close(fd)
        self._return_helper(link)
        self._over(step)
        self._events.append(event)
        return None

    def ended(self, link: HelperLink, step: StepId, *, left: bool = False) -> None:
        """Handle the end of a step, or that it has not begun; `left`: processes of it may still write."""
        given = self._given.get(link.pid)
        if given is not None:
            given.ended(step, left=left)

    # ── helpers ───────────────────────────────────────────────────────────────────────────────────────────────────

    def greet(self, link: HelperLink, greeting: Greeting) -> None:
        """A helper has become its user: it gets what waits for it. One that has not is ended."""
        worker = processes.read_process(greeting.pid)
        uid = processes.real_uid(greeting.pid)
        if link.greeted or worker is None or worker.parent != link.pid or uid <= 0:
            link.ended = True
            return
        link.worker, link.process, link.uid, link.greeted = greeting.pid, worker, uid, True
        if not greeting.moves:
            self._moves_helpers = True
        self._given[link.pid] = GivenFiles(link.journal.stem, uid, self._scripts, self._watcher, self._note)
        self._send_waiting(link)
        link.flush()

    def believes(self, link: HelperLink, message: Message) -> bool:
        """Whether that helper may say that: only about steps that it was given and has not reported otherwise."""
        try:
            match message:
                case Begun() | NotSpawned():
                    return step_of(message.key) in link.outstanding
                case Failed():
                    return step_of(message.key) in link.outstanding and _may_inherit(link, message.heir)
                case Finished():
                    return step_of(message.key) in link.running and _may_inherit(link, message.heir)
                case Returned():
                    return (step := step_of(message.key)) in link.ahead or step in link.outstanding
                case Remark():
                    step = step_of(message.key)
                    return step in link.outstanding or step in link.running or step in link.ahead
        except ValueError:
            return False
        return True

    def has_spawned(self, link: HelperLink) -> None:
        """A helper has spawned what it was moved for, or failed to: it may be moved for the next one."""
        if link.pid in self._away:
            self._return_helper(link)
            self._send_waiting(link)
            link.flush()

    def died(self, link: HelperLink, boot_ms: int) -> None:
        """A helper is over; its outputs get their names."""
        self._unsent.pop(link.pid, None)
        self._away.pop(link.pid, None)
        given = self._given.pop(link.pid, None)
        if given is not None:
            given.close()
        if link.account is None:
            return
        if link.refusal:
            self.helpers.refuse(link.account.user, link.refusal, boot_ms)
        elif link.open or not link.retiring:
            self.helpers.died_early(link.account.user, boot_ms)

    def without_recorder(self, link: HelperLink, pid: int, helper: int) -> None:
        """The recorder of a helper has died, and the helper continues."""
        self.helpers.adopt_worker(link, pid, helper)
        if pid in self._given:
            self._given[helper] = self._given.pop(pid)
        if pid in self._unsent:
            self._unsent[helper] = self._unsent.pop(pid)
        if pid in self._away:
            self._away[helper] = self._away.pop(pid)

    def end_unanswering(self, link: HelperLink) -> bool:
        """Whether a helper has not become its user, and has been ended if it is taking too long."""
        if link.account is None or link.greeted:
            return False
        if link.silent_looks >= MAX_LOOKUP_LOOKS:
            found = [processes.read_process(pid) for pid in processes.child_pids(link.pid)]
            processes.send([info for info in found if info is not None], signal.SIGKILL)
            link.ended = True
        link.silent_looks += 1
        return True

    def _move_helper(self, link: HelperLink, moves: Sequence[tuple[str, str]]) -> None:
        """Raises:
        OSError: it cannot be moved.
        """
        self._away[link.pid] = [back for _, back in moves]
        for into, _ in moves:
            _write_pid(into, link.worker)

    def _return_helper(self, link: HelperLink) -> None:
        for back in self._away.pop(link.pid, ()):
            with contextlib.suppress(OSError):  # it has died
                _write_pid(back, link.worker)

    def _note(self, step: StepId, text: str) -> None:
        self._events.append(Noted(step, text))


def _may_inherit(link: HelperLink, heir: str) -> bool:
    """Raises:
    ValueError: it is no step's id.
    """
    return not heir or (step := step_of(heir)) in link.ahead or step in link.outstanding


def _write_pid(path: str, pid: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, str(pid).encode())
    finally:
        os.close(fd)
