"""Directories and files that only their owner may read.

Standard library only.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from hal.runtime.regular_files import set_aside

PRIVATE_DIR_MODE: Final = 0o700
PRIVATE_FILE_MODE: Final = 0o600


def make_private(path: Path) -> None:
    """Create the directory if missing, with mode 0700 whatever the umask."""
    path.mkdir(mode=PRIVATE_DIR_MODE, parents=True, exist_ok=True)
    # Do not follow a link: a step may have put it here, and its target is not ours to change.
    if stat.S_IMODE(path.stat().st_mode) & 0o077 and not path.is_symlink():
        path.chmod(PRIVATE_DIR_MODE)


def write_private(path: Path, text: str, *, durable: bool = False) -> None:
    """Write a file of mode 0600 atomically: a reader sees the old text or the new one, never a part.

    Args:
        durable: the new text survives a power failure once this returns.
    """
    scratch = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    fd = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE_MODE)
    try:
        with os.fdopen(fd, "w") as file:
            file.write(text)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        try:
            scratch.replace(path)
        except IsADirectoryError:  # a step put it there: no start may depend on a person removing it
            set_aside(path)
            scratch.replace(path)
        if durable:
            _flush_directory(path.parent)
    except OSError:
        scratch.unlink(missing_ok=True)
        raise


def is_private(path: Path, owner: int | None = None) -> bool:
    """Whether it is a directory (not a link to one), owned by us (or by that user), and closed to everybody else."""
    try:
        info = os.lstat(path)
    except OSError:
        return False
    return (
        stat.S_ISDIR(info.st_mode)
        and info.st_uid == (os.geteuid() if owner is None else owner)
        and not stat.S_IMODE(info.st_mode) & 0o077
    )


def check_secret(path: Path) -> None:
    """Check that a key file of HAL is private, because whoever has read it can act in HAL's name. A missing file
    passes.

    Raises:
        DeniedError: it belongs to another user, or others may read or change it.
    """
    from hal.core.model.errors import DeniedError

    try:
        info = path.stat()
    except FileNotFoundError:
        return
    if info.st_uid not in (0, os.geteuid()) or stat.S_IMODE(info.st_mode) & 0o077:
        raise DeniedError(
            f"{path} is not private: others may know its contents",
            hint=f"replace it; or if you are sure that nobody has read it: chmod 600 {path}",
        )


def others_may_write(info: os.stat_result) -> bool:
    """Whether anybody but its owner and root may write there; a group with no other member does not count."""
    mode = stat.S_IMODE(info.st_mode)
    return bool(mode & 0o002 or (mode & 0o020 and not _is_private_group(info.st_gid)))


def _is_private_group(gid: int) -> bool:
    import grp
    import pwd

    if gid == 0:
        return True
    try:
        mine, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return gid == mine.pw_gid and group.gr_name == mine.pw_name and set(group.gr_mem) <= {mine.pw_name}


def _flush_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
