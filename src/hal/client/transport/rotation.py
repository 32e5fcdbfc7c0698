"""Which of several controllers is asked, and for how long they are tried.

Any of them answers: a follower passes on what it cannot answer itself. All clients of this process first ask the one
that answered last.
"""

from __future__ import annotations

import threading
from typing import Final

from hal.client.addresses.address import StartingError
from hal.client.addresses.endpoints import Endpoint
from hal.client.transport.backoff import Backoff
from hal.core.model.errors import UnreachableError

TAKEOVER_S: Final = 8.0
"""So long several controllers are tried in turn before one has ever answered: another takes over within seconds."""
STARTING_S: Final = 10.0
"""So long a controller of this machine is waited for that says that it is starting: mostly it takes a second or two."""
MAX_REMEMBERED: Final = 64
"""Groups of controllers of which it is remembered which one answered."""

_ANSWERED: Final[dict[tuple[Endpoint, ...], int]] = {}
_LOCK: Final = threading.Lock()


class Rotation:
    """Which of several controllers is asked. Thread-safe."""

    def __init__(self, endpoints: tuple[Endpoint, ...]) -> None:
        self.endpoints = endpoints
        self._at = _ANSWERED.get(endpoints, 0)

    @property
    def current(self) -> Endpoint | None:
        """The one to ask; None: a HAL of this machine, over its socket."""
        return self.endpoints[self._at] if self.endpoints else None

    def answered(self, endpoint: Endpoint | None) -> None:
        """It did."""
        if len(self.endpoints) < 2 or endpoint is None:
            return
        with _LOCK:
            if len(_ANSWERED) >= MAX_REMEMBERED:
                _ANSWERED.clear()
            _ANSWERED[self.endpoints] = self.endpoints.index(endpoint)

    def failed(self, endpoint: Endpoint | None) -> None:
        """It did not: the next one, unless another request has gone on already."""
        with _LOCK:
            if endpoint is not None and endpoint == self.current:
                self._at = (self._at + 1) % len(self.endpoints)


class Search:
    """The tries of one request, over all controllers and again, as long as that is worth while."""

    def __init__(self, rotation: Rotation, *, answered: bool, reconnect_s: float) -> None:
        """
        Args:
            answered: a controller has answered this client before: it is waited for.
        """
        self._rotation = rotation
        several = len(rotation.endpoints) > 1
        self._dialling = Backoff(reconnect_s if answered else min(TAKEOVER_S, reconnect_s) if several else 0.0)
        self._starting = Backoff(min(STARTING_S, reconnect_s))
        self._broken = Backoff(reconnect_s)
        self._round: set[Endpoint] = set()
        self._why: dict[Endpoint, UnreachableError] = {}

    def failed(
        self, endpoint: Endpoint | None, error: UnreachableError, now_s: float, *, reached: bool = False
    ) -> float | None:
        """Seconds to wait before the next try, which is of the next controller; None when it is time to give up.

        Args:
            now_s: a monotonic clock.
            reached: a controller was reached, and then lost.
        """
        self._rotation.failed(endpoint)
        if reached:
            return self._broken.failed(now_s)
        if endpoint is not None:
            self._why[endpoint] = error
            self._round.add(endpoint)
            if len(self._round) < len(self._rotation.endpoints):
                return 0.0
            self._round.clear()
        delay_s = self._dialling.failed(now_s)
        return self._starting.failed(now_s) if delay_s is None and isinstance(error, StartingError) else delay_s

    def error(self, last: UnreachableError) -> UnreachableError:
        """Why none answered."""
        if len(self._why) < 2:
            return last
        each = "; ".join(f"{endpoint.url}: {error.message}" for endpoint, error in self._why.items())
        return UnreachableError(f"none of {len(self._rotation.endpoints)} controllers answers: {each}", hint=last.hint)
