"""Which compiled kernels stay in a cache: those of the newest versions of their sources, and what may be in use.

A cache holds one directory for each version, `kernels-` and 16 hex digits (hal.core.kernels.jit). In it lies a stamp
for each Python, whose time says when a process last used them, and which a controller keeps locked while it runs.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hal.runtime.privacy import others_may_write

KEPT: Final = 4
"""Versions that stay however long they have not been used."""
UNUSED_S: Final = 7 * 86_400
"""Others go once nothing in them was read or written for so long."""
STAMPS: Final = "all-of-python-*"
UNMAPPED_UID: Final = 65_534
"""What the machine's root is called in a container that does not know it: owner of what lies above a home there."""
_VERSION: Final = re.compile(r"kernels-[0-9a-f]{16}")
_GOING: Final = ".going"


def check_cache(cache: Path) -> None:
    """What lies in a cache of kernels is run as whoever loads it: nobody else may be able to put it there.

    Looked at are the directory with all above it, as named and as links lead, and what is in it.

    Raises:
        DeniedError: a part of it belongs to another user, or others may write to it.
    """
    named, real = Path(os.path.abspath(cache)), Path(os.path.realpath(cache))
    for place in {*named.parents, *real.parents}:
        # In a directory like /tmp others cannot rename what is ours.
        _check_place(cache, place, sticky=True)
    for top in {named, real}:
        _check_place(cache, top, sticky=False)
    for directory, directories, names in os.walk(real):
        for name in (*directories, *names):
            _check_place(cache, Path(directory) / name, sticky=False)


def _check_place(cache: Path, place: Path, *, sticky: bool) -> None:
    try:
        info = os.lstat(place)
    except OSError:  # not there yet, or gone meanwhile; what cannot be looked at cannot be loaded
        return
    if stat.S_ISLNK(info.st_mode):
        safe = True  # whoever may change it may write to its directory, and where it leads is looked at, too
    else:
        safe = not others_may_write(info) or (sticky and bool(info.st_mode & stat.S_ISVTX))
    if safe and info.st_uid in (0, os.geteuid(), *((UNMAPPED_UID,) if sticky else ())):
        return
    from hal.core.model.errors import DeniedError

    raise DeniedError(
        f"the kernel cache {cache} is not used: others may write to {place}, and what is in a cache is run",
        hint=f"make it yours and private (chmod go-w {place}), or name another directory with HAL_CACHE",
    )


def mark_used(stamp: Path) -> None:
    """These kernels count as used now. Without a stamp, or where it may not be changed, nothing happens."""
    with contextlib.suppress(OSError):
        os.utime(stamp)


@contextlib.contextmanager
def in_use(stamp: Path) -> Iterator[None]:
    """Nobody takes these kernels away until the block ends, or the process: it may load more of them at any time.

    At the end of the block they count as used once more. Where an exclusive lock needs a descriptor that can be written
    to, as on NFS, nobody gets one, and nothing is ever taken away.
    """
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):  # not compiled into a cache: there is nothing to keep
            descriptor = os.open(stamp, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            held.callback(os.close, descriptor)
            held.callback(mark_used, stamp)  # before the lock goes with the descriptor
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield


def forget_old(stamp: Path) -> list[Path]:
    """Take away what the cache keeps of old versions; returns the directories that went.

    Args:
        stamp: that of the version just compiled, which stays.

    Beside it and the newest (`KEPT` in all), those that were used within `UNUSED_S` or are held by a process stay. What
    may not be removed stays, too.
    """
    cache = stamp.parent.parent
    gone = []
    with contextlib.suppress(OSError):
        for path in sorted(cache.glob(f"kernels-*{_GOING}")):  # whoever was at it did not come to the end
            if _is_version(path, _GOING):
                shutil.rmtree(path, ignore_errors=True)
        others = [path for path in sorted(cache.iterdir()) if _is_version(path) and path != stamp.parent]
        used_s = {path: _last_used_s(path) for path in others}
        others.sort(key=lambda path: used_s[path], reverse=True)
        oldest_s = time.time() - UNUSED_S
        gone = [path for path in others[KEPT - 1 :] if used_s[path] < oldest_s and _removed(path)]
    return gone


def _is_version(path: Path, ending: str = "") -> bool:
    name = path.name.removesuffix(ending) if ending else path.name
    return _VERSION.fullmatch(name) is not None and path.is_dir() and not path.is_symlink()


def _last_used_s(version: Path) -> float:
    """Since 1970. Of directories only changes count: looking into them, as here, is no use."""
    last_s = version.stat().st_mtime
    for directory, _, names in os.walk(version):
        last_s = max(last_s, Path(directory).stat().st_mtime)
        for name in names:
            info = (Path(directory) / name).stat()
            last_s = max(last_s, info.st_mtime, info.st_atime)
    return last_s


def _removed(version: Path) -> bool:
    """Renamed first, so that who comes meanwhile finds all of it or nothing."""
    going = version.with_name(version.name + _GOING)
    with contextlib.ExitStack() as held, contextlib.suppress(OSError):
        for stamp in version.glob(STAMPS):
            descriptor = os.open(stamp, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            held.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        version.rename(going)
        shutil.rmtree(going, ignore_errors=True)
        return True
    return False
