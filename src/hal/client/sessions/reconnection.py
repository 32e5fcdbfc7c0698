"""What a client of a durable session keeps to come back to a broker that was lost, and how it does."""

from __future__ import annotations

import time
from typing import Final

from hal.client.sessions.broker_connection import connect
from hal.core.model.errors import HALError, UnreachableError
from hal.runtime.frame_link import FrameLink
from hal.runtime.session_file import SessionFile
from hal.wire.frames.sessions import (
    MAX_CANCELLED,
    AcknowledgeResults,
    KeptTasks,
    SessionFrame,
    StoreObject,
    SubmitTasks,
    TaskResults,
)

RECONNECT_S: Final = 60.0
"""How long a lost broker is dialled again."""
PAUSE_S: Final = 0.05


class Reconnection:
    """Of one client.

    Attributes:
        key: with which it comes back.
        objects: all that it has sent and not dropped.
        blocks: all that are not answered, by their first task.
    """

    def __init__(self, key: str) -> None:
        self.key = key
        self.objects: dict[int, list[StoreObject]] = {}
        self.blocks: dict[int, SubmitTasks] = {}
        self._received: dict[int, set[int]] = {}
        """Indexes of results of blocks that are not all answered."""
        self._acknowledged: list[tuple[int, int]] = []

    def read_kept(self, link: FrameLink[SessionFrame]) -> list[KeptTasks]:
        """Receive what the broker says first.

        Raises:
            UnreachableError: the connection broke.
        """
        found: list[KeptTasks] = []
        while not found or found[-1].more:
            frames = link.receive()
            if not frames:
                raise UnreachableError("the broker closed the connection")
            for position, frame in enumerate(frames):
                if not isinstance(frame, KeptTasks):
                    link.put_back(frames[position:])
                    return found
                found.append(frame)
        return found

    def dial_again(self, session: SessionFile, number: int, reason: str) -> tuple[FrameLink[SessionFrame] | None, str]:
        """Connect again; returns None, and why, if that failed.

        Args:
            reason: why the connection broke.
        """
        deadline = time.monotonic() + RECONNECT_S
        while time.monotonic() < deadline:
            try:
                link, opened = connect(session, client=self.key)
                if opened.number != number:
                    return None, "the broker does not know this client any more"
                if self._were_told_to_another(self.read_kept(link)):
                    link.close()
                    return None, "another process has received results of this client"
            except UnreachableError:
                time.sleep(PAUSE_S)
            except HALError as error:
                return None, str(error)
            else:
                return link, ""
        return None, reason

    def _were_told_to_another(self, kept: list[KeptTasks]) -> bool:
        """Whether the broker has answered all of a block whose results have not all arrived here."""
        left = {block for frame in kept for block, _, _ in frame.tasks}
        sent = list(self.blocks)  # other threads submit meanwhile
        return any(first < kept[-1].next_task and first not in left for first in sent)

    def frames_again(self) -> list[SessionFrame]:
        """What the broker may not have."""
        objects = [piece for pieces in self.objects.values() for piece in pieces]
        return [*objects, *(self.blocks[first] for first in sorted(self.blocks))]

    def is_new(self, frame: TaskResults, known: bool) -> bool:
        """Whether results were not received before; they are acknowledged in any case.

        Args:
            known: their block is not all answered.
        """
        self._acknowledged.append((frame.block, frame.index))
        if not known:
            return False
        received = self._received.setdefault(frame.block, set())
        if frame.index in received:
            return False
        received.add(frame.index)
        return True

    def forget(self, block: int) -> None:
        """A block is all answered."""
        self.blocks.pop(block, None)
        self._received.pop(block, None)

    def take_acknowledgements(self) -> list[AcknowledgeResults]:
        """Frames for the results that were received since."""
        told, self._acknowledged = self._acknowledged, []
        return [
            AcknowledgeResults(results=tuple(told[at : at + MAX_CANCELLED]))
            for at in range(0, len(told), MAX_CANCELLED)
        ]
