"""Where everything that HAL keeps lies: the layout of HAL_HOME and its sockets.

Standard library only and cheap to import, because the command line needs it before anything else. All directories are
private (0700). Sockets lie in a short directory of their own, since the kernel allows only 107 bytes for a socket's
path; the file `run/socket-dir` names it.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from hal.runtime.privacy import PRIVATE_DIR_MODE, is_private, make_private, write_private
from hal.runtime.regular_files import NotRegularError, open_own, read_regular, set_aside

MAX_SOCKET_PATH_BYTES: Final = 99
"""Longest path of a socket that HAL makes (the kernel's bound is 107)."""
SOCKET_DIR_TRIES: Final = 16
MAX_LINE_BYTES: Final = 4096
"""Of a file that holds one line."""

_NODE_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?\Z")
_MARKS: Final = ("run", "db", "log", "nodes", "hal.toml")
"""Entries by which a directory is known to be a HAL home already."""


class NodePaths:
    """The paths of one node under HAL_HOME/nodes/NODE."""

    __slots__ = ("gates", "id_file", "identity", "journal", "name", "root", "steps")

    def __init__(self, root: Path, name: str) -> None:
        self.name = name
        self.root = root
        self.id_file = root / "id"
        """By which controllers know this node again; see `hal.daemons.agent.node_id`."""
        self.journal = root / "journal"
        """Directory of the journals of the keeper and its helpers."""
        self.steps = root / "steps"
        self.gates = root / "gates"
        """Steps whose prolog began and whose epilog has not ended; see `hal.daemons.agent.gate_notes`."""
        self.identity = root / "identity"
        """What a node of another machine's HAL was given when it joined; see `hal.runtime.authority`."""

    def step_dir(self, job: int, task: int, attempt: int, rank: int) -> Path:
        """Where the step's stdout, stderr and script lie: `steps/J/T.A.R`."""
        return self.steps / str(job) / f"{task}.{attempt}.{rank}"

    def create(self) -> None:
        """Make the directories, private. What else lies where one of the last two belongs is set aside: a step of this
        user can put it there, and no start may wait for a person to remove it."""
        for path in (self.root.parent, self.root):
            make_private(path)
        for path in (self.journal, self.steps):
            try:
                make_private(path)
            except FileExistsError:
                set_aside(path)
                make_private(path)


class Home:
    """The layout of one HAL_HOME. Values only, except where a method says that it touches the disk."""

    __slots__ = (
        "authority",
        "cache",
        "config",
        "database",
        "log_dir",
        "nodes_dir",
        "root",
        "run_dir",
        "store_mark",
        "token",
    )

    def __init__(self, root: str | os.PathLike[str], *, cache: str | os.PathLike[str] | None = None) -> None:
        self.root = Path(os.path.abspath(root))
        self.config = self.root / "hal.toml"
        self.run_dir = self.root / "run"
        self.database = self.root / "db" / "hal.sqlite"
        self.store_mark = self.root / "store.mark"
        """What the controller of this home remembers of its store: see `hal.store.mark`."""
        self.log_dir = self.root / "log"
        self.token = self.root / "token"
        self.authority = self.root / "authority"
        """Keys and certificates of this HAL's authority."""
        self.nodes_dir = self.root / "nodes"
        self.cache = Path(cache) if cache else self.root / "cache"

    def __repr__(self) -> str:
        return f"Home({str(self.root)!r})"

    # ── paths ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def log_file(self, process: str) -> Path:
        """The log of `controller`, `agent-n1`, `keeper-n1`, …: JSON lines."""
        return self.log_dir / f"{process}.log"

    def output_file(self, process: str) -> Path:
        """Where the process's own stdout and stderr go: tracebacks of a start that failed before its log was open."""
        return self.log_dir / f"{process}.out"

    def pid_file(self, process: str) -> Path:
        """`run/controller.pid`, `run/agent-NODE.pid`, `run/keeper-NODE.pid`."""
        return self.run_dir / f"{process}.pid"

    @property
    def tcp_file(self) -> Path:
        """Where the controller serves REST over TCP: `HOST:PORT`, written while it listens."""
        return self.run_dir / "rest-tcp"

    def served_tcp(self) -> tuple[str, int] | None:
        """What `tcp_file` says; None: it serves no port, or the file is not ours to believe."""
        try:
            info = os.lstat(self.tcp_file)
            text = read_regular(self.tcp_file, MAX_LINE_BYTES).decode().strip()
        except (OSError, UnicodeDecodeError):
            return None
        host, _, port = text.rpartition(":")
        if not port.isdecimal() or not stat.S_ISREG(info.st_mode) or info.st_uid not in (0, os.geteuid()):
            return None
        return host.strip("[]"), int(port)

    @property
    def controller_pid(self) -> Path:
        return self.pid_file("controller")

    def agent_pid(self, node: str) -> Path:
        return self.pid_file(f"agent-{check_node_name(node)}")

    def keeper_pid(self, node: str) -> Path:
        return self.pid_file(f"keeper-{check_node_name(node)}")

    def node(self, name: str) -> NodePaths:
        return NodePaths(self.nodes_dir / check_node_name(name), name)

    def node_names(self) -> list[str]:
        """Names of the nodes that have ever kept something here, sorted; reads the disk."""
        try:
            return sorted(entry for entry in os.listdir(self.nodes_dir) if _NODE_NAME.match(entry))
        except FileNotFoundError:
            return []

    # ── sockets ───────────────────────────────────────────────────────────────────────────────────────────────────

    def socket_dir(self) -> Path:
        """The directory of the sockets; made, and noted in `run/socket-dir`, when there is none yet.

        Raises:
            ConflictError: no directory short enough could be made.
        """
        known = self.known_socket_dir()
        if known is not None:
            return known
        self.create()
        with self.locked():
            known = self.known_socket_dir()
            if known is None:
                known = _new_socket_dir()
                write_private(self.run_dir / "socket-dir", f"{known}\n")
        return known

    def known_socket_dir(self) -> Path | None:
        """The directory that `run/socket-dir` names, if it exists and is private to the home's owner; makes nothing.

        The owner must be this process's user, who may be root: root comes in everywhere.
        """
        try:
            text = os.fsdecode(read_regular(self.run_dir / "socket-dir", MAX_LINE_BYTES)).strip()
        except (FileNotFoundError, NotADirectoryError, NotRegularError):
            return None
        path = Path(text)
        return path if text.startswith("/") and is_private(path, self.owner() if os.geteuid() == 0 else None) else None

    def owner(self) -> int | None:
        """User id of whoever the directory belongs to; None where there is none."""
        try:
            return os.stat(self.root).st_uid
        except OSError:
            return None

    def check_ours(self) -> None:
        """Whoever is to act on what lies here (signal processes, remove files) must be its owner, and nobody else may
        have put it here.

        Raises:
            DeniedError: it belongs to another user, others may write to it, or it cannot be looked into.
        """
        for place in (self.root, self.run_dir):
            try:
                info = os.stat(place) if place == self.root else os.lstat(place)
            except (FileNotFoundError, NotADirectoryError):
                return
            except OSError as error:
                raise _denied(
                    f"HAL_HOME {self.root} cannot be looked into: {os.strerror(error.errno or errno.EIO)}",
                    "name a directory of your own with HAL_HOME or --home",
                ) from error
            if info.st_uid != os.geteuid():
                raise _denied(
                    f"{place} belongs to user id {info.st_uid}, not to {os.geteuid()}; nothing was done",
                    "do it as that user, or name a directory of your own with HAL_HOME or --home",
                )
            if stat.S_ISLNK(info.st_mode) or stat.S_IMODE(info.st_mode) & 0o022:
                raise _denied(
                    f"others may write to {place}, so what is there may not be HAL's; nothing was done",
                    f"look at it, then: chmod 700 {place}",
                )

    def drop_socket_dir(self) -> None:
        """Remove the sockets and their directory, when nothing of HAL runs any more; the next start makes another."""
        known = self.known_socket_dir()
        if known is not None:
            for entry in list(known.iterdir()):
                if entry.is_socket():
                    entry.unlink(missing_ok=True)
            try:
                known.rmdir()
            except OSError:  # Somebody put something else there: it is theirs.
                return
        (self.run_dir / "socket-dir").unlink(missing_ok=True)

    def api_socket(self) -> Path:
        """REST."""
        return self.socket_dir() / "api.sock"

    def wire_socket(self) -> Path:
        """Where agents dial the controller."""
        return self.socket_dir() / "wire.sock"

    def keeper_socket(self, node: str) -> Path:
        """Where the agent of `node` dials its keeper; a long name is shortened to its checksum."""
        directory = self.socket_dir()
        path = directory / f"keeper-{check_node_name(node)}.sock"
        if len(os.fsencode(path)) > MAX_SOCKET_PATH_BYTES:
            import zlib

            path = directory / f"keeper-{zlib.crc32(node.encode()):08x}{zlib.adler32(node.encode()):08x}.sock"
        return path

    # ── disk ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def exists(self) -> bool:
        """Something of HAL lies here already."""
        return any((self.root / mark).exists() for mark in _MARKS)

    def create(self) -> None:
        """Make the directories that are missing, all private. Harmless when they exist.

        Raises:
            DeniedError: the directory belongs to another user, or cannot be made.
            ConflictError: it exists, others may read it, and it holds something that is not HAL's.
        """
        self._claim_root()
        for path in (self.run_dir, self.database.parent, self.log_dir, self.nodes_dir):
            make_private(path)
        if not self.cache.exists():
            self.cache.mkdir(mode=PRIVATE_DIR_MODE, parents=True, exist_ok=True)

    def _claim_root(self) -> None:
        try:
            self.root.mkdir(mode=PRIVATE_DIR_MODE, parents=True, exist_ok=True)
            info = self.root.stat()
        except FileExistsError:
            raise _conflict(
                f"HAL_HOME {self.root} is not a directory", "name a directory with HAL_HOME or --home"
            ) from None
        except OSError as error:
            raise _denied(
                f"HAL_HOME {self.root} cannot be made: {os.strerror(error.errno or errno.EIO)}",
                "name a directory that you may write to with HAL_HOME or --home",
            ) from error
        if info.st_uid != os.geteuid():
            raise _denied(
                f"HAL_HOME {self.root} belongs to user id {info.st_uid}, not to {os.geteuid()}",
                "name a directory of your own with HAL_HOME or --home",
            )
        if stat.S_IMODE(info.st_mode) & 0o077:
            if not self.exists() and any(os.scandir(self.root)):
                raise _conflict(
                    f"HAL_HOME {self.root} holds other files and others may read it; nothing was changed",
                    "name an empty directory, or make this one private with chmod 700",
                )
            self.root.chmod(PRIVATE_DIR_MODE)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the home's lock (a file lock: it goes when the process dies) while starting or stopping processes."""
        import fcntl

        fd = open_own(self.run_dir / "lock", os.O_RDWR)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def token_text(self) -> str:
        """The bearer token for TCP; made on first use, readable by its owner only.

        Raises:
            DeniedError: the file is readable by others or not ours, so that it may be known to others.
        """
        with self.locked():
            try:
                info = os.lstat(self.token)
            except FileNotFoundError:
                text = os.urandom(32).hex()
                write_private(self.token, text + "\n")
                return text
            if info.st_uid != os.geteuid() or stat.S_IMODE(info.st_mode) & 0o077 or not stat.S_ISREG(info.st_mode):
                raise _denied(f"{self.token} is not private", "delete it; HAL makes a new one")
            return read_regular(self.token, MAX_LINE_BYTES).decode().strip()


def find_home(explicit: str | os.PathLike[str] | None = None, environ: Mapping[str, str] | None = None) -> Home:
    """`explicit`, else $HAL_HOME, else $XDG_STATE_HOME/hal, else ~/.local/state/hal; makes nothing.

    The cache of compiled kernels is $HAL_CACHE, else the one beside this Python that `make kernels` fills, if there is
    one that may be written to, else `cache` in the home: compiling takes minutes, so one cache serves many homes.
    """
    env = os.environ if environ is None else environ
    root = explicit or env.get("HAL_HOME")
    if not root:
        state = env.get("XDG_STATE_HOME") or os.path.join(env.get("HOME") or os.path.expanduser("~"), ".local", "state")
        root = os.path.join(state, "hal")
    beside = os.path.join(sys.prefix, "hal-cache")
    shared = beside if os.path.isdir(beside) and os.access(beside, os.W_OK) else None
    return Home(os.path.expanduser(os.fspath(root)), cache=env.get("HAL_CACHE") or shared)


def check_node_name(name: str) -> str:
    """The name itself.

    Raises:
        SpecError: it cannot be a file's name (letters, digits, . _ -; at most 63; begins and ends with the first two).
    """
    if _NODE_NAME.match(name):
        return name
    from hal.core.model.errors import SpecError

    raise SpecError(f"'{name}' is not a node name", hint="at most 63 of letters, digits, . _ - inside")


def _new_socket_dir() -> Path:
    longest = len("/keeper-0123456789abcdef.sock")
    runtime_dir = os.environ.get("XDG_RUNTIME_DIR", "")
    places = [runtime_dir] if runtime_dir.startswith("/") and is_private(Path(runtime_dir)) else []
    for place in (*places, "/tmp"):  # mkdir fails where somebody has put something in our way
        for _ in range(SOCKET_DIR_TRIES):
            path = Path(place) / f"hal-{os.urandom(4).hex()}"
            if len(os.fsencode(path)) + longest > MAX_SOCKET_PATH_BYTES:
                break
            try:
                path.mkdir(mode=PRIVATE_DIR_MODE)
            except FileExistsError:
                continue
            except OSError:
                break
            path.chmod(PRIVATE_DIR_MODE)
            return path
    raise _conflict("no directory for HAL's sockets could be made in XDG_RUNTIME_DIR or /tmp", "make /tmp writable")


def _denied(message: str, hint: str) -> Exception:
    from hal.core.model.errors import DeniedError

    return DeniedError(message, hint=hint)


def _conflict(message: str, hint: str) -> Exception:
    from hal.core.model.errors import ConflictError

    return ConflictError(message, hint=hint)
