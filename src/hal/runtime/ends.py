"""How listeners and diallers create one end of a connection: frames of a conversation, or a byte stream."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from hal.wire.connection import FrameConnection
from hal.wire.frames.conversation import Conversation
from hal.wire.transport_end import FaultHook, Hook, TransportEnd

E = TypeVar("E", bound=TransportEnd)
E_co = TypeVar("E_co", bound=TransportEnd, covariant=True)


class MakeEnd(Protocol[E_co]):
    """Creates an end; the hooks are those of `TransportEnd`."""

    def __call__(
        self,
        label: str,
        *,
        on_open: Hook | None = None,
        on_closed: Hook | None = None,
        on_fault: FaultHook | None = None,
    ) -> E_co: ...


def frame_ends(conversation: Conversation[Any]) -> MakeEnd[FrameConnection]:
    """Ends that carry frames of this conversation."""

    def make(
        label: str,
        *,
        on_open: Hook | None = None,
        on_closed: Hook | None = None,
        on_fault: FaultHook | None = None,
    ) -> FrameConnection:
        return FrameConnection(label, conversation, on_open=on_open, on_closed=on_closed, on_fault=on_fault)

    return make
