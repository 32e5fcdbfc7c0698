"""Meetings at this host's relay, for streams whose client cannot reach the node: who asks is told the port."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from hal.core.model import ConflictError, UnreachableError
from hal.daemons.controller.config_sections import RelayMode
from hal.runtime.interface import Runtime
from hal.runtime.started_service import StartedService


class _Answer(Struct, frozen=True):
    port: int = 0
    error: str = ""


class StreamRelays(Struct, frozen=True):
    """The relay of this host."""

    service: StartedService | None
    """None: this process has none."""
    mode: RelayMode = RelayMode.AUTO

    async def arrange(self, runtime: Runtime, meeting: str, by: str) -> int:
        """Let two meet; returns the TCP port of this host to which they come.

        Raises:
            ConflictError: nothing is relayed here, or no more.
            UnreachableError: the relay does not answer.
        """
        if self.service is None or self.mode is RelayMode.NEVER:
            raise ConflictError("streams are not relayed by this HAL", hint='server.relay = "auto" in hal.toml')
        line = msgspec.json.encode({"meeting": meeting, "by": by}) + b"\n"
        try:
            answer = msgspec.json.decode(await self.service.ask(runtime, line), type=_Answer)
        except msgspec.DecodeError:
            raise UnreachableError("the relay of streams answers nonsense", hint="see its log") from None
        if answer.error:
            raise ConflictError(answer.error, hint="server.relay_port in hal.toml says at which port it listens")
        return answer.port
