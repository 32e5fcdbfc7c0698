"""The processes of HAL on this machine: which run, starting them, stopping them, the end of their logs."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from subprocess import Popen

from hal.cli.local.layout import NodePlan
from hal.core.model import ConflictError
from hal.runtime.detached_process import start_detached
from hal.runtime.home import Home, find_home
from hal.runtime.identity import ProcessIdentity, identify, kill, running, wait_gone, write_pid_file
from hal.runtime.inheritance import daemon_environment
from hal.runtime.regular_files import NotRegularError, open_own, open_regular
from hal.runtime.startup import SUPERVISOR

STOP_CONTROLLER_S = 20.0
STOP_KEEPER_S = 30.0
"""Longer than a keeper needs to end its steps: TERM, grace, KILL, and the controller's word."""
STOP_AGENT_S = 10.0
STOP_ROUNDS = 3
"""An agent that is stopped after its keeper may just have started another one: look again, so often."""
LOOK_EVERY_S = 0.05
BUSY_S = 2.0
"""How long to wait for another `hal up` or `hal down`: the supervisor takes a moment to start something."""
STOP_PLANE_S = 15.0
STOP_SUPERVISOR_S = 10.0
PLANE_PREFIX = "plane-"
SUPERVISOR_MODULE = "hal.cli.local.supervisor"
DAEMONS = b"hal.daemons."
"""What each of the modules that HAL's daemons are begins with."""
SOURCE = b"/hal/daemons/"
"""The same as the path of a file."""
TAIL_LINES = 15
TAIL_BYTES = 64 << 10


@contextlib.contextmanager
def one_at_a_time(home: Home, wait_s: float = BUSY_S) -> Iterator[None]:
    """Exclude a second `hal up` or `hal down` for the same home.

    Raises:
        ConflictError: one is running, after `wait_s` still.
    """
    fd = open_own(home.run_dir / "up.lock", os.O_RDWR)
    deadline_s = time.monotonic() + wait_s
    try:
        while not _locked(fd):
            if time.monotonic() >= deadline_s:
                raise ConflictError(
                    f"another `hal up` or `hal down` is running for home {home.root}",
                    hint="wait for it to end, and try again",
                )
            time.sleep(LOOK_EVERY_S)
        yield
    finally:
        os.close(fd)


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class Process:
    """One of the daemons: its name, and whether it runs."""

    ours = True
    """Its command line says that it is HAL's; one that HAL's owner chose is known by its pid file alone."""

    def __init__(self, home: Home, name: str) -> None:
        self.home = home
        self.name = name
        self._child: Popen[bytes] | None = None
        self._output_from = 0

    @property
    def identity(self) -> ProcessIdentity | None:
        """That of the running process; None if it does not run, or the pid file names a process that is not HAL's."""
        found = running(self.home.pid_file(self.name))
        return found if found is not None and (not self.ours or _is_daemon(found)) else None

    def start(self, argv: Sequence[str], *, database: bool = False) -> None:
        """Start it, detached from this terminal, with the few variables that a daemon needs."""
        output = self.home.output_file(self.name)
        self._output_from = output.stat().st_size if output.exists() else 0
        environment = daemon_environment(os.environ, database=database)
        self._child = start_detached([sys.executable, "-m", *argv], env=environment, output=output)

    @property
    def pid(self) -> int | None:
        """Of the process that was started here."""
        return None if self._child is None else self._child.pid

    @property
    def ended_early(self) -> int | None:
        """The exit code of the process that was started here, once it has ended."""
        return None if self._child is None else self._child.poll()

    @property
    def log_path(self) -> Path:
        """Where it writes."""
        log = self.home.log_file(self.name)
        return log if log.exists() else self.home.output_file(self.name)

    def undo(self) -> None:
        """Stop what was started here."""
        if self._child is None or self._child.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            stop([(identify(self._child.pid), signal.SIGTERM)], STOP_AGENT_S)
        self._child.wait()

    def output_lines(self) -> list[str]:
        """The last lines of its own output since `start`."""
        return _last_lines(self.home.output_file(self.name), self._output_from)

    def tail(self) -> list[str]:
        """The last lines that it wrote since `start`: its own output, else its log."""
        return self.output_lines() or [_readable(line) for line in _last_lines(self.home.log_file(self.name), 0)]


def controller(home: Home) -> Process:
    """REST, truth, scheduling."""
    return Process(home, "controller")


OLD_SETTINGS = "hal.toml has been changed since the controller was started, and is not in force"


def option_of(home: Home) -> str:
    """What a command that is suggested needs to find this home: ` --home DIR`, or '' where it finds it by itself."""
    return "" if home.root == find_home().root else f" --home {shlex.quote(str(home.root))}"


