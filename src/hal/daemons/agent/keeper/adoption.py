"""Steps whose helper is no longer ours: an earlier keeper's helper that lives on, or one that died.

While such a helper or its recorder lives its journal is read on (a pidfd of the step says when). Where both died under
this keeper, its steps have become this process's children, and their end is seen. Where all three died nobody sees the
end: once the first process is gone, what it left behind is killed, and once no process of the step is left, it has
vanished.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from hal.core.model import DeniedError, StepId
from hal.daemons.agent.keeper import processes
from hal.daemons.agent.keeper.helper_journal import HelperJournal
from hal.daemons.agent.keeper.ports import Ended, Instant, Spawned, SpawnerEvent, Vanished
from hal.daemons.agent.keeper.processes import Mark, ProcessInfo
from hal.daemons.agent.keeper.watch import Watcher, read_clocks
from hal.runtime.identity import ProcessIdentity, alive, boot_id, kill, wait_gone
from hal.runtime.regular_files import set_aside
from hal.wire.frames.agent_keeper import Usage

CLOSE_WAIT_MS: Final = 5_000
"""How long a helper may take to notice that its keeper died before it is killed."""
CLOSE_LOOK_MS: Final = 5
MAX_COMMAND_BYTES: Final = 1 << 16
HELPER_SCRIPT: Final = b"/keeper/helper.py"
RECORDER_SCRIPT: Final = b"/keeper/recorder.py"
"""How their paths end, in whatever directory another version of HAL lies."""
FIRST_LOOK_MS: Final = 5
LONGEST_LOOK_MS: Final = 1_000
WAKE_LOOKS: Final = 9
MAX_SILENT_LOOKS: Final = 20
"""At a step whose first process is gone, until who watches over it is made to go on, and killed."""
SECOND_LOOK_MS: Final = 100
"""A process that was being spawned as its helper died carries no mark of its step before it has begun: look again."""
MAX_PIDFDS: Final = 256
"""Of steps that are followed; those beyond are looked at, for a login shell gives a keeper 1,024 descriptors."""
UNSEEN: Final = "the process that watched it died, so nobody saw how it ended"


def adopt_journals(directory: Path, wanted: Iterable[StepId]) -> tuple[list[HelperJournal], dict[StepId, Mark]]:
    """The journals of all earlier helpers, complete; and the running steps in them that are not wanted.

    After it none of these helpers will spawn anything.
    """
    known = set(wanted)
    journals = []
    strangers: dict[StepId, Mark] = {}
    deadline_ms = read_clocks().boot_ms + CLOSE_WAIT_MS
    for path in sorted(directory.glob("helper-*.log")):
        journal = HelperJournal(path)
        try:
            journal.read()
        except OSError:  # no helper left it like that
            with contextlib.suppress(OSError):
                set_aside(path)
            continue
        if journal.boot_id != boot_id():
            # Empty, or of an earlier boot: its pids mean other processes now.
            path.unlink(missing_ok=True)
            continue
        _wait_closed(journal, deadline_ms)
        journals.append(journal)
        for step, seen in journal.steps.items():
            first = seen.spawned
            if first is None or seen.end is not None or step in known:
                continue
            if processes.same_start(processes.read_process(first.pid), first.boot_ms):
                strangers[step] = Mark(frozenset(), first.pid, first.boot_ms, limit=first.mark, uid=journal.uid)
    return journals, strangers


def _wait_closed(journal: HelperJournal, deadline_ms: int) -> None:
    who = ProcessIdentity(journal.pid, journal.start_ticks)
    if not _is_helper(who.pid, journal.path):  # it is dead; or a step wrote the pid of something else there
        return
    while not journal.closed and alive(who) and read_clocks().boot_ms < deadline_ms:
        wait_gone(who, CLOSE_LOOK_MS / 1000)
        journal.read_what_is_there()
    with contextlib.suppress(DeniedError):
        if not journal.closed and kill(who, signal.SIGKILL):
            wait_gone(who, CLOSE_WAIT_MS / 1000)
    journal.read_what_is_there()


def find_helper(journal: Path) -> int:
    """Pid of a helper that has become this process's child, as its recorder has died; 0: it is dead, too."""
    return next((pid for pid in processes.child_pids(os.getpid()) if _is_helper(pid, journal)), 0)


def _is_helper(pid: int, journal: Path) -> bool:
    """Whether that process is the helper that writes that journal, by its command line."""
    return _runs(pid, journal, HELPER_SCRIPT)


