"""The line of JSON before each piece of an output where those of many tasks come in one answer of REST.

Pure. Read by clients as it is written by the controller; fields that a client does not know are passed over.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct


class OutputRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Of the piece whose `bytes` bytes follow the line. Pieces of one output follow one another."""

    task: int
    attempt: int = 0
    """0: the task has not run."""
    node: str = ""
    offset: int = 0
    """Where the piece begins."""
    size: int = 0
    """Bytes ever written so far."""
    bytes: int = 0
    path: str = ""
    """The file that the job has named for this output: HAL keeps none of it."""
    error: str = ""
    """Why there is nothing."""


_DECODER: Final = msgspec.json.Decoder(OutputRecord)
_ENCODER: Final = msgspec.json.Encoder()


def record_line(record: OutputRecord) -> bytes:
    """The line, with its end."""
    return _ENCODER.encode(record) + b"\n"


def read_record(line: bytes) -> OutputRecord:
    """Read a line, without its end.

    Raises:
        msgspec.DecodeError: it is no record.
    """
    return _DECODER.decode(line)
