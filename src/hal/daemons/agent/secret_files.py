"""The secrets of a node's steps: files on tmpfs, which are there from before a step begins until it has ended.

    BASE/JOB.TASK.ATTEMPT.RANK/NAME

BASE is a directory of this node's agent with an unpredictable name, on a file system that is in memory only; nobody
else may write to it, or list it. Where steps run as their users, files are their user's and directories stay root's, so
that no step can fill the file system or move what is there. HAL_HOME/nodes/NODE/secrets names the base, so that a later
agent finds and cleans it. Nothing else about secrets is written to a disk. The directory of a step comes into being as
a whole, and HAL never writes to it again.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import stat
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from hal.core.model import StepId
from hal.core.model.secret import MAX_JOB_SECRETS, MAX_SECRET_BYTES, is_secret_name
from hal.runtime.privacy import make_private, write_private
from hal.runtime.regular_files import open_directory, open_regular, read_regular

MEMORY_TYPES: Final = ("tmpfs", "ramfs")
PREFIX: Final = "hal-secrets-"
HOSTS_PREFIX: Final = "hal-hosts-"
"""The same files say to bases of elastic jobs which nodes there are: in another directory."""
FILE_MODE: Final = 0o400
DIR_MODE: Final = 0o700
USER_DIR_MODE: Final = 0o750
"""Of the directory of a step that runs as another user, whose primary group it gets."""
SHARED_BASE_MODE: Final = 0o711
"""Of the base directory where steps run as other users."""
MAX_NOTE_BYTES: Final = 4_096
MAX_MOUNTS_BYTES: Final = 4 << 20
MAX_LEFT: Final = 100_000
"""Entries of the base directory that one sweep looks at."""


class Account(NamedTuple):
    """As whom a step runs."""

    uid: int
    gid: int


def account_of(user: str) -> Account | None:
    """The account of a user on this machine; None: it does not know the user. May block."""
    try:
        found = pwd.getpwnam(user)
    except KeyError:
        return None
    return Account(found.pw_uid, found.pw_gid)


class NoMemoryFilesError(OSError):
    """This machine has no file system in memory where HAL may write."""


class SecretFiles:
    """Of one node. All calls are short: they touch memory only, and one small file on disk when the base is made."""

    def __init__(
        self, note: Path, places: Collection[str], *, each_as_itself: bool = False, prefix: str = PREFIX
    ) -> None:
        """
        Args:
            note: the file that names the base directory.
            places: directories where it may be created, the best first (`memory_places`).
            each_as_itself: steps run as their users; else as this process's.
            prefix: how the name of the base directory begins.
        """
        self._note = note
        self._prefix = prefix
        self._places = places
        self.each_as_itself = each_as_itself
        self._base: Path | None = None

    @property
    def available(self) -> bool:
        """Whether this node can hold secrets."""
        return bool(self._places)

    def put(self, step: StepId, secrets: Mapping[str, bytes], account: Account | None = None) -> str:
        """Create the directory of a step, with its files; one that exists is left as it is.

        Args:
            account: as whom the step runs; None: as this process's user.
        Returns: the base directory.
        Raises:
            OSError: for example, the memory file system is full; nothing of it is left.
        """
        base = self._ready()
        final = base / str(step)
        if final.is_dir():
            return str(base)
        scratch = Path(tempfile.mkdtemp(prefix=f".{step}.", dir=base))
        try:
            for name, value in secrets.items():
                if not is_secret_name(name):
                    raise OSError(f"'{name}' is not the name of a secret")
                _write(scratch / name, value, account)
            if account is not None and account.uid != os.geteuid():
                os.chown(scratch, -1, account.gid)
                scratch.chmod(USER_DIR_MODE)
            scratch.rename(final)
        except OSError:
            _remove_directory(base, scratch.name)
            raise
        return str(base)

    def replace(self, step: StepId, name: str, value: bytes) -> bool:
        """Replace a file of a step as a whole, so that nobody reads half of it; whether it was another one.

        Raises:
            OSError: for example, the step had no such file, or has put something else there; nothing has changed.
        """
        base = self._base or self._found()
        if base is None:
            raise FileNotFoundError("there is no directory of such files")
        self._base = base
        with contextlib.ExitStack() as opened:
            place = open_directory(base, flags=os.O_RDONLY)
            opened.callback(os.close, place)
            directory = open_directory(str(step), dir_fd=place, flags=os.O_RDONLY)
            opened.callback(os.close, directory)
            fd = open_regular(name, os.O_RDONLY, dir_fd=directory)
            opened.callback(os.close, fd)
            info = os.fstat(fd)
            if os.pread(fd, len(value) + 1, 0) == value:
                return False
            scratch = f".{name}.next"
            with contextlib.suppress(FileNotFoundError):
                os.unlink(scratch, dir_fd=directory)
            _write(scratch, value, Account(info.st_uid, info.st_gid), dir_fd=directory)
            os.rename(scratch, name, src_dir_fd=directory, dst_dir_fd=directory)
        return True

    def values_of(self, step: StepId) -> list[bytes]:
        """What a step has, as far as it can be read: empty where it has nothing."""
        base = self._base or self._found()
        if base is None:
            return []
        values = []
        with contextlib.suppress(OSError):
            directory = open_directory(base / str(step), flags=os.O_RDONLY)
            try:
                for name in os.listdir(directory)[:MAX_JOB_SECRETS]:
                    with contextlib.suppress(OSError):
                        values.append(read_regular(name, MAX_SECRET_BYTES, dir_fd=directory))
            finally:
                os.close(directory)
        return values

    def remove(self, step: StepId) -> None:
        """Remove what a step had; harmless if it had nothing."""
        if self._base is not None:
            _remove_directory(self._base, str(step))

    def sweep(self, keep: Collection[StepId]) -> int:
        """Remove all but what these steps have, also what an earlier agent of this node has left; returns how many
        directories that were."""
        base = self._base or self._found()
        if base is None:
            return 0
        self._base = base
        kept = {str(step) for step in keep}
        removed = 0
        with contextlib.suppress(OSError), os.scandir(base) as entries:
            left = [entry.name for entry, _ in zip(entries, range(MAX_LEFT), strict=False)]
            for name in left:
                if name not in kept:
                    _remove_directory(base, name)
                    removed += 1
        if not kept:
            with contextlib.suppress(OSError):
                base.rmdir()  # the next secret makes another
        return removed

    def _ready(self) -> Path:
        """The base directory, created where there is none."""
        if self._base is not None and self._is_ours(self._base):
            return self._base
        self._base = self._found()
        if self._base is not None:
            return self._base
        failure: OSError = NoMemoryFilesError("this machine has no tmpfs where HAL may write")
        for place in self._places:
            try:
                base = Path(tempfile.mkdtemp(prefix=self._prefix, dir=place))
                if self.each_as_itself:
                    base.chmod(SHARED_BASE_MODE)
            except OSError as error:
                failure = error
                continue
            make_private(self._note.parent)
            write_private(self._note, f"{base}\n")
            self._base = base
            return base
        raise failure

    def _found(self) -> Path | None:
        """The base directory that an earlier agent has made, if it is there and still ours alone."""
        try:
            text = read_regular(self._note, MAX_NOTE_BYTES).decode().strip()
        except (OSError, UnicodeDecodeError):
            return None
        path = Path(text)
        return path if path.name.startswith(self._prefix) and path.is_absolute() and self._is_ours(path) else None

    def _is_ours(self, path: Path) -> bool:
        """Whether it is a directory of this user, with the mode that it was given."""
        try:
            info = os.lstat(path)
        except OSError:
            return False
        mode = SHARED_BASE_MODE if self.each_as_itself else DIR_MODE
        return stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid() and stat.S_IMODE(info.st_mode) == mode


def memory_places(mounts: str | None = None, *, uid: int | None = None) -> list[str]:
    """Directories of file systems in memory where this user may create one, the best first.

    /run comes first for root: some systems remove what is in /dev/shm when its owner logs out, and always a user's own
    directory under /run/user.

    Args:
        mounts: the text of /proc/self/mountinfo; None: this process's.
        uid: the user; None: this process's.
    """
    if mounts is None:
        try:
            mounts = read_regular("/proc/self/mountinfo", MAX_MOUNTS_BYTES).decode(errors="replace")
        except OSError:
            return []
    uid = os.geteuid() if uid is None else uid
    wanted = ["/run", "/dev/shm"] if uid == 0 else ["/dev/shm", f"/run/user/{uid}"]
    kinds: dict[str, str] = {}
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()[:1]
        if len(fields) > 4 and kind:
            kinds[fields[4]] = kind[0]  # the one that is mounted last hides the others
    return [path for path in wanted if kinds.get(path) in MEMORY_TYPES and os.access(path, os.W_OK | os.X_OK)]


def _write(path: Path | str, value: bytes, account: Account | None, *, dir_fd: int | None = None) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(path, flags, FILE_MODE, dir_fd=dir_fd)
    try:
        if account is not None and account.uid != os.geteuid():
            os.fchown(fd, account.uid, account.gid)
        view = memoryview(value)
        while view:
            view = view[os.write(fd, view) :]
    finally:
        os.close(fd)


def _remove_directory(base: Path, name: str) -> None:
    """Remove a directory and the files in it, following no link; a step may have put directories of its own there,
    which go too."""
    with contextlib.suppress(OSError):
        place = open_directory(base, flags=os.O_RDONLY)
        try:
            _remove_entry(place, name, depth=0)
        finally:
            os.close(place)


MAX_DEPTH: Final = 32
"""Levels of directories that a step may have created inside its own and that are removed with it."""


def _remove_entry(parent: int, name: str, *, depth: int) -> None:
    try:
        info = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except OSError:
        return
    if not stat.S_ISDIR(info.st_mode):
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=parent)
        return
    if os.geteuid():  # root needs no leave; and would give it to what a link names that a step has put there meanwhile
        with contextlib.suppress(OSError):
            os.chmod(name, DIR_MODE, dir_fd=parent)
    with contextlib.suppress(OSError):
        inner = open_directory(name, dir_fd=parent, flags=os.O_RDONLY)
        try:
            if depth < MAX_DEPTH:
                for entry in os.listdir(inner):
                    _remove_entry(inner, entry, depth=depth + 1)
        finally:
            os.close(inner)
    with contextlib.suppress(OSError):
        os.rmdir(name, dir_fd=parent)