def _writes(who: ProcessIdentity, journal: Path) -> bool:
    """Whether it is the helper that writes that journal, or its recorder."""
    return who.pid > 0 and alive(who) and _runs(who.pid, journal, HELPER_SCRIPT, RECORDER_SCRIPT)


def _runs(pid: int, journal: Path, *scripts: bytes) -> bool:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb", buffering=0) as file:
        words = file.read(MAX_COMMAND_BYTES).split(b"\0")
        return os.fsencode(journal) in words and any(word.endswith(scripts) for word in words)
    return False


class _Followed:
    """One step that is followed."""

    __slots__ = (
        "boot_ms",
        "delay_ms",
        "fd",
        "gone",
        "is_child",
        "journal",
        "look_ms",
        "looked",
        "pid",
        "silent_looks",
        "step",
    )

    def __init__(self, step: StepId, journal: HelperJournal, spawned: Spawned | None) -> None:
        self.step = step
        self.journal = journal
        self.pid = spawned.pid if spawned else 0
        self.boot_ms = spawned.boot_ms if spawned else 0
        self.gone = False
        """Its first process, if that is known."""
        self.silent_looks = 0
        """Looks since then in which nobody had written down how it ended."""
        self.fd = -1
        self.is_child = False
        self.look_ms = 0
        """When to look; 0: when its pidfd, or the end of a child, says so."""
        self.delay_ms = FIRST_LOOK_MS
        self.looked = False
        """A look has found no process of it."""


