"""What a broker keeps until others read it: in memory up to a bound, beyond it in files of the session. Files are
written and read on a thread of their own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from hal.core.interfaces.directory import Directory
from hal.runtime.interface import Lane, Runtime

MEMORY_BYTES: Final = 128 << 20
"""In memory, for all processes together."""
FILE_BYTES: Final = 8 << 30
"""In files."""


class Filed:
    """Bytes in a file, until they are dropped."""

    __slots__ = ("_directory", "_spill", "name", "size")

    def __init__(self, spill: Spill, directory: Directory, name: str, size: int) -> None:
        self._spill = spill
        self._directory = directory
        self.name = name
        self.size = size

    def read(self) -> bytes:
        """Read all of it. Blocks.

        Raises:
            OSError: it cannot be read.
        """
        return self._directory.read(self.name, self.size)

    def drop(self) -> None:
        """Remove it."""
        self._directory.remove(self.name)
        self._spill.give_file(self.size)


class Spill:
    """The account of one broker.

    Args:
        directory: of this session alone; None: nothing goes to files.

    Attributes:
        memory_bytes: in memory.
        file_bytes: in files.
    """

    def __init__(self, runtime: Runtime, directory: Directory | None) -> None:
        self._runtime = runtime
        self._directory = directory
        self._numbers = 0
        self.memory_bytes = 0
        self.file_bytes = 0

    @property
    def has_files(self) -> bool:
        """Whether anything goes to files."""
        return self._directory is not None

    @property
    def is_full(self) -> bool:
        """Whether memory has no room for more."""
        return self.memory_bytes >= MEMORY_BYTES

    def take_memory(self, size: int) -> None:
        """So many bytes more are in memory."""
        self.memory_bytes += size

    def give_memory(self, size: int) -> None:
        """So many fewer."""
        self.memory_bytes -= size

    def give_file(self, size: int) -> None:
        """A file of so many bytes is gone."""
        self.file_bytes -= size

    async def file(self, pieces: Sequence[bytes]) -> Filed | None:
        """Write a file; None: there is no room for it."""
        size = sum(map(len, pieces))
        if self._directory is None or self.file_bytes + size > FILE_BYTES:
            return None
        self._numbers += 1
        name = f"s{self._numbers}"
        self.file_bytes += size
        try:
            write = partial(self._directory.create, name, b"".join(pieces))
            await self._runtime.run_blocking(write, Lane.FILES)
        except OSError as error:
            self.give_file(size)
            self._runtime.log.warning("cannot write what waits to a file", reason=str(error))
            return None
        return Filed(self, self._directory, name, size)
