"""Since when the brokers of a session were not reached from this machine: a file that its workers share, in memory.

A worker that cannot reach the broker's machine gives its slot back, and is started again; what it knew is gone then.
"""

from __future__ import annotations

import contextlib
import os
import time

from hal.runtime.exchange import AWAY, DISK, MEMORY, PREFIX


class AwaySince:
    """Of one session.

    Args:
        session: its id.
        long_s: what is too long.
    """

    def __init__(self, session: str, long_s: float) -> None:
        directory = MEMORY if os.access(MEMORY, os.W_OK) else DISK
        self._path = directory / f"{PREFIX}{session}{AWAY}"
        self._long_s = long_s

    def is_long(self) -> bool:
        """Note that they are not reached; returns whether that was noted too long ago, and nothing else since."""
        try:
            os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            with contextlib.suppress(OSError):
                info = os.lstat(self._path)
                if info.st_uid == os.geteuid() and time.time() - info.st_mtime >= self._long_s:
                    self.end()
                    return True
        except OSError:
            pass  # nothing can be kept here
        return False

    def end(self) -> None:
        """One was reached, or nobody waits for it any more."""
        with contextlib.suppress(OSError):
            self._path.unlink()