class Orphans:
    """All steps that are followed, and the journals that name them."""

    def __init__(
        self,
        watcher: Watcher,
        events: list[SpawnerEvent],
        marks: Callable[[Iterable[StepId]], Mapping[StepId, Mark]],
        spare: Callable[[], list[int]],
        finished_journals: list[Path],
    ) -> None:
        self._watcher = watcher
        self._events = events
        self._marks = marks
        self._spare = spare
        self._finished_journals = finished_journals
        self._followed: dict[StepId, _Followed] = {}
        self._by_child: dict[int, _Followed] = {}
        self._journals: list[HelperJournal] = []
        self._next_journal_look_ms = 0
        self._pidfds = 0
        self._finished: Callable[[Ended], None] = _unset
        self._over: Callable[[StepId], None] = _unset
        self._began: Callable[[Spawned], None] = _unset

    def set_callbacks(
        self,
        *,
        finished: Callable[[Ended], None],
        over: Callable[[StepId], None],
        began: Callable[[Spawned], None],
    ) -> None:
        """Whom to tell of ends that were seen, of steps that are over, and of first processes found late."""
        self._finished, self._over, self._began = finished, over, began

    def keep(self, journal: HelperJournal) -> None:
        """A helper's journal: deleted when the helper is dead and no step of it is followed any more."""
        self._journals.append(journal)
        self._next_journal_look_ms = 0

    def follow(self, step: StepId, journal: HelperJournal, spawned: Spawned | None) -> None:
        """From now on its end is looked for here."""
        followed = self._followed[step] = _Followed(step, journal, spawned)
        followed.look_ms = 1
        if spawned is None:
            return
        info = processes.read_process(spawned.pid)
        if info is None or not processes.same_start(info, spawned.boot_ms):
            followed.gone = True
            return
        if info.parent == os.getpid():
            followed.is_child, followed.look_ms = True, 0
            self._by_child[spawned.pid] = followed
            return
        if self._pidfds >= MAX_PIDFDS:
            return
        try:
            followed.fd = os.pidfd_open(spawned.pid)
        except OSError:  # it is gone, or there are no more descriptors: looks tell
            return
        self._pidfds += 1
        followed.look_ms = 0
        self._watcher.watch(followed.fd, lambda: self._first_gone(followed))

    def find_first(self, step: StepId, mark: Mark) -> Spawned | None:
        """The first process of a step that was spawned by a helper that died before it could say so."""
        now = read_clocks()
        leaders = [info for info in processes.members({step: mark}, self._spare())[step] if info.session == info.pid]
        if not leaders:
            return None
        first = min(leaders, key=lambda info: info.start_ticks)
        boot_ms = first.start_ticks * 1000 // processes.TICKS_PER_S
        return Spawned(step, first.pid, now.wall_ms - (now.boot_ms - boot_ms), boot_ms)

    def child_ended(self, pid: int, status: int, usage: Usage, now: Instant) -> bool:
        """Whether that child was a step's first process; if so its end was told."""
        followed = self._by_child.pop(pid, None)
        if followed is None:  # its recorder died while it was followed
            followed = next((one for one in self._followed.values() if one.pid == pid), None)
        if followed is None:
            return False
        self._drop(followed)
        self._finished(Ended(followed.step, status, usage, now.wall_ms, leftover=True))
        return True

    def next_ms(self) -> int | None:
        """When to look next, by the boot clock."""
        return min((followed.look_ms for followed in self._followed.values() if followed.look_ms), default=None)

    def look(self, now: Instant) -> None:
        """Look at those that are due."""
        due = [followed for followed in self._followed.values() if 0 < followed.look_ms <= now.boot_ms]
        for followed in due:
            self._look_at(followed, now)
        if self._journals and now.boot_ms >= self._next_journal_look_ms:
            self._next_journal_look_ms = now.boot_ms + LONGEST_LOOK_MS
            self._retire()

    def _look_at(self, followed: _Followed, now: Instant) -> None:
        # Of a step that was being spawned nobody wrote down the pid: its recorder does not know it, either.
        helper_lives = _lives(followed.journal) if followed.pid else alive(followed.journal.writers()[0])
        followed.journal.read_what_is_there()
        seen = followed.journal.steps.get(followed.step)
        if seen is not None and isinstance(seen.end, Ended):
            end = seen.end
            self._drop(followed)
            self._finished(replace(end, leftover=True))
            return
        left = [] if helper_lives else processes.members(self._marks([followed.step]), self._spare())[followed.step]
        if not helper_lives and not followed.pid and self._looks_again(followed, left, now):
            return
        if not helper_lives and not left:
            self._drop(followed)
            self._over(followed.step)
            self._events.append(Vanished(followed.step, now.wall_ms, UNSEEN))
            return
        # A helper that died just after a spawn has not told the pid; the first process leads a session.
        ended = self._is_gone(followed) if followed.pid else not any(info.session == info.pid for info in left)
        if ended and helper_lives:
            self._wait_for_word(followed)
        if ended:
            # Nobody saw it: what the first process left behind would hold the step for as long as it likes.
            processes.send(left, signal.SIGKILL)
        followed.look_ms = now.boot_ms + followed.delay_ms
        followed.delay_ms = min(LONGEST_LOOK_MS, 2 * followed.delay_ms)

    def _wait_for_word(self, followed: _Followed) -> None:
        """Who should write down an end may have been stopped, by a step: it is made to go on, or to leave the step's
        first process to whoever comes next."""
        followed.silent_looks += 1
        if followed.silent_looks in (WAKE_LOOKS, MAX_SILENT_LOOKS):
            for who in followed.journal.writers():
                if _writes(who, followed.journal.path):
                    with contextlib.suppress(DeniedError):
                        kill(who, signal.SIGCONT if followed.silent_looks == WAKE_LOOKS else signal.SIGKILL)

    def _is_gone(self, followed: _Followed) -> bool:
        """Whether the first process of a step has ended."""
        if followed.fd < 0 and not followed.gone:
            info = processes.read_process(followed.pid)
            followed.gone = info is None or info.state in "ZXx" or not processes.same_start(info, followed.boot_ms)
        return followed.gone

    def _looks_again(self, followed: _Followed, left: list[ProcessInfo], now: Instant) -> bool:
        """Of a step that may just have been spawned: whether it is not judged by this look."""
        if not left:
            again, followed.looked = not followed.looked, True
            followed.look_ms = now.boot_ms + SECOND_LOOK_MS
            return again
        mark = self._marks([followed.step])[followed.step]
        spawned = self.find_first(followed.step, mark) if followed.looked else None
        if spawned is None:
            return False
        self._drop(followed)
        self._began(spawned)
        self.follow(followed.step, followed.journal, spawned)
        return True

    def _first_gone(self, followed: _Followed) -> None:
        self._close(followed)
        followed.gone, followed.look_ms = True, 1

    def _drop(self, followed: _Followed) -> None:
        del self._followed[followed.step]
        if followed.fd >= 0:
            self._close(followed)

    def _close(self, followed: _Followed) -> None:
        self._watcher.unwatch(followed.fd)
        os.close(followed.fd)
        followed.fd = -1
        self._pidfds -= 1

    def _retire(self) -> None:
        needed = {id(followed.journal) for followed in self._followed.values()}
        for journal in self._journals[:]:
            if id(journal) not in needed and not _lives(journal):
                self._journals.remove(journal)
                self._finished_journals.append(journal.path)


def _lives(journal: HelperJournal) -> bool:
    """Somebody writes down how its steps end."""
    helper = ProcessIdentity(journal.pid, journal.start_ticks)
    return alive(helper) or (journal.recorder.pid > 0 and alive(journal.recorder))


def _unset(what: object) -> None:
    raise AssertionError("Orphans.set_callbacks was not called")
