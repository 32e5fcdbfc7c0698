"""The real spawner: a few helpers started beforehand, the ends that they report, and all signals to steps'
processes.

It supervises what helpers leave behind when they die: their steps become this process's children (it is a subreaper),
so their ends are still seen. Helpers are started in `own_helpers` and `user_helpers`, and watched in `helper_watch`;
taking over from an earlier keeper is in `adoption`.
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
from hal.core.model.cpu_lists import format_cpus
from hal.daemons.agent.keeper import processes
from hal.daemons.agent.keeper.adoption import Orphans, adopt_journals, find_helper
from hal.daemons.agent.keeper.cpu_binding import CpuBinding
from hal.daemons.agent.keeper.cpu_sets import CpuSets
from hal.daemons.agent.keeper.dead_helpers import DeadHelpers
from hal.daemons.agent.keeper.devices import StepDevices, near_cpus, own_files
from hal.daemons.agent.keeper.environment import TemplateEnvs
from hal.daemons.agent.keeper.given_files import Scripts
from hal.daemons.agent.keeper.helper_journal import NO_SLOT, HelperJournal, SeenStep, step_of, usage_of
from hal.daemons.agent.keeper.helper_link import (
    MAX_AHEAD,
    MAX_OUTSTANDING,
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
from hal.daemons.agent.keeper.helper_watch import HelperWatch
from hal.daemons.agent.keeper.limits import MAX_FREE_SLOTS, Cgroups, cgroup_name
from hal.daemons.agent.keeper.own_helpers import OwnHelpers
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
    Whereabouts,
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

STOP_PASSES: Final = 5
"""Passes over processes that were born while their step was being suspended."""
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
        devices: StepDevices,
        cpus: CpuSets | None = None,
    ) -> None:
        """Args:
        cpus: that steps have for themselves; None: all use all.
        scripts: of steps whose users may not read HAL's own directories.
        devices: that steps may use.
        """
        self._config = config
        self._journal_dir = journal_dir
        self._outputs = outputs
        self._watcher = watcher
        self._cgroups = cgroups
        self._own = OwnHelpers(
            config=config,
            journal_dir=journal_dir,
            watcher=watcher,
            receive=self._handle,
            helpers=helpers,
            log_fd=log_fd,
        )
        # Each waiting step already has its slot.
        self._ahead = min(MAX_AHEAD, MAX_FREE_SLOTS // self._own.wanted)
        self._envs = TemplateEnvs(config, environ, scripts.steps_socket)
        self._events: list[SpawnerEvent] = []
        self._dead = DeadHelpers()
        self.notes: list[str] = []
        """Notes for people on how it took over."""
        self._marks: dict[StepId, Mark] = {}
        self._slots: dict[StepId, Slot] = {}
        self._ended: set[StepId] = set()
        """Steps whose first process has ended while others may be alive."""
        self._unknown_exits: dict[int, tuple[int, Usage, int]] = {}
        self._finished_journals: list[Path] = []
        """Journals of dead helpers; deleted when all their content is in the keeper's own journal."""
        self._scripts = scripts
        self._devices = devices
        self._users = UserSteps(
            start=lambda user, guarded: self._own.start_for_user(user, guarded, cgroups.ways_back()),
            most=self._own.wanted,
            provide=self._provided,
            bind=self._bind,
            over=self._over,
            events=self._events,
            scripts=scripts,
            watcher=watcher,
        )
        self._binding = CpuBinding(
            cpus, cgroups, self._slots, lambda steps: processes.members(self._marks_of(steps), self._own_pids())
        )
        self._watch = HelperWatch(self._all, self._users.end_unanswering, self._without_steps)
        self._remnants = Remnants(self._marks_of, self._own_pids, self._others_than)
        self._orphans = Orphans(watcher, self._events, self._marks_of, self._own_pids, self._finished_journals)
        self._orphans.set_callbacks(finished=self._finished, over=self._over, began=self._began)

    # ── for the loop ──────────────────────────────────────────────────────────────────────────────────────────────

    def start_helpers(self, now: Instant) -> None:
        """Start missing helpers; one that cannot be started is retried later."""
        self._own.start_missing(now)

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
        self._settle_dead()
        for pid in [pid for pid, link in self._own.links.items() if link.ended]:
            self._helper_died(self._own.links.pop(pid), now)
        for pid in [pid for pid, link in self._users.helpers.links.items() if link.ended]:
            if (link := self._users.helpers.forget(pid)) is not None:
                self._helper_died(link, now)
        self.start_helpers(now)
        self._orphans.look(now)
        self._binding.move(self._has_begun)
        if self._watch.is_due(now.boot_ms):
            self._watch.check()
            self._users.helpers.end_idle(now.boot_ms)
        self._watch.end_strays(now.boot_ms)
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
        times = [self._remnants.next_ms(), self._orphans.next_ms(), self._own.next_ms(), *self._watch.next_ms()]
        times.append(self._users.helpers.next_ms(read_clocks().boot_ms))
        if self._dead:
            times.append(0)
        return min((time for time in times if time is not None), default=None)

    def child_ended(self, pid: int, status: int, usage: Usage, now: Instant) -> None:
        """Handle a reaped child of this process: a helper, or a step's process that a dead helper left."""
        link = self._own.links.pop(pid, None)
        if link is not None and (helper := find_helper(link.journal)):
            link.pid = helper  # its recorder died: the helper continues without it
            self._own.links[helper] = link
            return
        served = self._users.helpers.links.get(pid)
        if served is not None and not served.ended and (helper := find_helper(served.journal)):
            self._users.without_recorder(served, pid, helper)
            return
        link = link or self._own.guards.pop(pid, None) or self._users.helpers.forget(pid)
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
        room = sum(MAX_OUTSTANDING - len(link.outstanding) for link in self._own.links.values())
        return room - sum(len(link.outstanding) for link in self._own.guards.values()) if self._own.guards else room

    def launch(self, launches: Sequence[Launch]) -> None:
        for launch in launches:
            user = self._config.steps_user(launch.template)
            if user:
                self._users.launch(launch, user)
                continue
            links = self._own.links if not launch.template.guard else self._own.started_guards()
            if not links:
                self._events.append(NeverStarted(launch.step, "no guard could be started for it; see the keeper's log"))
                continue
            order = self._order(launch)
            if order is not None:
                link = min(links.values(), key=lambda link: len(link.outstanding) + len(link.running))
                link.expect(launch)
                link.launch(order._replace(cpus=self._bind(launch)))
        for link in self._all():
            link.flush()

    def extend_lease(self, until_boot_ms: int) -> None:
        self._own.lease.write(until_boot_ms)

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
            elif (order := self._order(launch)) is not None:
                link.launch_ahead(order, until_ms)
        for link in self._unguarded():
            link.flush()

    def recall(self, steps: Sequence[StepId]) -> None:
        for link in self._unguarded():
            link.recall(steps)

    def _unguarded(self) -> list[HelperLink]:
        """The helpers of steps that outlive this process."""
        return [*self._own.links.values(), *self._users.helpers.unguarded()]

    def _order(self, launch: Launch) -> Order | None:
        """Return the order for a step of our own user; None if it cannot be started here, which has been reported."""
        try:
            return Order(launch, *self._provided(launch))
        except OSError as error:
            self._events.append(NeverStarted(launch.step, str(error.strerror)))
            return None

    def _provided(self, launch: Launch, uid: int = -1) -> tuple[dict[str, str], str, str, Sequence[tuple[str, str]]]:
        """Return its template's environment, the beginning of its files' paths, and its slot: its name, and the
        moves in and out.

        Args:
            uid: as whom it runs, if that is another user.
        Raises:
            OSError: devices could not be kept from it.
        """
        step, template = launch.step, launch.template
        slot: Slot | None = None
        devices = self._devices.rules(gpus=bool(template.gpu_milli), own_files=own_files(launch.start.devices))
        try:
            slot = self._cgroups.acquire(template.cpu_milli, template.memory_bytes, devices)
        except OSError as error:
            if devices:
                raise OSError(error.errno, f"its cgroup could not be made: {error}") from None
            self._events.append(Noted(step, f"its limits were not set: {error}"))
        if slot is not None:
            self._slots[step] = slot
        self._marks[step] = self._new_mark(step, launch.start.token, uid)
        prefix = f"{self._outputs.directory(step)}/{output_prefix(step)}"
        if slot is None:
            return self._envs.of(launch.template), prefix, NO_SLOT, ()
        return self._envs.of(launch.template), prefix, slot.tag, self._cgroups.moves(slot)

    def _bind(self, launch: Launch) -> tuple[int, ...]:
        """Return the CPUs on which a step is to begin; (): on all."""
        devices = launch.start.devices
        near = near_cpus(devices) if devices else 0
        return self._binding.acquire(launch.step, launch.template.cpu_milli, near)

    def signal(self, steps: Sequence[StepId], number: int) -> None:
        if number == signal.SIGCONT:
            self._binding.resume(steps)
            self._binding.move(self._has_begun)
        reached: set[int] = set()
        for _ in range(STOP_PASSES if number == signal.SIGSTOP else 1):
            found = processes.members(self._marks_of(steps), self._own_pids()).values()
            fresh = [info for alive in found for info in alive if info.pid not in reached]
            if not fresh:
                break
            processes.send(fresh, number)
            reached.update(info.pid for info in fresh)
        if number == signal.SIGSTOP:
            self._binding.suspend(steps)

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
        error = self._cgroups.resize(slot, cpu_milli, memory_bytes)
        if not error:
            self._binding.resize(step, cpu_milli)
            self._binding.move(self._has_begun)
        return error

    def locate(self, step: StepId) -> Whereabouts | None:
        mark, slot = self._marks.get(step), self._slots.get(step)
        if mark is None or not mark.pid:
            return None
        cgroups = () if slot is None else tuple(into for into, _ in self._cgroups.moves(slot))
        return Whereabouts(mark.pid, mark.boot_ms, mark.limit, cgroups, self._binding.cpus_of(step))

    def _has_begun(self, step: StepId) -> bool:
        mark = self._marks.get(step)
        return mark is not None and mark.pid > 0

    def sample(self, steps: Sequence[StepId]) -> list[Sample]:
        self._binding.confine(steps)
        samples = []
        for step, alive in processes.members(self._marks_of(steps), self._own_pids()).items():
            ticks = sum(info.cpu_ticks for info in alive)
            rss_bytes = sum(info.rss_bytes for info in alive)
            cpus = format_cpus(self._binding.cpus_of(step))
            samples.append(Sample(step, rss_bytes, ticks * 1000 // processes.TICKS_PER_S, cpus))
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
                self._take_over(step, journal, wanted[step].cpu_milli)
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
                cpus = self._binding.given_to(step)
                heir = link.pass_slot(step, step_of(message.heir) if message.heir else None, cpus=cpus)
                self._binding.pass_on(step, heir)
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
        cpus = self._binding.given_to(step)
        heir = link.pass_slot(step, step_of(end.heir) if end.heir else None, free=not leftover, cpus=cpus)
        self._binding.pass_on(step, heir)
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
        self._binding.release(step)
        slot = self._slots.pop(step, None)
        if slot is not None:
            self._cgroups.release(slot)

    def _without_steps(self, link: HelperLink) -> bool:
        return not link.running and not link.outstanding and not self._ended

    def _helper_died(self, link: HelperLink, now: Instant) -> None:
        """Handle a dead helper: its steps are its recorder's children now, or ours; orders that it had not begun can
        be given to another."""
        link.ready()
        self._users.died(link, now.boot_ms)
        link.close()
        if link.account is None:
            self._own.died(now.boot_ms)
        for step, mark in self._marks.items():
            if mark.helper == link.worker:
                self._marks[step] = mark._replace(helper=0)  # its pid may soon be reused
        if link.account is not None and not link.busy:
            # All that it wrote down was reported: a long journal takes long to read, and a user could repeat that.
            self._finished_journals.append(link.journal)
            return
        self._dead.add(link)
        self._settle_dead()

    def _settle_dead(self) -> None:
        """Read on in the journals of dead helpers; take over the steps of one whose journal has been read."""
        dead = self._dead.read()
        if dead is None:
            return
        link, journal = dead.link, dead.journal
        for step in [*link.running, *link.outstanding, *link.ahead]:
            # It may run although a journal that a step has tampered with does not name it: nothing runs twice.
            if step in journal.steps or step in link.running or not dead.whole:
                self._take_over(step, journal)
            elif link.account is not None and not link.greeted:
                self._over(step)
                text = link.refusal or NO_ANSWER.format(link.account.user)
                self._events.append(NeverStarted(step, text, NO_ACCOUNT if link.refusal else "not-started"))
            else:
                self._over(step)
                self._events.append(Unspawned(step))
        self._orphans.keep(journal)

    def _take_over(self, step: StepId, journal: HelperJournal, cpu_milli: int = 0) -> None:
        """Take over a step whose helper is dead, or was an earlier keeper's."""
        self._outputs.claim(step, journal.output_names(step))
        seen = journal.steps.get(step, SeenStep())
        self._binding.adopt(step, seen.cpus, cpu_milli)
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
        return [*self._own.links.values(), *self._own.guards.values(), *self._users.helpers.links.values()]
