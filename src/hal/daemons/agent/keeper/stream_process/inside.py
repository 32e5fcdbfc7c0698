"""Going inside a running step: its cgroups, limits, namespaces, user and variables, so that what is begun there has the
step's rights and no more.

The process that goes inside does so in a fixed order: what only root may do first (cgroups, limits, namespaces that
root has made), then it becomes the step's user for good, then the namespaces that the user's own sandbox has made. No
program runs, and nothing is imported, until all of it has succeeded. The facts come from the keeper and from the kernel
(/proc); what the step can write itself (its variables) is used only after the process has become the step's user.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal

from hal.daemons.agent.keeper.helper_process.account import Account, NoAccountError
from hal.daemons.agent.keeper.helper_process.scheduling import leave_real_time
from hal.daemons.agent.keeper.stream_process.order import Order, Refusal

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
START_SLACK_MS = 20
MAX_SPAWN_MS = 60_000
"""As in `keeper.processes`: how the start of a process in /proc and the keeper's clock may differ."""
READ_BYTES = 1 << 16
MAX_ENVIRON_BYTES = 4 << 20
MAX_BUBBLEWRAPS = 3
"""How many bubblewraps there are above a sandboxed program, at most."""
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
USER_NAMESPACE = ("user", 0x1000_0000)
NAMESPACES = (
    ("cgroup", 0x0200_0000),
    ("ipc", 0x0800_0000),
    ("uts", 0x0400_0000),
    ("net", 0x4000_0000),
    ("pid", 0x2000_0000),
    ("mnt", 0x0002_0000),
)
"""The one of mounts last: after it, paths are the step's."""
LIMITS = {
    "Max cpu time": resource.RLIMIT_CPU,
    "Max file size": resource.RLIMIT_FSIZE,
    "Max data size": resource.RLIMIT_DATA,
    "Max stack size": resource.RLIMIT_STACK,
    "Max core file size": resource.RLIMIT_CORE,
    "Max resident set": resource.RLIMIT_RSS,
    "Max processes": resource.RLIMIT_NPROC,
    "Max open files": resource.RLIMIT_NOFILE,
    "Max locked memory": resource.RLIMIT_MEMLOCK,
    "Max address space": resource.RLIMIT_AS,
    "Max pending signals": resource.RLIMIT_SIGPENDING,
    "Max msgqueue size": resource.RLIMIT_MSGQUEUE,
    "Max nice priority": resource.RLIMIT_NICE,
    "Max realtime priority": resource.RLIMIT_RTPRIO,
    "Max realtime timeout": resource.RLIMIT_RTTIME,
}
"""By their names in /proc: what another user's process has, prlimit tells only who has CAP_SYS_RESOURCE."""
NAME_CHARS = 26
"""Width of the names there."""

_libc = ctypes.CDLL(None, use_errno=True)


