"""A node that lies: whatever it is told to say goes onto a real controller's wire, within the wire's types or not."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from hal.core.model import StepId
from hal.runtime.interface import Address, Runtime
from hal.wire.codec import LENGTH_BYTES
from hal.wire.connection import FrameConnection
from hal.wire.frames.agent_keeper import Start
from hal.wire.frames.conversation import Frame
from hal.wire.frames.hello import Goodbye, Welcome

ANSWER_S = 10.0


def raw(**fields: Any) -> bytes:
    """A frame of these fields, whatever they are."""
    body = msgspec.msgpack.encode(fields)
    return len(body).to_bytes(LENGTH_BYTES, "little") + body


def exit_of(step: StepId, code: int = 0, signal: int = 0, **other: Any) -> list[Any]:
    """An exit as it is on the wire."""
    told = {"cause": "exited", "started": 1, "ended": 2, "usage": [1, 1, 1, 1, 1], "message": ""} | other
    return [step, told["cause"], code, signal, told["started"], told["ended"], told["usage"], told["message"]]


class LyingNode:
    """One connection of a node, by hand."""

    def __init__(self, runtime: Runtime, address: Address, name: str) -> None:
        self._runtime = runtime
        self._address = address
        self.name = name
        self.boot_id = f"boot-of-{name}"
        self.connection: FrameConnection | None = None
        self.heard: list[Frame] = []

    async def dial(self, **hello: Any) -> Frame | None:
        """Connect and say a hello with these fields; the answer."""
        connection = await self._runtime.connect(self._address)
        assert isinstance(connection, FrameConnection)
        self.connection = connection
        told: dict[str, Any] = {
            "t": "hello",
            "role": "agent",
            "versions": [1, 1],
            "name": self.name,
            "boot_id": self.boot_id,
            "capacity": {"cpu": 4_000, "memory": 8 << 30},
        }
        self.say(raw(**(told | hello)))
        answer = await connection.receive(timeout_ms=round(ANSWER_S * 1000))
        if isinstance(answer, Welcome):
            self.say(raw(t="heartbeat", stamp_boot_ms=1_000))
        return answer

    def say(self, data: bytes) -> None:
        """These bytes."""
        assert self.connection is not None
        assert self.connection.transport is not None
        self.connection.transport.write(data)

    async def starts(self, count: int = 1) -> list[StepId]:
        """Until so many steps were to be started here."""
        steps: list[StepId] = []
        async with asyncio.timeout(ANSWER_S):
            while len(steps) < count:
                frame = await self._next()
                assert frame is not None, self.connection and self.connection.close_reason
                if isinstance(frame, Start):
                    steps += (start.step for start in frame.steps)
        return steps

    async def ends(self) -> Goodbye | None:
        """Until the controller has closed the connection; its word, if there was one."""
        told = None
        async with asyncio.timeout(ANSWER_S):
            while (frame := await self._next()) is not None:
                if isinstance(frame, Goodbye):
                    told = frame
        return told

    async def _next(self) -> Frame | None:
        assert self.connection is not None
        frame = await self.connection.receive()
        if frame is not None:
            self.heard.append(frame)
        return frame

    def leave(self) -> None:
        """Close."""
        if self.connection is not None:
            self.connection.close()
