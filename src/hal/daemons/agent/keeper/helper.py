"""One helper: a tiny process that spawns steps, waits for them, and journals their ends before it reports to its
keeper.

Run as a script with `python -I -S`, without packages but `hal.runtime.regular_files`, which needs none (about 10 MiB,
most of it shared): `helper.py JOURNAL recorder PID`, started by a `recorder`, the keeper's socket as file descriptor 0.
It outlives its keeper: when the socket closes it spawns nothing more, waits for what it has, journals that, and ends. A
helper of guarded steps (`helper.py JOURNAL PROC`, started by `guard`) ends with its keeper instead, and they with it;
PROC is a descriptor of the /proc outside its PID namespace, or -1 without one.

It may hold steps that were sent ahead, each of which waits for the slot of a step of its job that ends here: such a
step is begun at once, and the keeper gets several ends and starts in one message. A waiting step is returned on
request; all are dropped with the keeper's socket.

Messages, both ways, are marshalled lists of tuples after a 4-byte little-endian length (see `spawner`, which speaks the
other side). The journal is lines of text, appended with one write each; a line without its end is torn and does not
count:

    H pid start_ticks boot_id version recorder start_ticks    first line; 0 0: only this process sees our steps end
    I step slot [after]      about to spawn; slot: its cgroup, or -; after: the step whose slot it inherited
    P step pid wall_ms boot_ms mark      mark: the hard limit that all processes of the step have, or 0
    F seq step code wall_ms message      no process could be made: the job's fault
    U step                   no process could be made: this node's fault; it may run elsewhere
    X seq step status wall_ms user_ms system_ms max_rss_kib in_blocks out_blocks leftover
    C                        nothing more will be spawned
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import marshal
import os
import resource
import select
import signal
import stat
import sys
import time
from typing import Any

if __name__ == "__main__":
    sys.path.append(os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 4)))

from hal.runtime.regular_files import NotRegularError, create_regular, create_scratch, open_directory, read_regular

VERSION = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
STEP_UMASK = 0o022
CORE_VARIABLE = "HAL_CORE_LIMIT"
"""The size of core files that steps may write, unless they raise it; as in `hal.runtime.inheritance`."""
KEEPER_FD = 0
READ_BYTES = 1 << 16
"""Bytes read at once; a larger buffer would be mapped and unmapped for each message, however small it is."""
LEAST_PORTION_BYTES = 1 << 11
"""The kernel lists children in chunks of a page; a shorter one is the last."""
MAX_JOURNAL_BYTES = 1 << 20
"""A journal that exceeds this (and twice its live content) is rewritten."""
MAX_CGROUP_FDS = 256
MAX_DIRECTORY_FDS = 64
"""Directories of jobs' files that are held open."""
MAX_INTERPRETER_BYTES = 256
FLUSH_EVERY = 4
"""Spawns after which the keeper gets a report, if more are waiting."""
MAX_UNTOLD = 16
"""Messages without urgency after which the keeper gets a report nevertheless: eight ends, each with a start."""
COMPANY_MS = 10
"""How long such a message may wait for others."""
MARK_TOP_US = 1 << 62
"""Every mark is below this: as a limit of real-time CPU, which it is to the kernel, it has no effect."""
STAY_MS = 10
"""How long this process may stay in the cgroup of a short step that it has spawned."""

LIMITS = (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_AS, resource.RLIMIT_NPROC)
"""Checked before each spawn: four short calls."""

_DEFAULT_SIGNALS = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGPIPE,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGCHLD,
    signal.SIGTSTP,
    signal.SIGTTIN,
    signal.SIGTTOU,
    signal.SIGXFSZ,
)
"""Python ignores some signals, a starter like nohup others; a step begins with none ignored."""


class CannotSpawnError(Exception):
    """A fault of the job: exit code and message."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class CannotSpawnHereError(Exception):
    """This node's fault: it lacks a resource, or its disks fail. Another attempt may succeed."""


