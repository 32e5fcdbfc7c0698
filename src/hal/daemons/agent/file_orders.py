"""What a node's agent and its file service say to each other: one line of JSON each way, on a connection of its own."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec
from msgspec import Struct

from hal.core.model import StepId
from hal.core.model.bundle import FilesOrder

MAX_ORDER_BYTES: Final = 1 << 20
MAX_DROPPED: Final = 1_000
"""Directories that one order removes."""


class FilesAsk(StrEnum):
    """What is asked."""

    STAGE = "stage"
    """Have a step's directory ready."""
    COLLECT = "collect"
    """The step has ended: deliver what is collected of it, and remove its directory."""
    TAKEN = "taken"
    """The step was given the copy that was ready: make another one."""
    DROP = "drop"
    """Remove these directories; what is under way for them is given up."""


class FilesRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The agent's line."""

    ask: FilesAsk
    step: StepId | None = None
    user: str = ""
    order: FilesOrder = FilesOrder()
    succeeded: bool = False
    """Of a step that has ended: by itself, with exit code 0."""
    patience_ms: int = 0
    """How long the answer is waited for; a service that needs longer answers `waiting`, and is asked again."""
    names: tuple[str, ...] = ()
    """Of directories that are dropped."""


def encode_request(request: FilesRequest) -> bytes:
    """The line, with its newline."""
    return msgspec.json.encode(request) + b"\n"


def decode_request(line: bytes) -> FilesRequest:
    """
    Raises:
        msgspec.DecodeError: it is none.
    """
    return msgspec.json.decode(line, type=FilesRequest)
