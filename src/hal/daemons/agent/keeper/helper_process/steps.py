"""The steps of one helper: what the keeper orders is spawned, journalled and waited for, and its end is journalled
before it is reported.

It may hold steps that were sent ahead, each of which waits for the slot of a step of its job that ends here: such a
step is begun at once, and the keeper gets several ends and starts in one message. A waiting step is returned on
request; all are dropped with the keeper's socket.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from typing import Any

from hal.daemons.agent.keeper.helper_process.account import Account
from hal.daemons.agent.keeper.helper_process.captures import Captures, Spare
from hal.daemons.agent.keeper.helper_process.cgroup_moves import CgroupMoves, Cpus, Moves
from hal.daemons.agent.keeper.helper_process.children import Children, mark_of, outside_pid, session_of
from hal.daemons.agent.keeper.helper_process.journal import MAX_JOURNAL_BYTES, Journal
from hal.daemons.agent.keeper.helper_process.keeper_link import MAX_TEXT, KeeperLink
from hal.daemons.agent.keeper.helper_process.orders import Given, Order, Orders, job_of
from hal.daemons.agent.keeper.helper_process.own_files import open_own
from hal.daemons.agent.keeper.helper_process.programs import Recipe, held, spawn
from hal.daemons.agent.keeper.helper_process.sandbox import sandboxed
from hal.daemons.agent.keeper.helper_process.spawn_failures import CannotSpawnError, CannotSpawnHereError
from hal.daemons.agent.keeper.helper_process.step_files import Directories, write_script

FLUSH_EVERY = 4
"""Spawns after which the keeper gets a report, if more are waiting."""
ORDER_FIELDS = 10
"""Fields of an order without what its keeper has opened for it: as `Order` takes them."""
MAX_GIVEN_JOURNAL_BYTES = 1 << 20
"""A helper that cannot rewrite its journal is replaced when it exceeds this."""
LIMITS = (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_AS, resource.RLIMIT_NPROC)
"""Limits that steps inherit and that could keep them from working; checked before each spawn: four short calls."""


class RunningStep:
    """A step whose first process was not reaped yet."""

    __slots__ = ("cpus", "journalled", "mark", "moves", "outputs", "step")

    def __init__(self, step: str, mark: int, moves: Moves, cpus: Cpus, outputs: list[Spare], journalled: str) -> None:
        self.step = step
        self.mark = mark
        self.moves = moves
        self.cpus = cpus
        """On which it runs; whoever inherits its slot does, too."""
        self.outputs = outputs
        self.journalled = journalled
        """Its lines in the journal."""


class Helper:
    """The whole state of a helper process."""

    def __init__(
        self, journal: Journal, link: KeeperLink, cgroups: CgroupMoves, proc: int = -1, account: Account | None = None
    ) -> None:
        """Args:
        account: of the user whom this process has become; None: it is whoever its keeper is.
        """
        self.running: dict[int, RunningStep] = {}
        """By pid of their first process."""
        self.closed = False
        """Whether the keeper has closed its socket, so that nothing more is spawned."""
        self._journal = journal
        self._link = link
        self._proc = proc
        """The /proc of the reader of pids that this process reports; -1: our own."""
        self._unconfirmed: dict[int, str] = {}
        """Journal lines of ends, by number, until the keeper has them in its own journal."""
        self._seq = 0
        """Number of the last end."""
        self._recipes: dict[int, Recipe] = {}
        self._orders = Orders()
        self._directories = Directories()
        self.captures: Captures | None = None
        """None: the keeper opens and names outputs, where this process may not."""
        if account is None:
            self.captures = Captures(os.path.basename(journal.path).removesuffix(".log"), self._directories)
        self._variables = {} if account is None else account.variables
        self._full = False
        """The keeper was told that the journal is full."""
        self._cgroups = cgroups
        self._children = Children()
        self._limits = _own_limits()
        self._null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)

    # ── the keeper's side ─────────────────────────────────────────────────────────────────────────────────────────

    def listen(self) -> None:
        """Carry out what the keeper has sent; at the end of its stream, accept no more steps."""
        messages = self._link.read()
        if messages is None:
            self.close()
            return
        for message in messages:
            self._receive(message)

    def _receive(self, message: tuple[Any, ...]) -> None:
        kind = message[0]
        if kind == "S":
            self._orders.add(self._order(message[1:]))
        elif kind == "Q":
            self._orders.add_ahead(self._order(message[1:]))
        elif kind == "B":
            self._orders.give_slot(message[1], message[2], message[3])
        elif kind == "K":
            for step in message[1]:
                order = self._orders.forget(step)
                if order is not None:
                    self._return(order)
        elif kind == "T":
            self._recipes[message[1]] = Recipe(message[2], self._variables)
        elif kind == "E":
            self._link.report("E")
        elif kind == "D":
            self._recipes.pop(message[1], None)
        elif kind == "A":
            for seq in [seq for seq in self._unconfirmed if seq <= message[1]]:
                del self._unconfirmed[seq]
            self._tidy()

    def _order(self, fields: tuple[Any, ...]) -> Order:
        order = Order(*fields[:ORDER_FIELDS])
        if len(fields) > ORDER_FIELDS:
            numbers, script, outputs, into = fields[ORDER_FIELDS]
            order.given = Given(numbers, script, self._link.take(outputs), self._link.take(into))
        return order

    def _return(self, order: Order) -> None:
        """Report that it has not begun and will not."""
        if order.given is not None:
            order.given.close()
        self._link.report("G", order.step)

    def settle(self) -> int | None:
        """Do what is due: report to the keeper, leave a step's cgroups; returns how long the rest may wait, in ms."""
        due_ns = self._link.due_ns
        if due_ns is None and not self._cgroups.inside:
            return None
        now_ns = time.monotonic_ns()
        if due_ns is not None and now_ns >= due_ns:
            self._flush()
        if self._cgroups.inside and now_ns >= self._cgroups.leave_ns:
            self._cgroups.leave()
            self._cgroups.unbind()
        due_ns = self._link.due_ns
        due = [due_ns] if due_ns is not None else []
        due += [self._cgroups.leave_ns] if self._cgroups.inside else []
        return max(0, -((now_ns - min(due)) // 1_000_000)) if due else None

    def close(self) -> None:
        """The keeper has ended: drop what it ordered and was not begun, so that its successor knows."""
        if not self.closed:
            self.closed = True
            self._orders.clear()
            self._cgroups.leave()
            self._journal.write("C\n")

    def _flush(self) -> None:
        self._link.flush()
        if self._link.closed:
            self.close()

    def _tidy(self) -> None:
        """Rewrite the journal once most of it is obsolete; where this process may not, ask to be replaced."""
        if self.captures is None:
            if self._journal.size > MAX_GIVEN_JOURNAL_BYTES and not self._full:
                self._full = True
                self._link.report("J")
            return
        if self._journal.size > MAX_JOURNAL_BYTES and not self.closed:
            live = "".join(one.journalled for one in self.running.values()) + "".join(self._unconfirmed.values())
            if len(live) * 2 < self._journal.size:
                self._journal.rewrite(live)

    # ── begin ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def begin_ready(self) -> None:
        """Begin all orders that have a slot."""
        ready = self._orders.ready
        for count, (order, after) in enumerate(ready, 1):
            self._begin(order, after)
            self.reap()
            if count % FLUSH_EVERY == 0:
                self._flush()
        if ready:
            ready.clear()
            os.chdir("/")

    def _begin(self, order: Order, after: str) -> None:
        """Spawn one step: journal that it is about to be spawned, spawn it, journal its pid.

        Args:
            order: what the keeper sent.
            after: the step that ended here and whose slot it inherits; "": the keeper gave it a slot.
        """
        self._check_limits()
        step = order.step
        opened: list[int] = []
        outputs: list[Spare] = []
        failure: CannotSpawnError | CannotSpawnHereError | None = None
        try:
            outputs = self._open_outputs(order, opened)
        except CannotSpawnError as error:
            failure = error
        first = f"I {step} {order.slot} {after}\n" if after else f"I {step} {order.slot}\n"
        numbers = [spare.number for spare in outputs] if order.given is None else order.given.numbers
        if numbers:
            first += f"O {step} {' '.join(map(str, numbers))}\n"
        if order.cpus:
            first += f"B {step} {','.join(map(str, order.cpus))}\n"
        if not self._journal.write(first):
            self._journal.give_up()
            self._cgroups.leave()
            self._release(opened, outputs)
            if order.given is not None:
                order.given.close()
            self._link.report("U", step, f"its helper's journal cannot be written: {self._journal.error}")
            return
        recipe = self._recipes[order.recipe]
        stays = False
        try:
            if failure is not None:
                raise failure
            fds = {0: self._null, 1: self._null, 2: self._null} | dict(enumerate(opened, 1))
            recipe.enter_workdir()
            if order.streams is not None:
                with recipe.own_umask():
                    fds |= open_own(order.streams, opened)
            actions = tuple([(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in fds.items()])
            if recipe.script:
                program = order.given.script if order.given is not None else self._write_script(order, recipe)
                argv = [program, *recipe.argv]
            else:
                program, argv = recipe.program(), recipe.argv
            merged = recipe.env | order.env
            if recipe.sandbox:
                argv = sandboxed(
                    recipe.sandbox,
                    program,
                    argv,
                    merged,
                    here=os.getcwd(),
                    keeps=bool(recipe.workdir),
                    script=bool(recipe.script),
                    gpus=recipe.gpus,
                    own_files=tuple(filter(None, order.env.get("HAL_DEVICE_FILES", "").split(","))),
                )
                program = argv[0]
            if recipe.interactive:
                argv = held(recipe, program, argv)
                program = argv[0]
            for problem in self._enter_cgroups(order):
                self._link.report("N", step, problem)
            boot_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            boot_ms = boot_ns // 1_000_000
            wall_ms = time.time_ns() // 1_000_000
            mark = self._children.set_mark(boot_ns)
            with recipe.own_umask():
                pid = spawn(program, argv, merged, actions)
            stays = bool(after and order.may_stay)
        except (CannotSpawnError, CannotSpawnHereError) as error:
            failure = error
        finally:
            if not stays:
                self._cgroups.leave()
            self._release(opened, [] if failure is None else outputs)
            if order.given is not None:
                order.given.close()
        if isinstance(failure, CannotSpawnHereError):
            self._journal.write(f"U {step}\n")
            self._link.report("U", step, str(failure))
            return
        if failure is not None:
            self._fail(step, order.cpus, failure)
            return
        self._cgroups.stay()
        reported = pid if self._proc < 0 else outside_pid(self._proc, pid)
        line = f"P {step} {reported} {wall_ms} {boot_ms} {mark}\n"
        self._journal.write(line)
        self.running[pid] = RunningStep(step, mark, order.moves, order.cpus, outputs, first + line)
        report = self._link.report_later if after else self._link.report
        report("P", step, reported, wall_ms, boot_ms, mark)

    def _check_limits(self) -> None:
        """Check our limits, which steps inherit and which any process of the same user can lower for good: if so,
        another helper replaces us."""
        if _own_limits() != self._limits:
            self._flush()
            sys.exit("helper: a step has changed its limits; another helper takes its place")

    def _open_outputs(self, order: Order, opened: list[int]) -> list[Spare]:
        """Open stdout and stderr of a step, as far as HAL keeps them; if the disk is full fewer, with a note for the
        exit report."""
        if order.given is not None:
            opened += order.given.outputs
            order.given.outputs = []
        if self.captures is None or (order.streams is not None and order.streams[1] and order.streams[2]):
            return []
        outputs, problem = self.captures.open(order.step, order.prefix, opened)
        if problem:
            self._link.report("N", order.step, problem)
        return outputs

    def _release(self, opened: list[int], outputs: list[Spare]) -> None:
        """Close descriptors, and take back files to which no process writes."""
        for fd in opened:
            os.close(fd)
        if outputs and self.captures is not None:
            self.captures.ended(outputs, left=False)

    def _enter_cgroups(self, order: Order) -> list[str]:
        """Move into a step's cgroups, unless the keeper has moved us, and onto its CPUs; returns why some could not be
        entered."""
        if order.given is not None:
            if not order.given.into:
                return self._cgroups.enter([], order.cpus)
            self._cgroups.receive(order.moves, order.given.into)
            order.given.into = []
        return self._cgroups.enter(order.moves, order.cpus)

    def _write_script(self, order: Order, recipe: Recipe) -> str:
        """Raises:
        CannotSpawnError, CannotSpawnHereError: as `write_script`.
        """
        return write_script(self._directories, order.prefix, recipe.script)

    def name_outputs(self) -> None:
        """Name the outputs to which a first byte was written."""
        for step, problem in self.captures.name_written() if self.captures is not None else ():
            self._link.report("N", step, problem)

    def _fail(self, step: str, cpus: Cpus, error: CannotSpawnError) -> None:
        self._seq += 1
        wall_ms = time.time_ns() // 1_000_000
        message = " ".join(error.message.split())[:MAX_TEXT]
        line = f"F {self._seq} {step} {error.code} {wall_ms} {message}\n"
        self._journal.write(line)
        self._unconfirmed[self._seq] = line
        heir = self._heir_of(step)
        self._link.report("F", self._seq, step, error.code, message, wall_ms, heir.step if heir else "")
        if heir:
            self._inherit(heir, step, cpus)

    # ── inherit a slot ────────────────────────────────────────────────────────────────────────────────────────────

    def _heir_of(self, step: str) -> Order | None:
        """Return the order that inherits the slot of a step that has ended; what has waited too long is returned."""
        job = job_of(step)
        if not self._orders.waiting(job) or self._journal.error:
            return None
        while not self.closed and self._link.has_input():  # what was recalled before the step ended is not begun
            self.listen()
        boot_ms = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
        for waiting in self._orders.waiting(job):
            order = self._orders.forget(waiting)
            if order is not None and boot_ms <= order.until_boot_ms:
                return order
            if order is not None:
                self._return(order)
        return None

    def _inherit(self, order: Order, after: str, cpus: Cpus) -> None:
        """Begin a step in the slot of one that ended, on its CPUs; not if the keeper has ended meanwhile."""
        if not self.closed:
            order.cpus = cpus
            self._begin(order, after)
            os.chdir("/")

    # ── end ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def reap(self) -> None:
        """Journal and report the ends of steps, and begin those that inherit a slot; orphans of steps are reaped
        too."""
        ended: list[tuple[RunningStep, int, int, resource.struct_rusage, bool]] = []
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if not pid:
                break
            one = self.running.pop(pid, None)
            if one is not None:
                inhabited = self._cgroups.is_inhabited(one.moves)
                ended.append((one, pid, os.waitstatus_to_exitcode(status), usage, inhabited))
        if not ended:
            return
        strays = [(session_of(pid), mark_of(pid)) for pid in self._children.pids() if pid not in self.running]
        alive = {one.mark for one in self.running.values()}
        wall_ms = time.time_ns() // 1_000_000
        lines = []
        ends: list[tuple[tuple[Any, ...], Cpus]] = []
        for one, pid, status, usage, inhabited in ended:
            # A stray that has neither the session nor the mark of a running step may belong to any of them.
            left = inhabited or any(
                session == pid or (one.mark and mark == one.mark) or (session not in self.running and mark not in alive)
                for session, mark in strays
            )
            problem = self.captures.ended(one.outputs, left=left) if self.captures is not None else ""
            if problem:
                self._link.report("N", one.step, problem)
            self._seq += 1
            numbers = (
                round(usage.ru_utime * 1000),
                round(usage.ru_stime * 1000),
                usage.ru_maxrss,
                usage.ru_inblock,
                usage.ru_oublock,
            )
            line = f"X {self._seq} {one.step} {status} {wall_ms} {' '.join(map(str, numbers))} {int(left)}\n"
            lines.append(line)
            self._unconfirmed[self._seq] = line
            ends.append(((self._seq, one.step, status, wall_ms, numbers, int(left)), one.cpus))
        self._journal.write("".join(lines))
        self._report_ends(ends)

    def _report_ends(self, ends: list[tuple[tuple[Any, ...], Cpus]]) -> None:
        """Report ends, each with the step that inherits the slot, and begin those steps."""
        heirs: list[tuple[Order, str, Cpus]] = []
        for end, cpus in ends:
            step, left = end[1], end[5]
            heir = None if left else self._heir_of(step)
            if heir:
                self._link.report_later("X", *end, heir.step)
                heirs.append((heir, step, cpus))
            else:
                self._link.report("X", *end, "")
        if not heirs:
            self._cgroups.leave()
        for order, after, cpus in heirs:
            self._inherit(order, after, cpus)


def _own_limits() -> list[tuple[int, int]]:
    return [resource.getrlimit(which) for which in LIMITS]
