"""The layout of HAL_HOME and its sockets.

Standard library only and cheap to import, because the command line needs it before anything else. All directories are
private (0700). Sockets are in a short directory of their own, because the kernel allows only 107 bytes for a socket's
path; the file `run/socket-dir` names it.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from hal.runtime.privacy import PRIVATE_DIR_MODE, is_private, make_private, write_private
from hal.runtime.regular_files import NotRegularError, open_own, read_regular, set_aside

MAX_SOCKET_PATH_BYTES: Final = 99
"""Longest path of a socket that HAL creates (the kernel's limit is 107)."""
SOCKET_DIR_TRIES: Final = 16
MAX_LINE_BYTES: Final = 4096
"""Largest file that holds one line."""

PASSAGE_PLACES: Final = ("/var/tmp", "/tmp")
"""Where `Home.passage` is created: everybody can get there, and files stay."""
STEPS_SOCKET: Final = "api.sock"
PASSAGE_MODE: Final = 0o711
MADE: Final = "made-"
"""Begins the names of directories with what no step has been given yet, or any more; they go with HAL."""

_NODE_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?\Z")
_MARKS: Final = ("run", "db", "log", "nodes", "hal.toml")
"""Entries that identify a directory as an existing HAL home."""


class NodePaths:
    """The paths of one node under HAL_HOME/nodes/NODE."""

    __slots__ = ("files", "gates", "hostfiles", "id_file", "identity", "journal", "name", "root", "secrets", "steps")

    def __init__(self, root: Path, name: str) -> None:
        self.name = name
        self.root = root
        self.id_file = root / "id"
        """The id by which controllers recognise this node; see `hal.daemons.agent.node_id`."""
        self.journal = root / "journal"
        """Directory of the journals of the keeper and its helpers."""
        self.files = root / "files"
        """What the file service keeps: see `hal.daemons.agent.keeper.file_service`."""
        self.steps = root / "steps"
        self.gates = root / "gates"
        """Steps whose prolog has begun and whose epilog has not ended; see `hal.daemons.agent.gate_notes`."""
        self.hostfiles = root / "hostfiles"
        """Names the directory in memory where bases of elastic jobs find the names of their nodes."""
        self.secrets = root / "secrets"
        """Names the directory in memory where steps find their secrets; see `hal.daemons.agent.secret_files`."""
        self.identity = root / "identity"
        """What the node received when it joined a HAL on another machine; see `hal.runtime.authority`."""

    def step_dir(self, job: int, task: int, attempt: int, rank: int) -> Path:
        """The directory of the step's stdout, stderr and script: `steps/J/T.A.R`."""
        return self.steps / str(job) / f"{task}.{attempt}.{rank}"

    def create(self) -> None:
        """Create the directories, private. If something else is at the path of one of the last two, it is set aside:
        a step of this user can put it there, and no start may depend on a person removing it."""
        for path in (self.root.parent, self.root):
            make_private(path)
        for path in (self.journal, self.steps):
            try:
                make_private(path)
            except FileExistsError:
                set_aside(path)
                make_private(path)


class Home:
    """The layout of one HAL_HOME. Values only, except where a method says that it accesses the disk."""

    __slots__ = (
        "authority",
        "cache",
        "config",
        "database",
        "files",
        "gates",
        "log_dir",
        "nodes_dir",
        "root",
        "run_dir",
        "secret_keys",
        "store_mark",
        "token",
    )

    def __init__(self, root: str | os.PathLike[str], *, cache: str | os.PathLike[str] | None = None) -> None:
        self.root = Path(os.path.abspath(root))
        self.config = self.root / "hal.toml"
        self.run_dir = self.root / "run"
        self.database = self.root / "db" / "hal.sqlite"
        self.store_mark = self.root / "store.mark"
        """What the controller of this home remembers about its store: see `hal.store.mark`."""
        self.files = self.root / "files"
        """What was shipped with jobs and collected of them; see `hal.daemons.controller.files`."""
        self.log_dir = self.root / "log"
        self.token = self.root / "token"
        self.authority = self.root / "authority"
        """Keys and certificates of this HAL's authority."""
        self.secret_keys = self.root / "secrets.key"
        """The keys under which secrets are stored; see `hal.daemons.controller.access.secret_keys`."""
        self.nodes_dir = self.root / "nodes"
        self.gates = self.root / "gates"
        """Sockets of the services that gate jobs on this machine's nodes; the operator creates it."""
        self.cache = Path(cache) if cache else self.root / "cache"

    def __repr__(self) -> str:
        return f"Home({str(self.root)!r})"

    # ── paths ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def log_file(self, process: str) -> Path:
        """The log of `controller`, `agent-n1`, `keeper-n1`, …: JSON lines."""
        return self.log_dir / f"{process}.log"

    def output_file(self, process: str) -> Path:
        """The file for the process's own stdout and stderr: tracebacks of a start that failed before the log was
        open."""
        return self.log_dir / f"{process}.out"

    def pid_file(self, process: str) -> Path:
        """`run/controller.pid`, `run/agent-NODE.pid`, `run/keeper-NODE.pid`."""
        return self.run_dir / f"{process}.pid"

    @property
    def tcp_file(self) -> Path:
        """The address at which the controller serves REST over TCP: `HOST:PORT`, written while it listens."""
        return self.run_dir / "rest-tcp"

    def served_tcp(self) -> tuple[str, int] | None:
        """Read `tcp_file`; None: no port is served, or the file is not trustworthy because it is not ours."""
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
        """The names of the nodes that have ever stored something here, sorted; reads the disk."""
        try:
            return sorted(entry for entry in os.listdir(self.nodes_dir) if _NODE_NAME.match(entry))
        except FileNotFoundError:
            return []

    # ── sockets ───────────────────────────────────────────────────────────────────────────────────────────────────

    def socket_dir(self) -> Path:
        """The directory of the sockets; created, and recorded in `run/socket-dir`, if there is none yet.

        Raises:
            ConflictError: no directory with a short enough path could be created.
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
        """The directory named in `run/socket-dir`, if it exists and is private to the home's owner; creates nothing.

        The owner must be this process's user, or this process must be root, which can access everything.
        """
        try:
            text = os.fsdecode(read_regular(self.run_dir / "socket-dir", MAX_LINE_BYTES)).strip()
        except (FileNotFoundError, NotADirectoryError, NotRegularError):
            return None
        path = Path(text)
        return path if text.startswith("/") and is_private(path, self.owner() if os.geteuid() == 0 else None) else None

    def owner(self) -> int | None:
        """User id of the directory's owner; None if there is no directory."""
        try:
            return os.stat(self.root).st_uid
        except OSError:
            return None

    def check_ours(self) -> None:
        """Check that the home is ours before acting on its contents (signalling processes, removing files): we must
        own it, and nobody else may be able to write there.

        Raises:
            DeniedError: it belongs to another user, others may write to it, or it cannot be read.
        """
        for place in (self.root, self.run_dir):
            try:
                info = os.stat(place) if place == self.root else os.lstat(place)
            except (FileNotFoundError, NotADirectoryError):
                return
            except OSError as error:
                raise _denied(
                    f"HAL_HOME {self.root} cannot be read: {os.strerror(error.errno or errno.EIO)}",
                    "choose a directory of your own with HAL_HOME or --home",
                ) from error
            if info.st_uid != os.geteuid():
                raise _denied(
                    f"{place} belongs to user id {info.st_uid}, not to {os.geteuid()}; nothing was done",
                    "run this as that user, or choose a directory of your own with HAL_HOME or --home",
                )
            if stat.S_ISLNK(info.st_mode) or stat.S_IMODE(info.st_mode) & 0o022:
                raise _denied(
                    f"others may write to {place}, so what is there may not be HAL's; nothing was done",
                    f"check its contents, then: chmod 700 {place}",
                )

    def drop_socket_dir(self) -> None:
        """Remove the sockets and their directory when no process of HAL is running; the next start creates another."""
        self.drop_passage()
        known = self.known_socket_dir()
        if known is not None:
            for entry in list(known.iterdir()):
                if entry.is_socket():
                    entry.unlink(missing_ok=True)
            try:
                known.rmdir()
            except OSError:  # Somebody else put something there: leave it alone.
                return
        (self.run_dir / "socket-dir").unlink(missing_ok=True)

    def drop_passage(self) -> None:
        """Remove it, unless a step that continues has something there."""
        known = self.known_passage()
        if known is None:
            return
        for entry in list(known.iterdir()):
            if entry.is_socket():
                entry.unlink(missing_ok=True)
            elif entry.name.startswith(MADE):
                import shutil  # only here: every command imports this module

                with suppress(RecursionError):
                    shutil.rmtree(entry, ignore_errors=True)
            else:
                with suppress(OSError):
                    entry.rmdir()
        with suppress(OSError):
            known.rmdir()
            (self.run_dir / "passage").unlink(missing_ok=True)

    def api_socket(self) -> Path:
        """REST."""
        return self.socket_dir() / "api.sock"

    def wire_socket(self) -> Path:
        """Agents connect to the controller here."""
        return self.socket_dir() / "wire.sock"

    def keeper_socket(self, node: str) -> Path:
        """The agent of `node` connects to its keeper here; a long name is shortened to its checksum."""
        return self._node_socket("keeper", node)

    def stream_socket(self, node: str) -> Path:
        """The agent of `node` orders streams to steps here."""
        return self._node_socket("streams", node)

    def relay_socket(self) -> Path:
        """The controller orders meetings of streams here."""
        return self.socket_dir() / "relay.sock"

    def files_socket(self, node: str) -> Path:
        """The agent of `node` orders files of steps here."""
        return self._node_socket("files", node)

    def _node_socket(self, kind: str, node: str) -> Path:
        directory = self.socket_dir()
        path = directory / f"{kind}-{check_node_name(node)}.sock"
        if len(os.fsencode(path)) > MAX_SOCKET_PATH_BYTES:
            import zlib

            path = directory / f"{kind}-{zlib.crc32(node.encode()):08x}{zlib.adler32(node.encode()):08x}.sock"
        return path

    def passage(self) -> Path:
        """The directory through which other users reach what is meant for them: HAL's own stay closed. Mode 0711;
        created, and recorded in `run/passage`, if there is none yet. Only for a HAL of root.

        Raises:
            ConflictError: it cannot be created.
        """
        known = self.known_passage()
        if known is not None:
            return known
        self.create()
        with self.locked():
            known = self.known_passage()
            if known is None:
                known = _new_passage()
                write_private(self.run_dir / "passage", f"{known}\n")
        return known

    def steps_socket(self) -> Path:
        """REST for steps that run as other users than HAL. Raises: as `passage`."""
        return self.passage() / STEPS_SOCKET

    def known_passage(self) -> Path | None:
        """The directory named in `run/passage`, if it is there, ours, and others cannot write to it; creates
        nothing."""
        try:
            path = Path(os.fsdecode(read_regular(self.run_dir / "passage", MAX_LINE_BYTES)).strip())
            info = os.lstat(path)
        except (OSError, NotRegularError):
            return None
        ours = stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid() and not info.st_mode & 0o022
        return path if path.is_absolute() and ours else None

    # ── disk ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def exists(self) -> bool:
        """Whether something of HAL already exists here."""
        return any((self.root / mark).exists() for mark in _MARKS)

    def create(self) -> None:
        """Create the missing directories, all private. Harmless if they exist.

        Raises:
            DeniedError: the directory belongs to another user, or cannot be created.
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
                f"HAL_HOME {self.root} is not a directory", "choose a directory with HAL_HOME or --home"
            ) from None
        except OSError as error:
            raise _denied(
                f"HAL_HOME {self.root} cannot be created: {os.strerror(error.errno or errno.EIO)}",
                "choose a writable directory with HAL_HOME or --home",
            ) from error
        if info.st_uid != os.geteuid():
            raise _denied(
                f"HAL_HOME {self.root} belongs to user id {info.st_uid}, not to {os.geteuid()}",
                "choose a directory of your own with HAL_HOME or --home",
            )
        if stat.S_IMODE(info.st_mode) & 0o077:
            if not self.exists() and any(os.scandir(self.root)):
                raise _conflict(
                    f"HAL_HOME {self.root} holds other files and others may read it; nothing was changed",
                    "choose an empty directory, or make this one private with chmod 700",
                )
            self.root.chmod(PRIVATE_DIR_MODE)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the home's lock (a file lock, released when the process dies) while starting or stopping processes."""
        import fcntl

        fd = open_own(self.run_dir / "lock", os.O_RDWR)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def token_text(self) -> str:
        """The bearer token for TCP; created on first use, readable by its owner only.

        Raises:
            DeniedError: the file is readable by others or not ours, so others may know the token.
        """
        with self.locked():
            try:
                info = os.lstat(self.token)
            except FileNotFoundError:
                text = os.urandom(32).hex()
                write_private(self.token, text + "\n")
                return text
            if info.st_uid != os.geteuid() or stat.S_IMODE(info.st_mode) & 0o077 or not stat.S_ISREG(info.st_mode):
                raise _denied(f"{self.token} is not private", "delete it; HAL creates a new one")
            return read_regular(self.token, MAX_LINE_BYTES).decode().strip()


def find_home(explicit: str | os.PathLike[str] | None = None, environ: Mapping[str, str] | None = None) -> Home:
    """Return the home: `explicit`, else $HAL_HOME, else $XDG_STATE_HOME/hal, else ~/.local/state/hal; creates
    nothing.

    The cache of compiled kernels is $HAL_CACHE, else the one beside this Python that `make kernels` fills, if it is
    writable, else `cache` in the home: compiling takes minutes, so one cache serves many homes.
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
    """Check a node name and return it.

    Raises:
        SpecError: it cannot be a file name (letters, digits, . _ -; at most 63; begins and ends with a letter or
            digit).
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
    raise _conflict("no directory for HAL's sockets could be created in XDG_RUNTIME_DIR or /tmp", "make /tmp writable")


def _new_passage() -> Path:
    for place in PASSAGE_PLACES:
        for _ in range(SOCKET_DIR_TRIES):
            path = Path(place) / f"hal-{os.urandom(4).hex()}"
            try:
                path.mkdir(mode=PRIVATE_DIR_MODE)
                path.chmod(PASSAGE_MODE)
            except FileExistsError:
                continue
            except OSError:
                break
            return path
    raise _conflict(f"no directory could be created in {' or '.join(PASSAGE_PLACES)}", "make /var/tmp writable")


def _denied(message: str, hint: str) -> Exception:
    from hal.core.model.errors import DeniedError

    return DeniedError(message, hint=hint)


def _conflict(message: str, hint: str) -> Exception:
    from hal.core.model.errors import ConflictError

    return ConflictError(message, hint=hint)
