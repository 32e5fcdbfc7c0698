"""Which versions of compiled kernels a cache keeps: those of the newest sources, and those that may be in use.

A cache holds one directory per version, `kernels-` and 16 hex digits (hal.core.kernels.structures.jit). It contains a
stamp for each Python; its time is that of the last use, and a running controller keeps it locked.
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

CACHE_VARIABLE: Final = "NUMBA_CACHE_DIR"
"""Where numba keeps what it compiles; it reads this when it is imported."""
KEPT: Final = 4
"""Versions that are kept however long they have not been used."""
UNUSED_S: Final = 7 * 86_400
"""Other versions are removed after nothing in them was read or written for this long."""
STAMPS: Final = "all-of-python-*"
UNMAPPED_UID: Final = 65_534
"""How the machine's root appears in a container that does not map it: the owner of the directories above a home
there."""
_VERSION: Final = re.compile(r"kernels-[0-9a-f]{16}")
_GOING: Final = ".going"


def check_cache(cache: Path) -> None:
    """Check that nobody else can write to a cache of kernels, because whoever loads it executes its contents.

    Checks the directory, everything above it (both as named and with links resolved), and its contents.

    Raises:
        DeniedError: a part of it belongs to another user, or others may write to it.
    """
    named, real = Path(os.path.abspath(cache)), Path(os.path.realpath(cache))
    for place in {*named.parents, *real.parents}:
        # In a directory like /tmp, others cannot rename what is ours.
        _check_place(cache, place, sticky=True)
    for top in {named, real}:
        _check_place(cache, top, sticky=False)
    for directory, directories, names in os.walk(real):
        for name in (*directories, *names):
            _check_place(cache, Path(directory) / name, sticky=False)


def _check_place(cache: Path, place: Path, *, sticky: bool) -> None:
    try:
        info = os.lstat(place)
    except OSError:  # does not exist yet, or was removed meanwhile; what cannot be accessed cannot be loaded
        return
    if stat.S_ISLNK(info.st_mode):
        safe = True  # whoever may change a link may write to its directory, and its target is checked too
    else:
        safe = not others_may_write(info) or (sticky and bool(info.st_mode & stat.S_ISVTX))
    if safe and info.st_uid in (0, os.geteuid(), *((UNMAPPED_UID,) if sticky else ())):
        return
    from hal.core.model.errors import DeniedError

    raise DeniedError(
        f"the kernel cache {cache} is not used: others may write to {place}, and HAL executes what is in a cache",
        hint=f"make it yours and private (chmod go-w {place}), or choose another directory with HAL_CACHE",
    )


def mark_used(stamp: Path) -> None:
    """Record that these kernels are used now. Does nothing if there is no stamp, or it may not be changed."""
    with contextlib.suppress(OSError):
        os.utime(stamp)


@contextlib.contextmanager
def hold_kernels(stamp: Path) -> Iterator[None]:
    """Keep these kernels from being removed until the block or the process ends: it may load more of them at any
    time.

    At the end of the block, their use is recorded again. Where an exclusive lock needs a writable descriptor, as on
    NFS, nobody gets one, and nothing is ever removed.
    """
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):  # not compiled into a cache: there is nothing to keep
            descriptor = os.open(stamp, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            held.callback(os.close, descriptor)
            held.callback(mark_used, stamp)  # before the lock goes with the descriptor
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield


def remove_old_versions(stamp: Path) -> list[Path]:
    """Remove old versions from the cache; returns the removed directories.

    Args:
        stamp: of the version just compiled, which is kept.

    The newest versions are kept (`KEPT` in all), and those that were used within `UNUSED_S` or are locked by a process.
    What may not be removed is kept too.
    """
    cache = stamp.parent.parent
    gone = []
    with contextlib.suppress(OSError):
        for path in sorted(cache.glob(f"kernels-*{_GOING}")):  # the process that was removing it did not finish
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
    """Since 1970. For directories only changes count, because reading them, as here, is no use."""
    last_s = version.stat().st_mtime
    for directory, _, names in os.walk(version):
        last_s = max(last_s, Path(directory).stat().st_mtime)
        for name in names:
            info = (Path(directory) / name).stat()
            last_s = max(last_s, info.st_mtime, info.st_atime)
    return last_s


def _removed(version: Path) -> bool:
    """Rename before removing, so that a concurrent reader finds all of it or nothing."""
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
