"""What the agent asks about a running step of its node: the keeper where it is, and the stream service to go there.

The service is started when it is first needed, and ends when it is idle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from hal.core.model import StepId
from hal.core.model.errors import TimedOutError, UnreachableError
from hal.runtime.interface import Runtime
from hal.runtime.started_service import ANSWER_MS, StartedService
from hal.wire.frames.agent_keeper import FindStep, StepFound
from hal.wire.frames.controller_agent import OpenStream
from hal.wire.frames.conversation import Frame

FIND_MS: Final = 5_000
"""How long the keeper may take to say where a step is."""
_NOT_ORDERED: Final = ("request", "error", "later", "service", "ports")
T = TypeVar("T")


class StreamPlaces(Struct, frozen=True, kw_only=True):
    """How streams are served on this node."""

    service: StartedService
    directory: Callable[[], str]
    """Where the sockets for clients are created; may raise HALError."""
    shared: bool
    """Clients may be other users of this host."""
    certificate: str = ""
    """Path of the node's certificate and key; empty: it has none, as it is on the controller's host."""
    own_certificate: Callable[[], str] = str
    """Makes one for streams alone where there is none, and returns its path; takes a while."""


class StepService:
    """The keeper and the stream service, as who asks them sees them."""

    def __init__(self, runtime: Runtime, places: StreamPlaces) -> None:
        self.places = places
        self._runtime = runtime
        self._finding: dict[int, asyncio.Future[StepFound]] = {}
        """By number of the request to the keeper."""
        self._asked = 0

    def found(self, frame: StepFound) -> None:
        """The keeper has answered."""
        waiting = self._finding.get(frame.request)
        if waiting is not None and not waiting.done():
            waiting.set_result(frame)

    async def find(self, step: StepId, send_to_keeper: Callable[[Frame], None]) -> StepFound:
        """Where the step is; its `error` says that it is nowhere.

        Raises:
            UnreachableError, TimedOutError: the keeper does not answer.
        """
        self._asked += 1
        number = self._asked
        waiting: asyncio.Future[StepFound] = asyncio.get_running_loop().create_future()
        self._finding[number] = waiting
        try:
            send_to_keeper(FindStep(request=number, step=step))
            async with asyncio.timeout(FIND_MS / 1000):
                return await waiting
        except TimeoutError:
            raise TimedOutError(f"the keeper did not say within {FIND_MS} ms where {step} is") from None
        finally:
            del self._finding[number]

    async def ask(self, order: bytes, kind: type[T], timeout_ms: int = ANSWER_MS) -> T:
        """Give the stream service an order; its answer.

        Raises:
            HALError: the service does not answer.
        """
        try:
            return msgspec.json.decode(await self.places.service.ask(self._runtime, order, timeout_ms), type=kind)
        except msgspec.DecodeError:
            raise UnreachableError("the stream service of this node answers nonsense", hint="see its log") from None


def order_line(
    frame: OpenStream,
    found: StepFound,
    *,
    certificate: str = "",
    relay_host: str = "",
    directory: str = "",
    shared: bool = False,
    **more: object,
) -> bytes:
    """An order for the stream service, as a line; see `keeper.stream_process.order`."""
    fields = {
        "step": str(frame.step),
        "job": frame.step.job,
        **{name: value for name, value in asdict(frame).items() if name not in ("request", "step")},
        **{name: value for name, value in asdict(found).items() if name not in _NOT_ORDERED},
        "relay_host": relay_host,
        "certificate": certificate,
        "directory": directory,
        "shared": shared,
        **more,
    }
    return msgspec.json.encode(fields) + b"\n"
