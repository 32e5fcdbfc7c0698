"""What helpers tell their keeper, decoded: `helper_process.keeper_link` is the other end.

A helper that serves a user is that user's process. So every number and text has bounds, a message that exceeds one is
no message of a helper, and what a message says about a step that its helper was not given is dropped.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from hal.daemons.agent.keeper.helper_journal import MAX_MARK, MAX_PID
from hal.wire.bounds import MAX_COUNT, Count

MAX_MESSAGES_BYTES: Final = 1 << 20
"""Of what a helper sends at once; it sends some kilobytes."""
MAX_TEXT: Final = 4_096
MAX_KEY: Final = 80
"""Characters of a step's id."""

Pid = Annotated[int, Meta(ge=1, le=MAX_PID)]
Key = Annotated[str, Meta(max_length=MAX_KEY)]
Text = Annotated[str, Meta(max_length=MAX_TEXT)]
Status = Annotated[int, Meta(ge=-64, le=255)]
Small = Annotated[int, Meta(ge=0, le=MAX_COUNT >> 10)]


class Greeting(Struct, array_like=True, frozen=True, gc=False, tag="R"):
    """It is ready."""

    pid: Pid
    moves: int = 1
    """Whether it can move into the cgroups of its steps by itself."""


class NoAccount(Struct, array_like=True, frozen=True, gc=False, tag="A"):
    """It serves nobody: this node does not know the user, or does not serve them."""

    message: Text


class Begun(Struct, array_like=True, frozen=True, gc=False, tag="P"):
    """A step's first process was spawned."""

    key: Key
    pid: Pid
    wall_ms: Count
    boot_ms: Count
    mark: Annotated[int, Meta(ge=0, le=MAX_MARK)]


class Finished(Struct, array_like=True, frozen=True, gc=False, tag="X"):
    """A step's first process has ended."""

    seq: Count
    key: Key
    status: Status
    wall_ms: Count
    numbers: tuple[Small, Small, Small, Small, Small]
    leftover: int
    heir: Key


class Failed(Struct, array_like=True, frozen=True, gc=False, tag="F"):
    """A step could not be spawned: its job's fault."""

    seq: Count
    key: Key
    code: Annotated[int, Meta(ge=0, le=255)]
    message: Text
    wall_ms: Count
    heir: Key


class NotSpawned(Struct, array_like=True, frozen=True, gc=False, tag="U"):
    """A step could not be spawned: this node's fault."""

    key: Key
    message: Text


class Returned(Struct, array_like=True, frozen=True, gc=False, tag="G"):
    """A step that waited has not begun, and will not."""

    key: Key


class Remark(Struct, array_like=True, frozen=True, gc=False, tag="N"):
    """For a step's exit report."""

    key: Key
    message: Text


class Echo(Struct, array_like=True, frozen=True, gc=False, tag="E"):
    """It was asked whether it still answers."""


class JournalFull(Struct, array_like=True, frozen=True, gc=False, tag="J"):
    """It must be replaced: its journal is long, and it may not rewrite it."""


Message = Greeting | NoAccount | Begun | Finished | Failed | NotSpawned | Returned | Remark | Echo | JournalFull

_decoder = msgspec.json.Decoder(list[Message])


def decode(data: bytes | bytearray | memoryview) -> list[Message]:
    """Decode what a helper has sent at once.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError: no helper writes that.
    """
    return _decoder.decode(data)