def read_again(home: Home) -> str:
    """How a changed hal.toml comes into force."""
    there = option_of(home)
    return f"to check it and use it: hal config check{there} && hal down{there} --leave && hal up{there}"


def has_old_settings(home: Home) -> bool:
    """Whether hal.toml was written after the controller that runs was started, which reads it once."""
    with contextlib.suppress(OSError):
        return home.config.stat().st_mtime > home.pid_file("controller").stat().st_mtime
    return False


def keeper(home: Home, node: str) -> Process:
    """Holds the steps of a node."""
    return Process(home, f"keeper-{node}")


def agent(home: Home, node: str) -> Process:
    """Speaks for a node."""
    return Process(home, f"agent-{node}")


def start_controller(home: Home, tcp: str, wire: str, *, new_store: bool = False) -> Process:
    """Start it; it answers some time later."""
    process = controller(home)
    ports = [*(["--listen", tcp] if tcp else []), *(["--wire", wire] if wire else [])]
    store = ["--new-store"] if new_store else []
    process.start(["hal.daemons.controller", "--home", str(home.root), *ports, *store], database=True)
    return process


def start_keeper(home: Home, plan: NodePlan, controllers: Sequence[str] = ()) -> Process:
    """Start it; it starts its agent, which dials the controller (one of these, or this home's) some time later."""
    process = keeper(home, plan.name)
    elsewhere = [word for address in controllers for word in ("--controller", address)]
    process.start(["hal.daemons.agent.keeper", "--home", str(home.root), *plan.keeper_arguments(), *elsewhere])
    return process


class Supervising(Process):
    """What starts again what ends: a process of its own, or a `hal up --foreground`."""

    ours = False


def supervisor(home: Home) -> Process:
    """Starts again what ends."""
    return Supervising(home, SUPERVISOR)


def start_supervisor(home: Home) -> Process:
    """Start it; it watches what runs some time later."""
    process = supervisor(home)
    process.start([SUPERVISOR_MODULE, "--home", str(home.root)], database=True)
    return process


def stop_supervisor(home: Home) -> bool:
    """Let it end and leave everything as it is; returns whether it ran."""
    identity = supervisor(home).identity
    if identity is None:
        return False
    stop([(identity, signal.SIGUSR1)], STOP_SUPERVISOR_S)
    return True


class Plane(Process):
    """A process of the site's beside the controller; whoever starts it writes its pid file."""

    ours = False

    def __init__(self, home: Home, plane: str) -> None:
        super().__init__(home, f"{PLANE_PREFIX}{plane}")
        self.plane = plane

    def start_command(self, command: Sequence[str]) -> None:
        """Start it, detached from this terminal.

        Raises:
            HALError: there is no such program.
        """
        output = self.home.output_file(self.name)
        self._output_from = output.stat().st_size if output.exists() else 0
        environment = daemon_environment(os.environ) | {"HAL_HOME": str(self.home.root), "HAL_PLANE": self.plane}
        self._child = start_detached(command, env=environment, output=output)
        with contextlib.suppress(ProcessLookupError):
            write_pid_file(self.home.pid_file(self.name), identify(self._child.pid))


def planes_with_processes(home: Home) -> list[str]:
    """Names of the planes that run, sorted."""
    names = (path.stem.removeprefix(PLANE_PREFIX) for path in home.run_dir.glob(f"{PLANE_PREFIX}*.pid"))
    return sorted(name for name in names if Plane(home, name).identity)


def stop_planes(home: Home, names: Sequence[str]) -> None:
    """Stop them, by force if necessary."""
    found = {name: Plane(home, name).identity for name in names}
    stop([(identity, signal.SIGTERM) for identity in found.values() if identity], STOP_PLANE_S)
    for name in names:
        home.pid_file(f"{PLANE_PREFIX}{name}").unlink(missing_ok=True)


def nodes_with_processes(home: Home) -> list[str]:
    """Names of the nodes of which something runs."""
    return [name for name in home.node_names() if keeper(home, name).identity or agent(home, name).identity]


def stop_controller(home: Home) -> bool:
    """Stop it, by force if necessary; returns whether it ran."""
    identity = controller(home).identity
    if identity is None:
        return False
    stop([(identity, signal.SIGTERM)], STOP_CONTROLLER_S)
    return True


