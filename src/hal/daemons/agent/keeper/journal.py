"""The keeper's journal on disk: consecutive records, each with its length and checksum.

It survives the death of the process: an append is one write. There is no fsync, because after a crash of the host
nothing of a step is left. A torn end (the process died in the write) is cut off when the file is loaded; a record
damaged in the middle, or something that is not a file, is set aside (`.damaged`) and mentioned in `notes`.
"""

from __future__ import annotations

import errno
import os
from binascii import crc32
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from hal.daemons.agent.keeper.ports import JournalFullError, Record
from hal.runtime.regular_files import create_scratch, open_own

HEAD_BYTES: Final = 8
MAX_RECORD_BYTES: Final = 64 << 20

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)


class FileJournal:
    """A `Journal` in one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.notes: list[str] = []
        self._fd = open_own(path, os.O_RDWR | os.O_APPEND)
        self._size = os.fstat(self._fd).st_size

    def load(self) -> list[Record]:
        data = os.pread(self._fd, self._size, 0)
        while len(data) < self._size and (more := os.pread(self._fd, self._size - len(data), len(data))):
            data += more
        records: list[Record] = []
        at = 0
        while len(data) - at >= HEAD_BYTES:
            size = int.from_bytes(data[at : at + 4], "little")
            body = data[at + HEAD_BYTES : at + HEAD_BYTES + size]
            if size > MAX_RECORD_BYTES or len(body) < size:
                break
            if crc32(body) != int.from_bytes(data[at + 4 : at + HEAD_BYTES], "little"):
                break
            try:
                records.append(_decoder.decode(body))
            except msgspec.DecodeError:
                break
            at += HEAD_BYTES + size
        if at < len(data):
            self._cut(data, at)
        return records

    def append(self, records: Sequence[Record]) -> None:
        data = _encode(records)
        try:
            written = os.write(self._fd, data)
        except OSError as error:
            raise _full(self.path, error) from error
        if written < len(data):
            os.ftruncate(self._fd, self._size)
            raise JournalFullError(f"{self.path}: {os.strerror(errno.ENOSPC)}")
        self._size += written

    def replace(self, records: Sequence[Record]) -> None:
        data = _encode(records)
        scratch = self.path.with_suffix(".new")
        try:
            fd = create_scratch(scratch, flags=os.O_RDWR | os.O_APPEND)
        except OSError as error:
            raise _full(self.path, error) from error
        try:
            if os.write(fd, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(scratch))
            scratch.replace(self.path)
        except OSError as error:
            os.close(fd)
            scratch.unlink(missing_ok=True)
            raise _full(self.path, error) from error
        os.close(self._fd)
        self._fd, self._size = fd, len(data)

    def size_bytes(self) -> int:
        return self._size

    def close(self) -> None:
        os.close(self._fd)

    def _cut(self, data: bytes, at: int) -> None:
        """Cut off invalid data; anything more than one torn record is set aside for people to examine."""
        size = int.from_bytes(data[at : at + 4], "little") if len(data) - at >= HEAD_BYTES else len(data)
        if at + HEAD_BYTES + size < len(data):
            aside = self.path.with_suffix(".damaged")
            fd = create_scratch(aside)
            with os.fdopen(fd, "wb") as file:
                file.write(data)
            self.notes.append(f"journal: {len(data) - at} damaged bytes were set aside in {aside}")
        os.ftruncate(self._fd, at)
        self._size = at


def _encode(records: Sequence[Record]) -> bytes:
    parts = []
    for record in records:
        body = _encoder.encode(record)
        parts.append(len(body).to_bytes(4, "little") + crc32(body).to_bytes(4, "little"))
        parts.append(body)
    return b"".join(parts)


def _full(path: Path, error: OSError) -> JournalFullError:
    return JournalFullError(f"{path}: {error.strerror or error}")