class Inside:
    """One running step, as far as a process must know it to go inside."""

    def __init__(self, order: Order) -> None:
        """Look at the step.

        Raises:
            Refusal: it has ended, it is another process by now, or it may not be looked at.
        """
        self._order = order
        self.account = _account_of(order)
        try:
            self.pidfd = os.pidfd_open(order.pid)
            _check_start(order)
            self.program = _program_in(order) if order.sandboxed else order.pid
            """The process whose surroundings are entered: the step's first one, or the one in its sandbox."""
            root = os.open(f"/proc/{self.program}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                self._status = _status_of(root)
                self._check_user()
                self.environment = _environment(root)
                self._directory = os.readlink("cwd", dir_fd=root)
                self._user_namespace = _namespace(root, USER_NAMESPACE[0])
                self._namespaces = [
                    (fd, kind) for name, kind in NAMESPACES if (fd := _namespace(root, name)) is not None
                ]
            finally:
                os.close(root)
            self._limits = _limits_of(self.program)
            self._cpus = order.cpus or os.sched_getaffinity(self.program)
        except (FileNotFoundError, ProcessLookupError):
            raise _ended(order) from None
        except PermissionError as error:
            raise Refusal(
                "conflict", f"{order.step} cannot be entered: its program keeps others from looking at it ({error})"
            ) from None
        except OSError as error:
            raise Refusal("conflict", f"{order.step} cannot be entered: {error}") from None
        self.forks = any(kind == dict(NAMESPACES)["pid"] for _, kind in self._namespaces)
        """The program must be begun by a further process, which is the first one inside the step's PID namespace."""

    @property
    def uid(self) -> int:
        """Whose step it is."""
        return os.geteuid() if self.account is None else self.account.uid

    def _check_user(self) -> None:
        """A step's first process may run a program of root's by now (sudo), whose namespaces and limits are not the
        user's to enter."""
        if any(uid != self.uid for uid in map(int, self._status["Uid"].split())):
            raise Refusal("conflict", f"{self._order.step} runs a program with the rights of another user now")

    def enter(self) -> None:
        """Let this process become one of the step's; its program is begun afterwards.

        Raises:
            OSError: something of it was refused, and nothing may be begun.
        """
        leave_real_time()
        for path in self._order.cgroups:
            fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            os.write(fd, b"0")
            os.close(fd)
        with contextlib.suppress(OSError):  # its cgroup, entered above, keeps it from others; without one it is advice
            os.sched_setaffinity(0, self._cpus)
        self._take_limits()
        root = os.geteuid() == 0
        if not root and self._user_namespace is not None:
            _setns(self._user_namespace, USER_NAMESPACE[1])
        for fd, kind in self._namespaces:
            _setns(fd, kind)
        if root:
            self._drop_capabilities()
        os.umask(int(self._status.get("Umask", "0022"), 8))
        if self.account is not None:
            self.account.take_on(no_new_privileges=self._order.no_new_privileges)
        if root and self._user_namespace is not None:
            _setns(self._user_namespace, USER_NAMESPACE[1])
        if self._status.get("NoNewPrivs") == "1":
            _prctl(PR_SET_NO_NEW_PRIVS, 1)

    def enter_directory(self) -> None:
        """Go to the directory of the step's first process, or to the root if that is gone."""
        try:
            os.chdir(self._directory)
        except OSError:
            os.chdir("/")

    def close(self) -> None:
        """Close what is open of it, but for its pidfd."""
        for fd, _ in self._namespaces:
            os.close(fd)
        if self._user_namespace is not None:
            os.close(self._user_namespace)
        self._namespaces, self._user_namespace = [], None

    def _take_limits(self) -> None:
        """Take its limits over, and with them the mark by which the keeper finds its processes."""
        for which, (soft, hard) in self._limits:
            if which == resource.RLIMIT_RTTIME and self._order.mark:
                soft = hard = self._order.mark
            try:
                resource.setrlimit(which, (soft, hard))
            except ValueError:  # without root nobody raises a limit: ours is lower
                own = resource.getrlimit(which)[1]
                least = own if hard == resource.RLIM_INFINITY else min(hard, own)
                resource.setrlimit(which, (least if soft == resource.RLIM_INFINITY else min(soft, least), least))

    def _drop_capabilities(self) -> None:
        """What its program can never have, this one cannot have. To root's programs, what they do not have now: a
        sandbox takes capabilities from them, and the next program would get them again."""
        bounding = int(self._status["CapBnd"], 16)
        if not self.uid:
            bounding &= int(self._status["CapPrm"], 16)
        last = int(_read("/proc/sys/kernel/cap_last_cap"))
        for capability in range(last + 1):
            if not bounding >> capability & 1:
                _prctl(PR_CAPBSET_DROP, capability)


def begin_program(argv: list[str], environment: dict[str, str]) -> None:
    """Become the program; does not return.

    Raises:
        OSError: it cannot be run.
    """
    for number in range(1, signal.NSIG):
        with contextlib.suppress(OSError, ValueError):  # those that nobody may change
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.execvpe(argv[0], argv, environment)


def hide_process() -> None:
    """Keep other processes of the same user from tracing this one or reading its memory."""
    _prctl(PR_SET_DUMPABLE, 0)


def _account_of(order: Order) -> Account | None:
    if not order.user:
        return None
    try:
        return Account(order.user, order.least_uid)
    except NoAccountError as error:
        raise Refusal("conflict", str(error)) from None


def _ended(order: Order) -> Refusal:
    return Refusal("conflict", f"{order.step} has ended")


def _check_start(order: Order) -> None:
    """Whether its pid is still that of the process that was begun then."""
    with open(f"/proc/{order.pid}/stat", "rb") as file:
        fields = file.read(READ_BYTES).rsplit(b")", 1)[1].split()
    started_ms = int(fields[19]) * 1000 // TICKS_PER_S
    least_ms = order.started_boot_ms - START_SLACK_MS
    if fields[0] in b"ZX" or not least_ms <= started_ms <= order.started_boot_ms + MAX_SPAWN_MS:
        raise _ended(order)


def _program_in(order: Order) -> int:
    """Return the program below bubblewrap: without a PID namespace bubblewrap has become the program itself.

    Raises:
        Refusal: there is none yet.
    """
    pid = order.pid
    if order.interactive:  # its first process is outside of the sandbox
        children = _children(pid)
        if not children:
            raise Refusal("conflict", f"{order.step} waits for somebody to attach, and has no program yet")
        pid = children[0]
    for _ in range(MAX_BUBBLEWRAPS):
        if _read(f"/proc/{pid}/comm") != "bwrap" or not (children := _children(pid)):
            break
        pid = children[0]
    return pid


def _children(pid: int) -> list[int]:
    return [int(word) for word in _read(f"/proc/{pid}/task/{pid}/children").split()]


def _status_of(root: int) -> dict[str, str]:
    fd = os.open("status", os.O_RDONLY | os.O_CLOEXEC, dir_fd=root)
    try:
        lines = os.read(fd, READ_BYTES).decode(errors="replace").splitlines()
    finally:
        os.close(fd)
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _limits_of(pid: int) -> list[tuple[int, tuple[int, int]]]:
    found = []
    for line in _read(f"/proc/{pid}/limits").splitlines():
        which = LIMITS.get(line[:NAME_CHARS].strip())
        if which is not None:
            soft, hard = (
                resource.RLIM_INFINITY if one == "unlimited" else int(one) for one in line[NAME_CHARS:].split()[:2]
            )
            found.append((which, (soft, hard)))
    return found


def _environment(root: int) -> dict[str, str]:
    fd = os.open("environ", os.O_RDONLY | os.O_CLOEXEC, dir_fd=root)
    data = b""
    try:
        while len(data) < MAX_ENVIRON_BYTES and (piece := os.read(fd, READ_BYTES)):
            data += piece
    finally:
        os.close(fd)
    pairs = (os.fsdecode(entry).partition("=") for entry in data.split(b"\0") if b"=" in entry)
    return {name: value for name, _, value in pairs if name}


def _namespace(root: int, name: str) -> int | None:
    """Open a namespace; None if it is this process's own."""
    fd = os.open(f"ns/{name}", os.O_RDONLY | os.O_CLOEXEC, dir_fd=root)
    if os.fstat(fd).st_ino == os.stat(f"/proc/self/ns/{name}").st_ino:
        os.close(fd)
        return None
    return fd


def _read(path: str) -> str:
    with open(path, "rb") as file:
        return file.read(READ_BYTES).decode(errors="replace").strip()


def _setns(fd: int, kind: int) -> None:
    if _libc.setns(fd, kind):
        number = ctypes.get_errno()
        raise OSError(number, f"setns: {os.strerror(number)}")


def _prctl(what: int, value: int) -> None:
    if _libc.prctl(what, value, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, f"prctl: {os.strerror(number)}")