def stop_nodes(home: Home, *, kill_steps: bool) -> list[str]:
    """Stop keepers and agents, and with `kill_steps` the steps; returns the names of the nodes that had processes."""
    names = nodes_with_processes(home)
    number = signal.SIGUSR1 if kill_steps else signal.SIGTERM
    for _ in range(STOP_ROUNDS):
        keepers = [identity for name in names if (identity := keeper(home, name).identity)]
        stop([(identity, number) for identity in keepers], STOP_KEEPER_S)
        agents = [identity for name in names if (identity := agent(home, name).identity)]
        stop([(identity, signal.SIGTERM) for identity in agents], STOP_AGENT_S)
        if not agents and not any(keeper(home, name).identity for name in names):
            break
    return names


def stop_all(home: Home, *, leave: bool, kill_steps: bool, tell: Callable[[str], None]) -> tuple[bool, list[str]]:
    """Stop the supervisor, the planes, the controller and, unless `leave`, the nodes.

    Args:
        leave: nodes and their steps continue.
        kill_steps: they are ended first, so that the controller hears of it.
        tell: what is done now, in words.
    Returns: whether a controller ran; the nodes that were stopped.
    """
    stop_supervisor(home)
    planes = planes_with_processes(home)
    if planes:
        tell("stopping the planes …")
        stop_planes(home, planes)
    nodes: list[str] = []
    if kill_steps:
        tell("ending running steps …")
        nodes = stop_nodes(home, kill_steps=True)
    tell("stopping the controller …")
    stopped = stop_controller(home)
    if not leave and not kill_steps:
        tell("stopping the nodes …")
        nodes = stop_nodes(home, kill_steps=False)
    remove_sockets(home)
    return stopped, nodes


def remove_sockets(home: Home) -> None:
    """Remove the socket directory if nothing of this HAL runs any more; the next start makes another one."""
    if controller(home).identity or nodes_with_processes(home) or steps_in_processes(home):
        return
    with home.locked():
        directory = home.known_socket_dir()
        if directory is None:
            return
        for entry in directory.iterdir():
            if entry.is_socket():
                entry.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # something else lies in it
            directory.rmdir()
            (home.run_dir / "socket-dir").unlink(missing_ok=True)


def stop(processes: Sequence[tuple[ProcessIdentity, int]], timeout_s: float) -> None:
    """Send each its signal, wait for all to end, and kill what has not ended in time."""
    for identity, number in processes:
        kill(identity, number)
    deadline_s = time.monotonic() + timeout_s
    for identity, _ in processes:
        if not wait_gone(identity, max(0.0, deadline_s - time.monotonic())):
            kill(identity, signal.SIGKILL)
            wait_gone(identity, STOP_AGENT_S)


def steps_in_processes(home: Home) -> int:
    """How many attempts have processes on this machine, found by the environment of all processes.

    For when no controller can be asked.
    """
    found: set[tuple[bytes, ...]] = set()
    mine = f"HAL_HOME={home.root}".encode()
    wanted = (b"HAL_JOB_ID=", b"HAL_TASK=", b"HAL_ATTEMPT=")
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        names = tuple(sorted(v for v in variables if v.startswith(wanted)))
        if mine in variables and len(names) == len(wanted):
            found.add(names)
    return len(found)


def wait_until(
    done: Callable[[], bool], processes: Sequence[Process], timeout_s: float, tell: Callable[[], None]
) -> Process | None:
    """Wait until `done()`; returns the process that ended before that, which it should not, or None.

    Raises:
        TimeoutError: `timeout_s` passed.
    """
    deadline_s = time.monotonic() + timeout_s
    while not done():
        for process in processes:
            if process.ended_early is not None:
                return process
        if time.monotonic() > deadline_s:
            raise TimeoutError
        tell()
        time.sleep(LOOK_EVERY_S)
    return None


def _is_daemon(process: ProcessIdentity) -> bool:
    """Its command line is that of one of HAL's own processes."""
    try:
        words = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(word.startswith(DAEMONS) or SOURCE in word for word in words)


def _last_lines(file: Path, start: int) -> list[str]:
    try:
        with open(open_regular(file), "rb") as opened:
            size = opened.seek(0, os.SEEK_END)
            opened.seek(max(start, size - TAIL_BYTES))
            text = opened.read(TAIL_BYTES).decode(errors="replace")
    except (FileNotFoundError, NotRegularError):
        return []
    return [line for line in text.splitlines() if line.strip()][-TAIL_LINES:]


def _readable(line: str) -> str:
    """A line of structlog's JSON as plain text."""
    try:
        fields = json.loads(line)
    except ValueError:
        return line
    if not isinstance(fields, dict):
        return line
    event, level = fields.pop("event", ""), fields.pop("level", "")
    rest = " ".join(f"{key}={value}" for key, value in fields.items() if key not in ("timestamp", "time", "logger"))
    return f"{level} {event} {rest}".strip()
