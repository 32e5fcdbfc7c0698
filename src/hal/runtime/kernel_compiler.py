"""`python -m hal.runtime.kernel_compiler`: compile all kernels into the cache and leave a stamp.

A minute or two the first time, then nothing. The cache directory is named by a hash of the kernels' sources and of
numba's version, so a stamp in it is enough. Two processes share the work, one for each part of the kernels. Kernels of
old versions are removed afterwards. Whoever comes second waits for the first.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from hal.runtime.kernel_cache import CACHE_VARIABLE, check_cache

LOCK: Final = "compiling.lock"
"""In the cache; held while somebody compiles into it."""
LOWEST_PRIORITY: Final = 19
PR_SET_PDEATHSIG: Final = 1
MODULE: Final = "hal.runtime.kernel_compiler"


def main(argv: list[str] | None = None) -> int:
    """Compile what was not; the process's exit code."""
    parser = argparse.ArgumentParser(prog="hal-kernels", description=__doc__)
    parser.add_argument("--cache", required=True, help="directory of compiled kernels")
    parser.add_argument("--for-parent", action="store_true", help="at the lowest priority, no longer than the parent")
    parser.add_argument("--share", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args(argv)
    cache = Path(asked.cache)
    os.environ[CACHE_VARIABLE] = str(cache)
    if asked.for_parent:
        os.nice(LOWEST_PRIORITY)
    if asked.for_parent or asked.share is not None:
        _end_with_parent()
    if asked.share is not None:
        return _compile_share(asked.share)
    check_cache(cache)
    return _compile(cache)


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() == 1:  # it has ended already
        sys.exit(1)


def _compile(cache: Path) -> int:
    began_s = time.monotonic()

    from hal.core.kernels.compile_all import SHARES
    from hal.core.kernels.structures.jit import stamp_of_all
    from hal.runtime.kernel_cache import mark_used, remove_old_versions

    stamp = stamp_of_all()
    if stamp.exists():
        mark_used(stamp)
        return 0
    cache.mkdir(parents=True, exist_ok=True)
    lock = os.open(cache / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    if stamp.exists():
        return 0
    _say("Kernels: compiling the engine with numba (a minute or two, once per version of it) ...")
    command = (sys.executable, "-m", MODULE, "--cache", str(cache), "--share")
    shares = [subprocess.Popen([*command, str(share)]) for share in range(len(SHARES))]
    codes = [share.wait() for share in shares]
    if any(codes):
        print("Kernels: compiling failed, see above", file=sys.stderr)  # noqa: T201
        return 1
    stamp.touch()
    remove_old_versions(stamp)
    _say(f"Kernels: ready after {time.monotonic() - began_s:.0f} s")
    return 0


def _compile_share(share: int) -> int:
    from hal.core.kernels.compile_all import compile_all

    compile_all(report=lambda line: _say(f"  {line}"), share=share)
    return 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
