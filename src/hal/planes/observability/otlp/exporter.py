"""Sends requests of OTLP to a receiver: a bounded queue, again after pauses that grow; what does not fit is counted."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Final

from hal.core.model import HALError
from hal.core.model.log_config import OtlpSection
from hal.runtime.http_post import post_bytes
from hal.runtime.interface import Runtime
from hal.runtime.uninterrupted import uninterrupted

MAX_WAITING_BYTES: Final = 16 << 20
FIRST_PAUSE_MS: Final = 500
LONGEST_PAUSE_MS: Final = 60_000
IDLE_MS: Final = 500
CONTENT: Final = "application/x-protobuf"
AGAIN: Final = frozenset({408, 429, 502, 503, 504})
"""Answers of OTLP that ask to try again; others with an error are final."""


class OtlpExporter:
    """To one receiver. `run` is one task."""

    def __init__(self, runtime: Runtime, section: OtlpSection, lane: str) -> None:
        """
        Args:
            lane: of the thread that sends.
        """
        self._runtime, self._section, self._lane = runtime, section, lane
        self._waiting: deque[tuple[bytes, int]] = deque()
        self._waiting_bytes = 0
        self.sent = self.dropped = 0
        """Spans or lines."""
        self.failure = ""
        """Why the last request was not taken; empty: it was."""

    @property
    def wanted(self) -> bool:
        """Whether there is a receiver."""
        return bool(self._section.endpoint)

    def put(self, request: bytes, count: int) -> None:
        """Send a request with so many spans or lines, soon; the oldest that wait make room."""
        self._waiting.append((request, count))
        self._waiting_bytes += len(request)
        while self._waiting_bytes > MAX_WAITING_BYTES:
            lost, of = self._waiting.popleft()
            self._waiting_bytes -= len(lost)
            self.dropped += of

    async def run(self) -> None:
        """Send until cancelled."""
        pause_ms = FIRST_PAUSE_MS
        while True:
            if not self._waiting:
                await self._runtime.sleep(IDLE_MS)
                continue
            again, wait_ms = await uninterrupted(self._send_first())
            if again:
                await self._runtime.sleep(max(pause_ms, wait_ms))
                pause_ms = min(2 * pause_ms, LONGEST_PAUSE_MS)
            else:
                pause_ms = FIRST_PAUSE_MS

    async def _send_first(self) -> tuple[bool, int]:
        """Send the oldest request; whether it is to be sent again, and after how long."""
        first = self._waiting[0]
        again, wait_ms = await self._post(first[0])
        if again:
            return True, wait_ms
        if self._waiting and self._waiting[0] is first:
            self._waiting.popleft()
            self._waiting_bytes -= len(first[0])
        if self.failure:
            self.dropped += first[1]
        else:
            self.sent += first[1]
        return False, 0

    async def _post(self, request: bytes) -> tuple[bool, int]:
        """Whether to send it again, and after how long."""
        section = self._section
        headers = {"Content-Type": CONTENT, **section.headers}
        post = partial(post_bytes, section.endpoint, request, headers, authorities=section.authorities)
        try:
            status, wait_s = await self._runtime.run_blocking(post, self._lane)
        except HALError as error:
            self.failure = error.message
            return True, 0
        self.failure = "" if 200 <= status < 300 else f"the receiver answers with status {status}"
        return status in AGAIN, wait_s * 1_000
