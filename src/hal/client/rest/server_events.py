"""Server-sent events, read from bytes as they come (WHATWG HTML, section 9.2.6).

Pure: no socket; lines may be cut anywhere between two calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hal.core.model.errors import InternalError

MAX_EVENT_BYTES = 8 << 20
"""A longer event is a fault of the sender."""
LINE_BYTES = 64
"""What a line counts beside its text, so that an event of empty lines has an end, too."""


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event of a stream."""

    data: str
    event: str = "message"
    id: str = ""


class EventReader:
    """Feed it bytes; it gives whole events."""

    def __init__(self) -> None:
        self._rest = bytearray()
        """Of a line whose end has not come."""
        self._data: list[str] = []
        self._event = ""
        self._held_bytes = 0
        self.last_id = ""
        """Of the last whole event; what a stream is resumed from."""

    def feed(self, chunk: bytes) -> Iterator[ServerEvent]:
        """Events that became whole with these bytes.

        Raises:
            InternalError: one event is longer than `MAX_EVENT_BYTES`.
        """
        if self._held_bytes + len(self._rest) + len(chunk) > MAX_EVENT_BYTES:
            raise InternalError(f"an event of the feed is longer than {MAX_EVENT_BYTES} bytes")
        self._rest += chunk
        if b"\n" not in chunk:
            return
        lines = self._rest.replace(b"\r\n", b"\n").split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            event = self._line(line.rstrip(b"\r").decode(errors="replace"))
            if event is not None:
                yield event

    def _line(self, line: str) -> ServerEvent | None:
        if not line:
            event = ServerEvent("\n".join(self._data), self._event or "message", self.last_id) if self._data else None
            self._data, self._event, self._held_bytes = [], "", 0
            return event
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
            self._held_bytes += len(value) + LINE_BYTES
        elif name == "event":
            self._event = value
        elif name == "id" and "\0" not in value:
            self.last_id = value
        return None
