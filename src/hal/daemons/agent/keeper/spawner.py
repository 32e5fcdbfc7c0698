"""The real spawner: a few helpers started beforehand, the ends that they report, and all signals to steps'
processes.

It supervises what helpers leave behind when they die: their steps become this process's children (it is a subreaper),
so their ends are still seen. Taking over from an earlier keeper is in `adoption`.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from hal.core.lifecycle.outcome import NO_ACCOUNT
from hal.core.model import StepId
from hal.daemons.agent.keeper import processes
from hal.daemons.agent.keeper.adoption import Orphans, adopt_journals, find_helper
from hal.daemons.agent.keeper.environment import default_env, template_env, user_env
from hal.daemons.agent.keeper.given_files import Scripts
from hal.daemons.agent.keeper.helper_journal import NO_SLOT, HelperJournal, SeenStep, step_of, usage_of
from hal.daemons.agent.keeper.helper_link import (
    MAX_AHEAD,
    MAX_OUTSTANDING,
    AccountWords,
    HelperLink,
    Order,
)
from hal.daemons.agent.keeper.helper_messages import (
    Begun,
    Failed,
    Finished,
    Greeting,
    JournalFull,
    Message,
    NoAccount,
    NotSpawned,
    Remark,
    Returned,
)
from hal.daemons.agent.keeper.lease_memory import LeaseMemory
from hal.daemons.agent.keeper.limits import MAX_FREE_SLOTS, Cgroups, cgroup_name
from hal.daemons.agent.keeper.ports import (
    Adoption,
    Ended,
    Instant,
    KeeperConfig,
    Launch,
    NeverStarted,
    Noted,
    Outputs,
    Spawned,
    SpawnerEvent,
    SpawnFailed,
    Unspawned,
    Vanished,
    output_prefix,
)
from hal.daemons.agent.keeper.processes import Mark, Others
from hal.daemons.agent.keeper.remnants import Remnants
from hal.daemons.agent.keeper.slot import Slot
from hal.daemons.agent.keeper.strangers import Known, Strangers
from hal.daemons.agent.keeper.user_steps import NO_ANSWER, UserSteps
from hal.daemons.agent.keeper.watch import Watcher, read_clocks
from hal.runtime import identity
from hal.wire.frames.agent_keeper import Sample, Usage

MAX_HELPERS: Final = 16
RESPAWN_MS: Final = (100, 5_000)
"""First and longest delay before a dead helper is replaced; it doubles while helpers keep dying."""
HEALTHY_MS: Final = 10_000
"""After this long without a death the delay is reset."""
STOP_PASSES: Final = 5
"""Passes over processes that were born while their step was being suspended."""
STRAY_LOOK_MS: Final = 50
LOOK_AT_HELPERS_MS: Final = 1_000
WAKE_LOOKS: Final = 5
"""Checks of a busy helper that does not answer after which it gets SIGCONT, in case it was stopped."""
MAX_SILENT_LOOKS: Final = 15
"""Checks after which it is killed, because it hangs. Checks are counted, not time, which passes while a host is
suspended."""
MAX_WAKES: Final = 2
"""How often it gets SIGCONT; one that is stopped again and again is killed. One is forgotten after GOOD_LOOKS."""
GOOD_LOOKS: Final = 60
MAX_GUARDS: Final = 4
"""Helpers of guarded steps: each is two processes."""
MAX_UNKNOWN_EXITS: Final = 1_024
UNNAMED: Final = "the journal of the helper that had started it was gone, so what ran of it was ended"


class HelperSpawner:
    """A `Spawner` of real processes."""

    def __init__(
        self,
        *,
        config: KeeperConfig,
        journal_dir: Path,
        outputs: Outputs,
        watcher: Watcher,
        cgroups: Cgroups,
        helpers: int,
        log_fd: int,
        environ: Mapping[str, str],
        scripts: Scripts,
    ) -> None:
        """Args:
        scripts: of steps whose users may not read HAL's own directories.
        """
        self._config = config
        self._journal_dir = journal_dir
        self._outputs = outputs
        self._watcher = watcher
        self._cgroups = cgroups
        self._wanted = max(1, min(MAX_HELPERS, helpers))
        # Each waiting step already has its slot.
        self._ahead = min(MAX_AHEAD, MAX_FREE_SLOTS // self._wanted)
        self._log_fd = log_fd
        self._default_env = default_env(environ, user=config.user, home_dir=environ.get("HOME") or "/")
        self._user_env = user_env(environ)
        self._envs: dict[int, tuple[object, dict[str, str]]] = {}
        self._events: list[SpawnerEvent] = []
        self._links: dict[int, HelperLink] = {}
        self._guards: dict[int, HelperLink] = {}
        """Helpers of guarded steps, started when the first guarded step arrives."""
        self.notes: list[str] = []
        """Notes for people on how it took over."""
        self._lease = LeaseMemory()
        self._serial = 0
        self._marks: dict[StepId, Mark] = {}
        self._slots: dict[StepId, Slot] = {}
        self._ended: set[StepId] = set()
        """Steps whose first process has ended while others may be alive."""
        self._next_stray_ms = 0
        self._next_helper_look_ms = 0
        self._unknown_exits: dict[int, tuple[int, Usage, int]] = {}
        self._finished_journals: list[Path] = []
        """Journals of dead helpers; deleted when all their content is in the keeper's own journal."""
        self._respawn_ms = 0
        self._respawn_delay_ms = RESPAWN_MS[0]
        self._last_death_ms = 0
        self._scripts = scripts
        self._users = UserSteps(
            start=self._start_user_helper,
            most=self._wanted,
            provide=self._provided,
            over=self._over,
            events=self._events,
            scripts=scripts,
            watcher=watcher,
        )
        self._remnants = Remnants(self._marks_of, self._own_pids, self._others_than)
        self._orphans = Orphans(watcher, self._events, self._marks_of, self._own_pids, self._finished_journals)
        self._orphans.set_callbacks(finished=self._finished, over=self._over, began=self._began)

    # ── for the loop ──────────────────────────────────────────────────────────────────────────────────────────────

    def start_helpers(self, now: Instant) -> None:
        """Start missing helpers; one that cannot be started is retried later."""
        while len(self._links) < self._wanted and now.boot_ms >= self._respawn_ms:
            if not self._start_helper(now.boot_ms, guarded=False):
                return
        while 0 < len(self._guards) < min(self._wanted, MAX_GUARDS) and now.boot_ms >= self._respawn_ms:
            if not self._start_helper(now.boot_ms, guarded=True):
                return

    def _start_helper(self, boot_ms: int, *, guarded: bool) -> bool:
        link = self._new_link(guarded=guarded)
        if link is None:
            self._back_off(boot_ms)
            return False
        (self._guards if guarded else self._links)[link.pid] = link
        return True

    def _start_user_helper(self, user: str, guarded: bool) -> HelperLink | None:
        config = self._config
        ways_back = self._cgroups.ways_back()
        account = AccountWords(user, config.least_uid, config.no_new_privileges, ways_back)
        return self._new_link(guarded=guarded, account=account)

    def _new_link(self, *, guarded: bool, account: AccountWords | None = None) -> HelperLink | None:
        """Start a helper; None if no process or no descriptor could be created."""
        self._serial += 1
        path = self._journal_dir / f"helper-{os.getpid()}-{read_clocks().boot_ms}-{self._serial}.log"
        lease_fd = self._lease.fd if guarded else -1
        try:
            return HelperLink(path, self._watcher, self._handle, self._log_fd, lease_fd=lease_fd, account=account)
        except (OSError, ValueError):
            return None

    def take_events(self) -> list[SpawnerEvent]:
        """Return what has happened since the last call, in order."""
        events = self._events[:]
        self._events.clear()
        return events

    def confirm(self) -> None:
        """Confirm that all events taken so far are in the keeper's journal: helpers may forget them.

        The end of a step that left processes behind is journalled only when those are gone: until then it must stay
        where a next keeper would find it, or that one would conclude that the step was never started.
        """
        for link in self._all():
            link.confirm()
        if self._ended:
            return
        for path in self._finished_journals:
            self._outputs.drop_spares(path.stem)
            with contextlib.suppress(OSError):  # a step has put something else there: the next start sets it aside
                path.unlink()
        self._finished_journals.clear()

    def turn(self, now: Instant) -> None:
        """Do what is due: checks of remnants, of orphans, and of missing helpers."""
        for pid in [pid for pid, link in self._links.items() if link.ended]:
            self._helper_died(self._links.pop(pid), now)
        for pid in [pid for pid, link in self._users.helpers.links.items() if link.ended]:
            if (link := self._users.helpers.forget(pid)) is not None:
                self._helper_died(link, now)
        self.start_helpers(now)
        self._orphans.look(now)
        if now.boot_ms >= self._next_helper_look_ms:
            self._next_helper_look_ms = now.boot_ms + LOOK_AT_HELPERS_MS
            self._look_at_helpers()
            self._users.helpers.end_idle(now.boot_ms)
        self._end_strays(now)
        for gone in self._remnants.look(now.boot_ms):
            self._remnants.end(gone.step)
            if gone.step in self._ended:
                usage = self._measured(gone.step, Usage(), over=True)
                self._over(gone.step)
                self._events.append(replace(gone, usage=usage))
            elif gone.message:  # its first process is stuck in the kernel: its exit, if there is one, will report that
                self._events.append(Noted(gone.step, gone.message))

    def next_ms(self) -> int | None:
        """When `turn` is needed next, by the boot clock."""
        times = [self._remnants.next_ms(), self._orphans.next_ms(), self._next_helper_look_ms or None]
        if len(self._links) < self._wanted or 0 < len(self._guards) < min(self._wanted, MAX_GUARDS):
            times.append(self._respawn_ms)
        times.append(self._users.helpers.next_ms(read_clocks().boot_ms))
        if any(link.strays and self._without_steps(link) for link in self._all()):
            times.append(self._next_stray_ms)
        return min((time for time in times if time is not None), default=None)

    def child_ended(self, pid: int, status: int, usage: Usage, now: Instant) -> None:
        """Handle a reaped child of this process: a helper, or a step's process that a dead helper left."""
        link = self._links.pop(pid, None)
        if link is not None and (helper := find_helper(link.journal)):
            link.pid = helper  # its recorder died: the helper continues without it
            self._links[helper] = link
            return
        served = self._users.helpers.links.get(pid)
        if served is not None and not served.ended and (helper := find_helper(served.journal)):
            self._users.without_recorder(served, pid, helper)
            return
        link = link or self._guards.pop(pid, None) or self._users.helpers.forget(pid)
        if link is not None:
            self._helper_died(link, now)
        elif not self._orphans.child_ended(pid, status, usage, now):
            self._unknown_exits[pid] = (status, usage, now.wall_ms)
            while len(self._unknown_exits) > MAX_UNKNOWN_EXITS:
                del self._unknown_exits[next(iter(self._unknown_exits))]

    def close(self) -> None:
        """Disconnect the helpers; those with steps wait for them."""
        for link in self._all():
            link.close()
        self._cgroups.close()

    # ── Spawner ───────────────────────────────────────────────────────────────────────────────────────────────────

    def room(self, user: str = "") -> int:
        if user:
            return self._users.room(user)
        room = sum(MAX_OUTSTANDING - len(link.outstanding) for link in self._links.values())
        return room - sum(len(link.outstanding) for link in self._guards.values()) if self._guards else room

    def launch(self, launches: Sequence[Launch]) -> None:
        for launch in launches:
            user = self._config.steps_user(launch.template)
            if user:
                self._users.launch(launch, user)
                continue
            links = self._links if not launch.template.guard else self._started_guards()
            if not links:
                self._events.append(NeverStarted(launch.step, "no guard could be started for it; see the keeper's log"))
                continue
            link = min(links.values(), key=lambda link: len(link.outstanding) + len(link.running))
            link.expect(launch)
            link.launch(Order(launch, *self._provided(launch)))
        for link in self._all():
            link.flush()

    def extend_lease(self, until_boot_ms: int) -> None:
        self._lease.write(until_boot_ms)

    def room_ahead(self, job: int) -> int:
        # Refilled from half: orders are sent together.
        waiting = (len(link.ahead) for link in self._unguarded() if link.places[job] and self._users.takes_ahead(link))
        return sum(self._ahead - count for count in waiting if count <= self._ahead // 2)

    def launch_ahead(self, launches: Sequence[Launch], until_boot_ms: Sequence[int]) -> None:
        for launch, until_ms in zip(launches, until_boot_ms, strict=True):
            places = [
                link for link in self._unguarded() if link.places[launch.step.job] and self._users.takes_ahead(link)
            ]
            if not places:
                self._events.append(Unspawned(launch.step))
                continue
            link = min(places, key=lambda link: len(link.ahead))
            if link.account is not None:
                self._users.launch_ahead(link, launch, until_ms)
            else:
                link.launch_ahead(Order(launch, *self._provided(launch)), until_ms)
        for link in self._unguarded():
            link.flush()

    def recall(self, steps: Sequence[StepId]) -> None:
        for link in self._unguarded():
            link.recall(steps)

    def _unguarded(self) -> list[HelperLink]:
        """The helpers of steps that outlive this process."""
        return [*self._links.values(), *self._users.helpers.unguarded()]

    def _provided(self, launch: Launch, uid: int = -1) -> tuple[dict[str, str], str, str, Sequence[tuple[str, str]]]:
        """Return its template's environment, the beginning of its files' paths, and its slot: its name, and the
        moves in and out.

        Args:
            uid: as whom it runs, if that is another user.
        """
        step = launch.step
        slot: Slot | None = None
        try:
            slot = self._cgroups.acquire(launch.template.cpu_milli, launch.template.memory_bytes)
        except OSError as error:
            self._events.append(Noted(step, f"its limits were not set: {error}"))
        if slot is not None:
            self._slots[step] = slot
        self._marks[step] = self._new_mark(step, launch.start.token, uid)
        prefix = f"{self._outputs.directory(step)}/{output_prefix(step)}"
        if slot is None:
            return self._env_of(launch), prefix, NO_SLOT, ()
        return self._env_of(launch), prefix, slot.tag, self._cgroups.moves(slot)

    def signal(self, steps: Sequence[StepId], number: int) -> None:
        reached: set[int] = set()
        for _ in range(STOP_PASSES if number == signal.SIGSTOP else 1):
            found = processes.members(self._marks_of(steps), self._own_pids()).values()
            fresh = [info for alive in found for info in alive if info.pid not in reached]
            if not fresh:
                break
            processes.send(fresh, number)
            reached.update(info.pid for info in fresh)

    def watch(self, steps: Sequence[StepId]) -> None:
        self._remnants.begin(steps, force=False, now_ms=read_clocks().boot_ms)

    def kill(self, steps: Sequence[StepId]) -> None:
        for step in steps:
            self._kill_first(step)
            slot = self._slots.get(step)
            if slot is not None:
                slot.kill(self._own_pids())
        self._remnants.begin(steps, force=True, now_ms=read_clocks().boot_ms)

    def _kill_first(self, step: StepId) -> None:
        """Kill its first process, if it is still the one that was begun: a shell that cannot fork any more would end
        by itself, with a meaningless code."""
        mark = self._marks.get(step)
        info = processes.read_process(mark.pid) if mark is not None and mark.pid else None
        if mark is None or info is None or not processes.same_start(info, mark.boot_ms):
            return
        if mark.uid < 0 or processes.real_uid(info.pid) == mark.uid:  # a helper of a user could name any pid
            processes.send([info], signal.SIGKILL)

    def resize(self, step: StepId, *, cpu_milli: int, memory_bytes: int) -> str:
        slot = self._slots.get(step)
        if slot is None:
            return "it was started without limits; they cannot be added now"
        return self._cgroups.resize(slot, cpu_milli, memory_bytes)

    def sample(self, steps: Sequence[StepId]) -> list[Sample]:
        samples = []
        for step, alive in processes.members(self._marks_of(steps), self._own_pids()).items():
            ticks = sum(info.cpu_ticks for info in alive)
            rss_bytes = sum(info.rss_bytes for info in alive)
            samples.append(Sample(step, rss_bytes, ticks * 1000 // processes.TICKS_PER_S))
        return samples

    def adopt(self, steps: Sequence[Adoption]) -> None:
        wanted = {adoption.step: adoption for adoption in steps}
        for adoption in steps:
            self._marks[adoption.step] = self._new_mark(adoption.step, adoption.token)
        journals, strangers = adopt_journals(self._journal_dir, wanted.keys())
        tags = {}
        for journal in journals:
            self._orphans.keep(journal)
            for step in journal.steps.keys() & wanted.keys():
                tags[step] = journal.steps[step].slot
                self._take_over(step, journal)
                del wanted[step]
        for step, tag in tags.items():
            if tag != NO_SLOT and (slot := self._cgroups.known(tag)) is not None:
                self._slots[step] = slot
        found = self._end_strangers(tags, journals)
        for step in wanted:
            if self._marks[step].environment in found:
                self._events.append(Vanished(step, read_clocks().wall_ms, UNNAMED))
            else:
                self._events.append(NeverStarted(step))
        self._outputs.sweep_spares({journal.path.stem for journal in journals})
        self._scripts.sweep(tags.keys())
        self._cgroups.sweep({slot.name for slot in self._slots.values()})
        # Nobody would ever report what an unknown step does, and it might run again elsewhere.
        for alive in processes.members(strangers, self._own_pids()).values():
            processes.send(alive, signal.SIGKILL)

    def _end_strangers(self, taken: Iterable[StepId], journals: Iterable[HelperJournal]) -> set[frozenset[bytes]]:
        """Kill what runs here and no journal names, before anything is started beside it; returns its marks."""
        journals = list(journals)
        known = Known(
            frozenset(self._marks[step].environment for step in taken),
            frozenset(os.fsencode(journal.path) for journal in journals),
            frozenset(who.pid for journal in journals for who in journal.writers() if identity.alive(who)),
            frozenset(os.fsencode(slot.name) for slot in self._slots.values()),
        )
        config = self._config
        strangers = Strangers(config.home, config.node, str(self._journal_dir), cgroup_name(config.home, config.node))
        found = strangers.end(known)
        if found:
            self.notes.append(f"processes of {len(found)} steps that no journal names were ended")
        if strangers.left:
            self.notes.append(f"processes that no journal names could not be ended: {strangers.left[:5]}")
        return found

    # ── what helpers tell ─────────────────────────────────────────────────────────────────────────────────────────

    def _handle(self, link: HelperLink, message: Message) -> None:
        if link.account is not None and not self._users.believes(link, message):
            return
        match message:
            case Greeting():
                if link.account is not None:
                    self._users.greet(link, message)
                else:
                    link.worker, link.greeted = message.pid, True
            case NoAccount():
                link.refusal = message.message
            case JournalFull():
                link.retiring = True
            case Begun():
                step = step_of(message.key)
                link.outstanding.pop(step, None)
                link.running[step] = message.pid
                boot_ms = min(message.boot_ms, read_clocks().boot_ms)
                self._began(Spawned(step, message.pid, message.wall_ms, boot_ms, message.mark), link.worker)
                self._users.has_spawned(link)
            case Finished():
                self._first_ended(link, message)
            case Failed():
                step = step_of(message.key)
                heir = link.pass_slot(step, step_of(message.heir) if message.heir else None)
                link.taken_seq = message.seq
                self._not_begun(link, step)
                self._events.append(SpawnFailed(step, message.code, message.message, message.wall_ms, heir))
            case NotSpawned():
                step = step_of(message.key)
                link.pass_slot(step, None, free=False)
                self._not_begun(link, step)
                self._events.append(NeverStarted(step, message.message))
            case Returned():
                step = step_of(message.key)
                link.returned(step)
                self._not_begun(link, step)
                self._events.append(Unspawned(step))
            case Remark():
                self._events.append(Noted(step_of(message.key), message.message))

    def _first_ended(self, link: HelperLink, end: Finished) -> None:
        """Handle the end of a step's first process, as its helper reports it."""
        step = step_of(end.key)
        leftover = bool(end.leftover) or (link.account is not None and self._is_inhabited(step, link))
        heir = link.pass_slot(step, step_of(end.heir) if end.heir else None, free=not leftover)
        link.taken_seq = end.seq
        link.strays = link.strays or leftover
        self._users.ended(link, step, left=leftover)
        self._finished(Ended(step, end.status, usage_of(end.numbers), end.wall_ms, leftover=leftover, heir=heir))
        if step in self._ended:
            link.unsettled[step] = end.seq

    def _is_inhabited(self, step: StepId, link: HelperLink) -> bool:
        """Whether the kernel counts a process in a step's cgroup, other than its helper, which may pass through."""
        slot = self._slots.get(step)
        return slot is not None and slot.is_inhabited() and bool(set(slot.pids()) - {link.worker})

    def _not_begun(self, link: HelperLink, step: StepId) -> None:
        self._users.ended(link, step)
        self._over(step)
        self._users.has_spawned(link)

    def _began(self, spawned: Spawned, helper: int = 0) -> None:
        mark = self._marks[spawned.step]
        self._marks[spawned.step] = mark._replace(
            pid=spawned.pid, boot_ms=spawned.boot_ms, limit=spawned.mark, helper=helper
        )
        self._events.append(spawned)

    def _finished(self, ended: Ended) -> None:
        """Handle the end of a step's first process."""
        step = ended.step
        self._remnants.end(step)
        slot = self._slots.get(step)
        killed = slot is not None and self._cgroups.out_of_memory(slot)
        usage = self._measured(step, ended.usage, over=not ended.leftover)
        self._events.append(replace(ended, out_of_memory=killed, usage=usage))
        if ended.leftover:
            self._ended.add(step)
        else:
            self._over(step)

    def _measured(self, step: StepId, usage: Usage, *, over: bool) -> Usage:
        """Return that usage of its first process with what its cgroup has counted."""
        slot = self._slots.get(step)
        return usage if slot is None else self._cgroups.measure(slot, usage, over=over)

    def _over(self, step: StepId) -> None:
        """Finish: no process of the step is left."""
        if step in self._ended:
            self._ended.discard(step)
            for link in self._all():
                link.unsettled.pop(step, None)
        self._marks.pop(step, None)
        self._remnants.end(step)
        self._scripts.delete(step)
        slot = self._slots.pop(step, None)
        if slot is not None:
            self._cgroups.release(slot)

    def _end_strays(self, now: Instant) -> None:
        """Kill what carries no mark (a daemon that cleared its environment) once no step that may own it is left."""
        if now.boot_ms < self._next_stray_ms:
            return
        for link in self._all():
            if link.strays and self._without_steps(link):
                infos = [processes.read_process(pid) for pid in processes.child_pids(link.worker)]
                alive = [info for info in infos if info is not None and info.state != "Z"]
                processes.send(alive, signal.SIGKILL)
                link.strays = bool(alive)
                self._next_stray_ms = now.boot_ms + STRAY_LOOK_MS

    def _look_at_helpers(self) -> None:
        """Check the helpers: a step can stop the helper that began it, or make it wait for a work directory; others
        must not wait too."""
        for link in self._all():
            if self._users.end_unanswering(link):
                continue
            if link.heard or not link.busy:
                link.heard, link.silent_looks = False, 0
                link.good_looks += 1
                if link.good_looks % GOOD_LOOKS == 0:
                    link.wakes = max(0, link.wakes - 1)
                continue
            if link.silent_looks == 0:
                link.ask()
            elif link.silent_looks >= MAX_SILENT_LOOKS or (link.silent_looks >= WAKE_LOOKS and link.wakes >= MAX_WAKES):
                _send_to(link, signal.SIGKILL)
            elif link.silent_looks == WAKE_LOOKS:
                _send_to(link, signal.SIGCONT)
                link.wakes += 1
            link.silent_looks += 1

    def _without_steps(self, link: HelperLink) -> bool:
        return not link.running and not link.outstanding and not self._ended

    def _helper_died(self, link: HelperLink, now: Instant) -> None:
        """Handle a dead helper: its steps are its recorder's children now, or ours; orders that it had not begun can
        be given to another."""
        link.ready()
        self._users.died(link, now.boot_ms)
        link.close()
        if link.account is None:
            self._back_off(now.boot_ms)
        for step, mark in self._marks.items():
            if mark.helper == link.worker:
                self._marks[step] = mark._replace(helper=0)  # its pid may soon be reused
        if link.account is not None and not link.busy:
            # All that it wrote down was reported: a long journal takes long to read, and a user could repeat that.
            self._finished_journals.append(link.journal)
            return
        journal = HelperJournal(link.journal)
        whole = journal.read_what_is_there() or not link.greeted
        for step in [*link.running, *link.outstanding, *link.ahead]:
            # It may run although a journal that a step has tampered with does not name it: nothing runs twice.
            if step in journal.steps or step in link.running or not whole:
                self._take_over(step, journal)
            elif link.account is not None and not link.greeted:
                self._over(step)
                text = link.refusal or NO_ANSWER.format(link.account.user)
                self._events.append(NeverStarted(step, text, NO_ACCOUNT if link.refusal else "not-started"))
            else:
                self._over(step)
                self._events.append(Unspawned(step))
        self._orphans.keep(journal)

    def _take_over(self, step: StepId, journal: HelperJournal) -> None:
        """Take over a step whose helper is dead, or was an earlier keeper's."""
        self._outputs.claim(step, journal.output_names(step))
        seen = journal.steps.get(step, SeenStep())
        mark = self._marks[step] = self._marks[step]._replace(uid=journal.uid)
        if isinstance(seen.end, SpawnFailed) and not mark.pid:
            self._over(step)
            self._events.append(seen.end)
            return
        if mark.pid:  # as its helper reported
            spawned: Spawned | None = Spawned(step, mark.pid, 0, mark.boot_ms, mark.limit)
        else:
            spawned = seen.spawned or self._orphans.find_first(step, mark)
        if spawned is not None and not (mark.pid and spawned.pid == mark.pid):
            self._began(spawned)
        if isinstance(seen.end, Ended):
            end = seen.end
            self._finished(replace(end, leftover=True))
            return
        known = self._unknown_exits.pop(spawned.pid, None) if spawned is not None else None
        if known is not None:
            status, usage, wall_ms = known
            self._finished(Ended(step, status, usage, wall_ms, leftover=True))
            return
        self._orphans.follow(step, journal, spawned)

    def _back_off(self, boot_ms: int) -> None:
        if boot_ms - self._last_death_ms > HEALTHY_MS:
            self._respawn_delay_ms = RESPAWN_MS[0]
        self._last_death_ms = boot_ms
        self._respawn_ms = boot_ms + self._respawn_delay_ms
        self._respawn_delay_ms = min(RESPAWN_MS[1], 2 * self._respawn_delay_ms)

    def _marks_of(self, steps: Iterable[StepId]) -> dict[StepId, Mark]:
        marks = {}
        for step in steps:
            mark = self._marks.get(step, Mark(frozenset()))
            slot = self._slots.get(step)
            if slot is not None:
                mark = mark._replace(cgroup_pids=slot.pids(), inhabited=slot.is_inhabited())
            marks[step] = mark
        return marks

    def _others_than(self, steps: Iterable[StepId]) -> Others:
        """Return the marks of everything that belongs to other steps than these."""
        asked = set(steps)
        marks = [mark for step, mark in self._marks.items() if step not in asked]
        return Others(
            frozenset(mark.pid for mark in marks if mark.pid),
            frozenset(mark.limit for mark in marks if mark.limit),
            frozenset(slot.name for step, slot in self._slots.items() if step not in asked),
        )

    def _new_mark(self, step: StepId, token: str, uid: int = -1) -> Mark:
        return Mark(processes.marking(self._config.home, self._config.node, token, step.rank), uid=uid)

    def _own_pids(self) -> list[int]:
        links = self._all()
        return [os.getpid(), *(link.pid for link in links), *(link.worker for link in links)]

    def _all(self) -> list[HelperLink]:
        return [*self._links.values(), *self._guards.values(), *self._users.helpers.links.values()]

    def _started_guards(self) -> dict[int, HelperLink]:
        """Return the helpers of guarded steps, at least one; none if it cannot be started, or the last one has just
        died."""
        if not self._guards:
            boot_ms = read_clocks().boot_ms
            if boot_ms >= self._respawn_ms:
                self._start_helper(boot_ms, guarded=True)
        return self._guards

    def _env_of(self, launch: Launch) -> dict[str, str]:
        """Return the template's environment, complete; computed once for the many steps of one frame."""
        known = self._envs.get(id(launch.template))
        if known is None:
            if len(self._envs) >= MAX_HELPERS:
                del self._envs[next(iter(self._envs))]
            env = template_env(launch.template, self._config)
            if self._config.steps_user(launch.template):
                env = self._user_env | env | {"HAL_STEP_SOCKET": self._scripts.steps_socket()}
            else:
                env = self._default_env | env
            known = self._envs[id(launch.template)] = (launch.template, env)
        return known[1]


def _send_to(link: HelperLink, number: int) -> None:
    """Signal a helper, which is this process's child, or its child's."""
    if link.process is not None:
        processes.send([link.process], number)
        return
    with contextlib.suppress(OSError):
        os.kill(link.worker, number)