NODE_ERRORS = frozenset(
    {
        errno.EBADF,  # descriptors forbidden by its limit
        errno.EAGAIN,  # as many processes as this user, its cgroup or the kernel allows
        errno.ENOMEM,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EROFS,
        errno.EIO,
        errno.ENODEV,
        errno.ENXIO,
        errno.ENOBUFS,
        errno.ESTALE,
        errno.ENOTCONN,  # a mount whose server is gone; and the four after it
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ETIMEDOUT,
        errno.ECONNABORTED,
        errno.EREMOTEIO,
    }
)
"""Errors of a spawn, a work directory or a script that are the fault of the node, not of the job."""


class Journal:
    """The helper's own journal: its content can be rebuilt from what runs and what the keeper has not confirmed."""

    def __init__(self, path: str, pid: int, proc: int = -1, recorder: int = 0) -> None:
        self.path = path
        self.error = ""
        self.size = 0
        self._lost = ""
        self._torn = False
        self._fd = create_regular(path, os.O_WRONLY | os.O_APPEND)
        with open("/proc/self/stat", "rb") as file:
            ticks = file.read().rsplit(b")", 1)[1].split()[19].decode()
        where = "sys/kernel/random/boot_id"  # as the keeper reads it, whose /proc may be another one
        fd = os.open(where, os.O_RDONLY, dir_fd=proc) if proc >= 0 else os.open(f"/proc/{where}", os.O_RDONLY)
        boot_id = os.read(fd, READ_BYTES).decode("ascii").strip()
        os.close(fd)
        self._first = f"H {pid} {ticks} {boot_id} {VERSION} {recorder} {begun_ticks(recorder)}\n"
        self.write(self._first)

    def write(self, text: str) -> bool:
        """Append; False if the disk is full. What could not be written is retried with the next lines."""
        data = (("\n" if self._torn else "") + self._lost + text).encode("utf-8", "surrogateescape")
        try:
            written = os.write(self._fd, data)
        except OSError as error:
            self.error = error.strerror or str(error)
            self._lost += text
            return False
        self.size += written
        self._torn = written < len(data)
        self._lost = self._lost + text if self._torn else ""
        self.error = os.strerror(errno.ENOSPC) if self._torn else ""
        return not self._torn

    def give_up(self) -> None:
        """Drop the lines that could not be written."""
        self._lost = ""

    def rewrite(self, text: str) -> None:
        """Replace the whole journal; on a full disk it stays as it is."""
        scratch = self.path + ".new"
        try:
            fd = create_scratch(scratch, flags=os.O_WRONLY | os.O_APPEND)
            data = (self._first + text).encode("utf-8", "surrogateescape")
            if os.write(fd, data) < len(data):
                os.close(fd)
                return
            os.rename(scratch, self.path)
        except OSError as error:
            self.error = error.strerror or str(error)
            return
        os.close(self._fd)
        self._fd, self.size, self._lost, self._torn = fd, len(data), "", False


class Recipe:
    """What the steps of one template have in common."""

    def __init__(self, plain: dict[str, Any]) -> None:
        self.argv: list[str] = plain["argv"]
        self.script: str = plain["script"]
        self.env: dict[str, str] = plain["env"]
        self.workdir: str = plain["workdir"]
        self.program = ""
        """Where argv[0] was found, once it was looked up."""


