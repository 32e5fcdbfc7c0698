"""The journal of a durable session: what clients sent and what they were answered, appended by the group.

While one group is written and flushed, the next one gathers; what waits for a group is called after it. A record is its
length, a checksum, a kind, the client's number and a body; reading ends at the first that is torn.
"""

from __future__ import annotations

import asyncio
import errno
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from functools import partial
from typing import Final, NamedTuple

import msgspec

from hal.core.interfaces.directory import Directory
from hal.runtime.interface import Runtime

_HEAD: Final = struct.Struct("<II")
"""Length and CRC-32 of what follows."""
_KIND: Final = struct.Struct("<BQ")
_PART: Final = struct.Struct("<QII")
NAME: Final = "journal-"
SCRATCH: Final = "journal.new"
MAX_JOURNAL_BYTES: Final = 4 << 30
"""Read of one file."""
MAX_NEEDED_BYTES: Final = MAX_JOURNAL_BYTES // 4
"""Of what is still needed; beyond it nothing more is accepted."""
COMPACT_BYTES: Final = 256 << 20
"""A journal that has grown by so much, and by as much as is needed of it, is written anew."""

_encode = msgspec.msgpack.Encoder().encode


class Kind(IntEnum):
    """Of records."""

    CLIENT = 1
    """A client came; the body is its key."""
    SENT = 2
    """It sent a frame; the body is that."""
    ANSWERED = 3
    """It was answered; the body is the frame."""
    LEFT = 4
    """It has closed its session; nothing of it is needed any more."""
    BEGUN = 5
    """Tasks that may not run twice are about to be sent to a worker; the body is a `Part`."""
    RETURNED = 6
    """They wait again."""


class Part(NamedTuple):
    """Some tasks of a block."""

    block: int
    start: int
    end: int

    def encode(self) -> bytes:
        return _PART.pack(*self)

    @classmethod
    def decode(cls, body: bytes) -> Part:
        return cls(*_PART.unpack(body))


class Record(NamedTuple):
    """One record."""

    kind: Kind
    client: int
    body: bytes


def encode_record(kind: Kind, client: int, body: object) -> bytes:
    """Encode a record.

    Args:
        body: bytes, or a frame.
    """
    data = _KIND.pack(kind, client) + (body if isinstance(body, bytes) else _encode(body))
    return _HEAD.pack(len(data), zlib.crc32(data)) + data


def decode_records(data: bytes) -> Iterator[Record]:
    """Yield the records up to the first that is torn."""
    view, at = memoryview(data), 0
    while at + _HEAD.size <= len(view):
        size, check = _HEAD.unpack_from(view, at)
        body = view[at + _HEAD.size : at + _HEAD.size + size]
        if len(body) < size or size < _KIND.size or zlib.crc32(body) != check:
            return
        kind, client = _KIND.unpack_from(body)
        yield Record(Kind(kind), client, bytes(body[_KIND.size :]))
        at += _HEAD.size + size


class Journal:
    """The files of one session's journal, of which the newest counts."""

    def __init__(
        self,
        runtime: Runtime,
        directory: Directory,
        broken: Callable[[OSError], None],
        *,
        compact_bytes: int = COMPACT_BYTES,
    ) -> None:
        """
        Args:
            broken: called when it cannot be written; from then on nothing is, and nothing is called after it.
        """
        self._runtime = runtime
        self._directory = directory
        self._broken = broken
        self._compact_bytes = compact_bytes
        self._number = 0
        self._needed = 0
        """Bytes of what it began with."""
        self._size = 0
        """Written since."""
        self._pending: list[bytes] = []
        self._waiting: list[Callable[[], None]] = []
        self._snapshot: Callable[[], list[bytes]] = list
        self._wake = asyncio.Event()

    def read(self) -> list[Record]:
        """Read what an earlier broker has left. Blocks."""
        numbers = self._files()
        if not numbers:
            return []
        self._number = numbers[-1]
        return list(decode_records(self._directory.read(self._name, MAX_JOURNAL_BYTES)))

    async def begin(self, snapshot: Callable[[], list[bytes]]) -> None:
        """Begin a new file with what is still needed, and write to it from now on.

        Args:
            snapshot: the records of that.
        Raises:
            OSError: it cannot be written.
        """
        self._snapshot = snapshot
        records = snapshot()
        await self._runtime.run_blocking(partial(self._rewrite, records))
        self._runtime.spawn_task(self._commit_groups(), "journal")

    def append(self, kind: Kind, client: int, body: object) -> None:
        """Add a record to the next group."""
        self._pending.append(encode_record(kind, client, body))
        self._wake.set()

    def after_commit(self, call: Callable[[], None]) -> None:
        """Call this once all records so far are on the disk, in order."""
        self._waiting.append(call)
        self._wake.set()

    async def _commit_groups(self) -> None:
        try:
            await self._commit()
        except OSError as error:
            self._broken(error)

    async def _commit(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            records, calls = self._pending, self._waiting
            self._pending, self._waiting = [], []
            if records:
                await self._runtime.run_blocking(partial(self._write, b"".join(records)))
            for call in calls:
                call()
            if self._size > max(self._compact_bytes, self._needed):
                kept = self._snapshot()
                self._pending = []  # what has come meanwhile is in the snapshot
                await self._runtime.run_blocking(partial(self._rewrite, kept))

    def _write(self, data: bytes) -> None:
        self._directory.append(self._name, data)
        self._directory.flush(self._name)
        self._size += len(data)

    def _rewrite(self, records: Iterable[bytes]) -> None:
        data = b"".join(records)
        if len(data) > MAX_NEEDED_BYTES:
            raise OSError(errno.EFBIG, f"{len(data)} bytes of it are needed, and {MAX_NEEDED_BYTES} may be")
        old = self._files()
        self._directory.remove(SCRATCH)
        self._directory.create(SCRATCH, data, flush=True)
        self._number += 1
        self._directory.move(SCRATCH, self._directory, self._name, flush=True)
        self._needed, self._size = len(data), 0
        for number in old:
            self._directory.remove(f"{NAME}{number:08}")

    def _files(self) -> list[int]:
        names = [entry.name for entry in self._directory.entries() if entry.name.startswith(NAME)]
        return sorted(int(name.removeprefix(NAME)) for name in names if name.removeprefix(NAME).isdigit())

    @property
    def _name(self) -> str:
        return f"{NAME}{self._number:08}"
