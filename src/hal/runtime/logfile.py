"""A log file of bounded size: when full, it is rotated; the oldest file is removed.

Standard library only, so that the keeper can use it too. A full disk loses log lines, never the process: lines that
could not be written are counted, and the count is logged when writing works again.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Final

from hal.core.model.printable import printable_json
from hal.runtime.regular_files import open_own

MAX_LOG_BYTES: Final = 16 << 20
"""Size of one log file."""
MAX_LOG_FILES: Final = 4
"""How many files are kept, including the current one."""


class LogFile:
    """Appends lines to `path`; `path.1` … `path.3` are older. Safe from several threads of one process."""

    def __init__(self, path: Path, *, max_bytes: int = MAX_LOG_BYTES, max_files: int = MAX_LOG_FILES) -> None:
        self.path = path
        self.dropped = 0
        """Lines that could not be written since the last one that could."""
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._lock = threading.Lock()
        self._fd = -1
        self._size = 0
        self._reopen()

    def write_line(self, line: str) -> None:
        """Append one line of JSON (the newline is added); characters that would act on a terminal are escaped."""
        data = printable_json(line).replace("\n", "\\n").encode("utf-8", "backslashreplace") + b"\n"
        with self._lock:
            try:
                if self._fd < 0 or self._size + len(data) > self._max_bytes:
                    self._rotate()
                if self.dropped:
                    data = b'{"level":"warning","event":"log lines were lost","lines":%d}\n' % self.dropped + data
                self._size += os.write(self._fd, data)
                self.dropped = 0
            except OSError:
                self.dropped += 1

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    def _rotate(self) -> None:
        if self._fd >= 0 and self._size > 0:
            os.close(self._fd)
            self._fd = -1
            for number in range(self._max_files - 1, 0, -1):
                older = self.path if number == 1 else self.path.with_name(f"{self.path.name}.{number - 1}")
                if older.exists():
                    older.replace(self.path.with_name(f"{self.path.name}.{number}"))
        if self._fd < 0:
            self._reopen()

    def _reopen(self) -> None:
        self._fd = open_own(self.path, os.O_WRONLY | os.O_APPEND)
        self._size = os.fstat(self._fd).st_size