class Helper:
    """The whole state of a helper process."""

    def __init__(self, journal: Journal, proc: int = -1) -> None:
        self.journal = journal
        self._proc = proc
        """The /proc of the reader of pids that this process reports; -1: our own."""
        self.running: dict[int, str] = {}
        """Step by pid of its first process."""
        self.marks: dict[int, int] = {}
        """Its mark, by the same pid."""
        self.begun: dict[int, str] = {}
        """Journal lines of running steps, by pid."""
        self.unconfirmed: dict[int, str] = {}
        """Journal lines of ends, by number, until the keeper has them in its own journal."""
        self.recipes: dict[int, Recipe] = {}
        self.orders: list[tuple[tuple[Any, ...], str]] = []
        """Orders that can begin, each with the step whose slot it inherits, or ''."""
        self.ahead: dict[str, dict[str, tuple[Any, ...]]] = {}
        """Orders that wait for a slot, by job, in order of arrival."""
        self.moves: dict[int, list[tuple[str, str]]] = {}
        """Cgroups of running steps, by pid."""
        self.closed = False
        self._mark = MARK_TOP_US
        """Mark of the step spawned last."""
        self._seq = 0
        self._told: list[tuple[Any, ...]] = []
        self._urgent = False
        self._due_ns = 0
        """When queued messages must be sent, by the monotonic clock."""
        self._ways_back: list[str] = []
        """Moves out of a step's cgroups, in which this process still is."""
        self._within: list[tuple[str, str]] = []
        """The cgroups of that step."""
        self._leave_ns = 0
        """When it must leave them."""
        self._ears = select.poll()
        self._ears.register(KEEPER_FD, select.POLLIN)
        self._buffer = bytearray()
        self._limits = own_limits()
        self._null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        self._cgroups: dict[str, int] = {}
        """Open `cgroup.procs` files by path."""
        self._directories: dict[str, int] = {}
        """Open directories of jobs' files by path."""
        try:
            self._children = os.open(f"/proc/self/task/{os.getpid()}/children", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._children = -1

    # ── the keeper's side ─────────────────────────────────────────────────────────────────────────────────────────

    def listen(self) -> None:
        """Read what the keeper has sent; at the end of its stream, accept no more steps."""
        try:
            data = os.read(KEEPER_FD, READ_BYTES)
        except ConnectionError:
            data = b""
        if not data:
            self.close()
            return
        buffer = self._buffer
        buffer += data
        at = 0
        while len(buffer) - at >= 4:
            end = at + 4 + int.from_bytes(buffer[at : at + 4], "little")
            if len(buffer) < end:
                break
            for message in marshal.loads(memoryview(buffer)[at + 4 : end]):
                self.receive(message)
            at = end
        del buffer[:at]

    def receive(self, message: tuple[Any, ...]) -> None:
        kind = message[0]
        if kind == "S":
            self.orders.append((message[1:], ""))
        elif kind == "Q":
            self.ahead.setdefault(job_of(message[1]), {})[message[1]] = message[1:]
        elif kind == "B":
            order = self.forget(message[1])
            if order is not None:
                self.orders.append((order, message[2]))
        elif kind == "K":
            for step in message[1]:
                if self.forget(step) is not None:
                    self.tell("G", step)
        elif kind == "T":
            self.recipes[message[1]] = Recipe(message[2])
        elif kind == "E":
            self.tell("E")
        elif kind == "D":
            self.recipes.pop(message[1], None)
        elif kind == "A":
            for seq in [seq for seq in self.unconfirmed if seq <= message[1]]:
                del self.unconfirmed[seq]
            self.tidy()

    def tell(self, *message: Any) -> None:
        """Queue an urgent message; `flush` sends all."""
        self._told.append(message)
        self._urgent = True

    def mention(self, *message: Any) -> None:
        """Queue a message that may wait for others."""
        if not self._told:
            self._due_ns = time.monotonic_ns() + COMPANY_MS * 1_000_000
        self._told.append(message)

    def settle(self) -> int | None:
        """Do what is due: report to the keeper, leave a step's cgroups; returns how long the rest may wait, in ms."""
        if not self._told and not self._ways_back:
            return None
        now_ns = time.monotonic_ns()
        if self._urgent or len(self._told) >= MAX_UNTOLD or (self._told and now_ns >= self._due_ns):
            self.flush()
        if self._ways_back and now_ns >= self._leave_ns:
            self.leave()
        due = [self._due_ns] if self._told else []
        due += [self._leave_ns] if self._ways_back else []
        return max(0, -((now_ns - min(due)) // 1_000_000)) if due else None

    def flush(self) -> None:
        if not self._told:
            return
        body = marshal.dumps(self._told)
        data = len(body).to_bytes(4, "little") + body
        self._told.clear()
        self._urgent = False
        while data and not self.closed:
            try:
                data = data[os.write(KEEPER_FD, data) :]
            except ConnectionError:
                self.close()

    def close(self) -> None:
        """The keeper is gone: drop what it ordered and was not begun, so that its successor knows."""
        if not self.closed:
            self.closed = True
            self.orders.clear()
            self.ahead.clear()
            self.leave()
            self.journal.write("C\n")

    # ── spawning ──────────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self, order: tuple[Any, ...], after: str = "") -> None:
        """Spawn one step: journal that it is about to be spawned, spawn it, journal its pid.

        Args:
            order: what the keeper sent.
            after: the step that ended here and whose slot it inherits; "": the keeper gave it a slot.
        """
        self.check_limits()
        step, recipe_id, env, prefix, slot, moves, may_stay = order[:7]
        first = f"I {step} {slot} {after}\n" if after else f"I {step} {slot}\n"
        if not self.journal.write(first):
            self.journal.give_up()
            self.leave()
            self.tell("U", step, f"its helper's journal cannot be written: {self.journal.error}")
            return
        recipe = self.recipes[recipe_id]
        stays = False
        failure: CannotSpawnError | CannotSpawnHereError | None = None
        opened: list[int] = []
        try:
            out, err = self.open_outputs(step, prefix, opened)  # first: even a step that cannot start has outputs
            program, argv = self.prepare(recipe, prefix)
            merged = recipe.env | env
            actions = (
                (os.POSIX_SPAWN_DUP2, self._null, 0),
                (os.POSIX_SPAWN_DUP2, out, 1),
                (os.POSIX_SPAWN_DUP2, err, 2),
            )
            self.enter(step, moves)
            boot_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            boot_ms = boot_ns // 1_000_000
            wall_ms = time.time_ns() // 1_000_000
            mark = self.set_mark(boot_ns)
            pid = self.spawn(program, argv, merged, actions)
            stays = bool(after and may_stay)
        except (CannotSpawnError, CannotSpawnHereError) as error:
            failure = error
        finally:
            if not stays:
                self.leave()
            for fd in opened:
                os.close(fd)
        if isinstance(failure, CannotSpawnHereError):
            self.journal.write(f"U {step}\n")
            self.tell("U", step, str(failure))
            return
        if failure is not None:
            self.fail(step, failure)
            return
        self._leave_ns = time.monotonic_ns() + STAY_MS * 1_000_000
        told = pid if self._proc < 0 else outside_pid(self._proc, pid)
        line = f"P {step} {told} {wall_ms} {boot_ms} {mark}\n"
        self.journal.write(line)
        self.running[pid] = step
        self.marks[pid] = mark
        self.begun[pid] = first + line
        self.moves[pid] = moves
        (self.mention if after else self.tell)("P", step, told, wall_ms, boot_ms, mark)

    def check_limits(self) -> None:
        """Check our limits, which steps inherit and which any process of the same user can lower for good: if so,
        another helper replaces us."""
        if own_limits() != self._limits:
            self.flush()
            sys.exit("helper: a step has changed its limits; another helper takes its place")

    def prepare(self, recipe: Recipe, prefix: str) -> tuple[str, list[str]]:
        """Enter the work directory; returns the program's path and its arguments."""
        try:
            if recipe.workdir:
                os.chdir(recipe.workdir)
            else:
                try:
                    os.chdir(recipe.env["HOME"])
                except OSError:  # not requested by the job: a user without a home can still run
                    os.chdir("/")
        except OSError as error:
            where = f"work directory '{recipe.workdir}'"
            if isinstance(error, FileNotFoundError):
                raise CannotSpawnError(126, f"{where} does not exist on this node") from None
            if error.errno in NODE_ERRORS:
                raise CannotSpawnHereError(f"{where} cannot be entered: {error.strerror}") from None
            raise CannotSpawnError(126, f"{where} cannot be entered: {error.strerror}") from None
        if recipe.script:
            path = f"{prefix}.script"
            try:
                fd = self.create(prefix, "script", os.O_WRONLY, 0o700)
                try:
                    data = recipe.script.encode("utf-8", "surrogateescape")
                    while data:
                        data = data[os.write(fd, data) :]
                finally:
                    os.close(fd)
            except NotRegularError as error:
                raise CannotSpawnError(126, f"its script cannot be written: {in_the_way(error)}") from None
            except OSError as error:
                raise CannotSpawnHereError(f"the script could not be written to {path}: {error.strerror}") from None
            return path, [path]
        name = recipe.argv[0]
        if "/" in name:
            return name, recipe.argv
        if not recipe.program or not os.access(recipe.program, os.X_OK):
            recipe.program = find_program(name, recipe.env.get("PATH", ""))
        return recipe.program, recipe.argv

    def set_mark(self, boot_ns: int) -> int:
        """Give this process, and thereby what it spawns next, a hard limit that no other step of this boot has.

        A step's processes inherit it, whatever they fork, execute, detach or hide from; only root can raise it again.
        It is derived from the time and decreases with each step, because we cannot raise ours either.
        """
        mark = min(MARK_TOP_US - boot_ns, self._mark - 1)
        try:
            resource.setrlimit(resource.RLIMIT_RTTIME, (mark, mark))
        except (OSError, ValueError):  # somebody has lowered our limit
            return 0
        self._mark = mark
        return mark

    def spawn(self, program: str, argv: list[str], env: dict[str, str], actions: tuple[Any, ...]) -> int:
        try:
            try:
                return _posix_spawn(program, argv, env, actions)
            except PermissionError:
                # A script on a file system mounted noexec still runs through its interpreter.
                interpreter = shebang(program)
                if not interpreter or not os.access(program, os.R_OK) or not os.stat(program).st_mode & 0o111:
                    raise
                return _posix_spawn(interpreter[0], [*interpreter, program, *argv[1:]], env, actions)
        except (OSError, ValueError) as error:
            raise explain(error, program) from None

    def open_outputs(self, step: str, prefix: str, opened: list[int]) -> tuple[int, int]:
        """Open stdout and stderr for appending; /dev/null, with a note for the exit report, if the disk is full.

        Raises:
            CannotSpawnError: something other than a file of HAL is in their place.
        """
        try:
            for name in ("stdout", "stderr"):
                opened.append(self.create(prefix, name, os.O_WRONLY | os.O_APPEND, 0o600))
        except NotRegularError as error:
            raise CannotSpawnError(126, f"its output cannot be created: {in_the_way(error)}") from None
        except OSError as error:
            self.tell("N", step, f"its output was not kept: {prefix}: {error.strerror}")
        return (opened[0] if opened else self._null), (opened[1] if len(opened) > 1 else self._null)

    def create(self, prefix: str, ending: str, flags: int, mode: int) -> int:
        """Create a file of a step; the first step of a job here creates its directory."""
        where, _, name = prefix.rpartition("/")
        try:
            return create_regular(f"{name}.{ending}", flags, mode, dir_fd=self.directory(where))
        except FileNotFoundError:  # the directory was deleted after it was opened
            fd = self._directories.pop(where, None)
            if fd is not None:
                os.close(fd)
            return create_regular(f"{name}.{ending}", flags, mode, dir_fd=self.directory(where))

    def directory(self, path: str) -> int:
        """Open the directory of a job's files; it stays the same one, whatever a job puts in its place later."""
        fd = self._directories.get(path)
        if fd is not None:
            return fd
        root, name = os.path.split(path)
        try:
            top = open_directory(root)
        except FileNotFoundError:
            os.makedirs(root, 0o700, exist_ok=True)
            top = open_directory(root)
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=top)
            fd = open_directory(name, dir_fd=top)
        finally:
            os.close(top)
        if len(self._directories) >= MAX_DIRECTORY_FDS:
            os.close(self._directories.pop(next(iter(self._directories))))
        self._directories[path] = fd
        return fd

    def enter(self, step: str, moves: list[tuple[str, str]]) -> None:
        """Move into the step's cgroups, so that its first process is born there."""
        ways_back = [back for _, back in moves]
        if self._ways_back != ways_back:
            self.leave()
            self._ways_back = ways_back
        self._within = moves
        for place, _ in moves:
            try:
                self.move(place)
            except OSError as error:
                self.tell("N", step, f"a limit was not set: {place}: {error.strerror}")

    def leave(self) -> None:
        """Move back: a helper must not be counted, or killed, with a step.

        If a short step follows another, it moves from a cgroup without a memory limit directly to that of the next
        step: a move takes the lock of all forks of the machine.
        """
        for place in self._ways_back:
            with contextlib.suppress(OSError):  # its own cgroup was removed: it stays where it is
                self.move(place)
        self._ways_back, self._within = [], []

    def move(self, place: str) -> None:
        fd = self._cgroups.get(place)
        if fd is None:
            if len(self._cgroups) >= MAX_CGROUP_FDS:
                os.close(self._cgroups.pop(next(iter(self._cgroups))))
            fd = self._cgroups[place] = os.open(place, os.O_WRONLY | os.O_CLOEXEC)
        os.write(fd, b"0")

    def fail(self, step: str, error: CannotSpawnError) -> None:
        self._seq += 1
        wall_ms = time.time_ns() // 1_000_000
        message = " ".join(error.message.split())
        line = f"F {self._seq} {step} {error.code} {wall_ms} {message}\n"
        self.journal.write(line)
        self.unconfirmed[self._seq] = line
        heir = self.heir_of(step)
        self.tell("F", self._seq, step, error.code, message, wall_ms, heir[0] if heir else "")
        if heir:
            self.inherit(heir, step)

    # ── what waits for a place ────────────────────────────────────────────────────────────────────────────────────

    def heir_of(self, step: str) -> tuple[Any, ...] | None:
        """Return the order that inherits the slot of a step that has ended; what has waited too long is returned."""
        if job_of(step) not in self.ahead or self.journal.error:
            return None
        while not self.closed and self._ears.poll(0):  # what was recalled before the step ended is not begun
            self.listen()
        boot_ms = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
        for waiting in list(self.ahead.get(job_of(step), ())):
            order = self.forget(waiting)
            if order is not None and boot_ms <= order[7]:
                return order
            self.tell("G", waiting)
        return None

    def inherit(self, order: tuple[Any, ...], after: str) -> None:
        """Begin a step in the slot of one that ended; not if the keeper has gone meanwhile."""
        if not self.closed:
            self.begin(order, after)
            os.chdir("/")

    def forget(self, step: str) -> tuple[Any, ...] | None:
        """Remove the order of a step that no longer waits for a slot."""
        lane = self.ahead.get(job_of(step))
        order = lane.pop(step, None) if lane else None
        if not lane:
            self.ahead.pop(job_of(step), None)
        return order

    # ── ends ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def reap(self) -> None:
        """Journal and report the ends of steps, and begin those that inherit a slot; orphans of steps are reaped
        too."""
        ended: list[tuple[str, int, int, Any, bool, int]] = []
        me = os.getpid()
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if not pid:
                break
            step = self.running.pop(pid, None)
            if step is not None:
                del self.begun[pid]
                moves = self.moves.pop(pid)
                inhabited = is_inhabited(moves, me, inside=moves == self._within)
                mark = self.marks.pop(pid)
                ended.append((step, pid, os.waitstatus_to_exitcode(status), usage, inhabited, mark))
        if not ended:
            return
        strays = self.strays()
        alive = set(self.marks.values())
        wall_ms = time.time_ns() // 1_000_000
        lines = []
        ends = []
        for step, pid, status, usage, inhabited, own in ended:
            # A stray that has neither the session nor the mark of a running step may belong to any of them.
            left = inhabited or any(
                session == pid or (own and mark == own) or (session not in self.running and mark not in alive)
                for session, mark in strays
            )
            self._seq += 1
            numbers = (
                round(usage.ru_utime * 1000),
                round(usage.ru_stime * 1000),
                usage.ru_maxrss,
                usage.ru_inblock,
                usage.ru_oublock,
            )
            line = f"X {self._seq} {step} {status} {wall_ms} {' '.join(map(str, numbers))} {int(left)}\n"
            lines.append(line)
            self.unconfirmed[self._seq] = line
            ends.append((self._seq, step, status, wall_ms, numbers, int(left)))
        self.journal.write("".join(lines))
        heirs: list[tuple[tuple[Any, ...], str]] = []
        for end in ends:
            step = end[1]
            heir = None if end[5] else self.heir_of(step)
            if heir:
                self.mention("X", *end, heir[0])
                heirs.append((heir, step))
            else:
                self.tell("X", *end, "")
        if not heirs:
            self.leave()
        for order, after in heirs:
            self.inherit(order, after)

    def strays(self) -> list[tuple[int, int]]:
        """Return session and mark of our children that are not first processes of steps: remnants of ended steps
        that we adopted."""
        if self._children >= 0:
            os.lseek(self._children, 0, os.SEEK_SET)
            data = os.read(self._children, READ_BYTES)
            portion = data
            while len(portion) >= LEAST_PORTION_BYTES and (portion := os.read(self._children, READ_BYTES)):
                data += portion
            children = [int(pid) for pid in data.split()]
        else:
            me = os.getpid()
            children = [int(name) for name in os.listdir("/proc") if name.isdigit() and parent_of(name) == me]
        return [(session_of(pid), mark_of(pid)) for pid in children if pid not in self.running]

    def tidy(self) -> None:
        """Rewrite the journal once most of it is obsolete."""
        if self.journal.size > MAX_JOURNAL_BYTES and not self.closed:
            live = "".join(self.begun.values()) + "".join(self.unconfirmed.values())
            if len(live) * 2 < self.journal.size:
                self.journal.rewrite(live)


def in_the_way(error: NotRegularError) -> str:
    """Describe what is in the place of a file of the step, and what to do."""
    return f"{error.filename}: {error.strerror}; remove it and submit the job again"


def job_of(step: str) -> str:
    """Return the part of a step's id before the first dot."""
    return step.partition(".")[0]


def is_inhabited(moves: list[tuple[str, str]], me: int, *, inside: bool) -> bool:
    """Whether any process is in these cgroups of a step, or in one created inside them.

    Args:
        moves: as for `Helper.enter`; the first leads to where processes are counted, if they are.
        me: this process, which does not count.
        inside: whether it is in there.
    """
    if not moves:
        return False
    try:
        fd = os.open(moves[0][0].removesuffix("cgroup.procs") + "pids.current", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return any(inhabitants(into) - {me} for into, _ in moves)
    try:
        return int(os.read(fd, READ_BYTES)) > inside
    finally:
        os.close(fd)


def inhabitants(members: str) -> set[int]:
    """Read the pids in a `cgroup.procs` file; none if it cannot be read."""
    try:
        fd = os.open(members, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return set()
    try:
        return {int(pid) for pid in os.read(fd, READ_BYTES).split()}
    except OSError:
        return set()
    finally:
        os.close(fd)


def find_program(name: str, path: str) -> str:
    """Find a program in PATH.

    Raises:
        CannotSpawnError: it is not there.
    """
    found = ""
    for directory in path.split(":"):
        candidate = os.path.join(directory or ".", name)
        if os.path.isfile(candidate):
            if os.access(candidate, os.X_OK):
                return candidate
            found = found or candidate
    if found:
        raise CannotSpawnError(126, f"'{found}' cannot be run: it is not executable")
    raise CannotSpawnError(127, f"no such program '{name}'; looked in PATH={path}")


def shebang(path: str) -> list[str]:
    """Return the interpreter in a script's first line, with its argument; [] if there is none."""
    try:
        first = read_regular(path, MAX_INTERPRETER_BYTES, follow=True).split(b"\n", 1)[0]
    except OSError:
        return []
    if not first.startswith(b"#!"):
        return []
    interpreter, _, argument = first[2:].replace(b"\t", b" ").strip(b" ").partition(b" ")
    return [os.fsdecode(word) for word in (interpreter, argument.strip(b" ")) if word]


def explain(error: OSError | ValueError, program: str) -> CannotSpawnError | CannotSpawnHereError:
    """Explain a failed spawn, with the exit code that shells give it if it is the job's fault."""
    number = getattr(error, "errno", 0)
    name = f"'{program}'"
    if number in (errno.EAGAIN, errno.ENOMEM):
        return CannotSpawnHereError(f"this node cannot create more processes: {error}")
    if number in NODE_ERRORS:
        return CannotSpawnHereError(f"{name} cannot be run on this node: {error}")
    if number in (errno.ENOENT, errno.ENOTDIR):
        if not os.path.exists(program):
            return CannotSpawnError(127, f"no such program {name}")
        interpreter = shebang(program)
        if not interpreter:
            return CannotSpawnError(126, f"{name} cannot be run: the loader that it needs does not exist")
        ends = "; its first line ends with a carriage return (Windows line ends)" * (interpreter[-1].endswith("\r"))
        shown = interpreter[0].rstrip("\r")
        return CannotSpawnError(126, f"{name} cannot be run: its interpreter '{shown}' does not exist{ends}")
    if number == errno.EACCES:
        if os.path.isdir(program):
            return CannotSpawnError(126, f"{name} is a directory, not a program")
        with contextlib.suppress(OSError):
            mode = os.stat(program).st_mode
            if not mode & 0o111:
                return CannotSpawnError(
                    126, f"{name} cannot be run: it is not executable (mode {stat.S_IMODE(mode):04o})"
                )
        return CannotSpawnError(126, f"{name} cannot be run: permission denied")
    if number == errno.ENOEXEC:
        return CannotSpawnError(126, f"{name} is neither a program nor a script that names its interpreter (#!)")
    if number == errno.E2BIG:
        return CannotSpawnError(126, f"{name} cannot be run: its arguments and environment are too long together")
    return CannotSpawnError(126, f"{name} cannot be run: {getattr(error, 'strerror', '') or error}")


def own_limits() -> list[tuple[int, int]]:
    """Return the limits of this process that its steps inherit and that could keep them from working."""
    return [resource.getrlimit(which) for which in LIMITS]


def outside_pid(proc: int, pid: int) -> int:
    """Return the pid, in the namespace of that /proc, of a child that was not reaped yet."""
    fd = os.pidfd_open(pid)
    try:
        info = os.open(f"self/fdinfo/{fd}", os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)
        try:
            text = os.read(info, READ_BYTES)
        finally:
            os.close(info)
    finally:
        os.close(fd)
    return int(text.partition(b"\nPid:")[2].split(None, 1)[0])


def begun_ticks(pid: int) -> int:
    """Return when a process began, in clock ticks since the boot; 0 if it does not exist."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read(READ_BYTES).rsplit(b")", 1)[1].split()[19])
    except (OSError, IndexError):
        return 0


def session_of(pid: int) -> int:
    """Return a process's session; its own pid if it is gone."""
    try:
        return os.getsid(pid)
    except OSError:
        return pid


def mark_of(pid: int) -> int:
    """Return the hard limit that marks a process's step; -1 if the process is gone or has none."""
    try:
        return resource.prlimit(pid, resource.RLIMIT_RTTIME)[1]
    except (OSError, ValueError):
        return -1


def parent_of(pid: str) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read(READ_BYTES).rsplit(b")", 1)[1].split()[1])
    except (OSError, IndexError):
        return 0


def _posix_spawn(program: str, argv: list[str], env: dict[str, str], actions: tuple[Any, ...]) -> int:
    return os.posix_spawn(
        program, argv, env, file_actions=actions, setsid=True, setsigmask=(), setsigdef=_DEFAULT_SIGNALS
    )


def allow_core_files(size: str) -> None:
    """Restore the core file size that HAL's starter allowed; the daemons in between wrote none."""
    with contextlib.suppress(OSError, ValueError):
        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
        resource.setrlimit(resource.RLIMIT_CORE, (int(size), hard))


def main(argv: list[str]) -> None:
    """Serve the keeper at file descriptor 0 until it is gone and every step has ended, or must end with it."""
    guarded = len(argv) == 3
    recorder = int(argv[3]) if len(argv) > 3 else 0
    proc = int(argv[2]) if guarded else -1
    pid = os.getpid() if proc < 0 else int(os.readlink("self", dir_fd=proc))
    if proc >= 0:
        os.set_inheritable(proc, False)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)  # one job's step environment must not be readable by another
    os.umask(STEP_UMASK)
    allow_core_files(os.environ.get(CORE_VARIABLE, ""))
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    wake_read, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    os.set_inheritable(KEEPER_FD, False)
    helper = Helper(Journal(argv[1], pid, proc, recorder), proc)
    helper.tell("R", pid)
    poll = select.poll()
    poll.register(wake_read, select.POLLIN)
    poll.register(KEEPER_FD, select.POLLIN)
    while not helper.closed or (helper.running and not guarded):
        for fd, _ in poll.poll(helper.settle()):
            if fd == wake_read:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake_read, READ_BYTES)
            else:
                helper.listen()
        for count, (order, after) in enumerate(helper.orders, 1):
            helper.begin(order, after)
            helper.reap()
            if count % FLUSH_EVERY == 0:
                helper.flush()
        if helper.orders:
            helper.orders.clear()
            os.chdir("/")
        helper.reap()
        if helper.closed:
            with contextlib.suppress(KeyError):
                poll.unregister(KEEPER_FD)


if __name__ == "__main__":
    main(sys.argv)
