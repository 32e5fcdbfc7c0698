"""Controllers on the network: how their URLs are written, and which of several is asked.

Any of them answers: one that follows passes on what it cannot answer itself. The one that answered last is asked first,
by all clients of this process.
"""

from __future__ import annotations

import threading
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from hal.client.backoff import Backoff
from hal.core.model.errors import SpecError, UnreachableError, shown

DEFAULT_PORT: Final = 4250
"""Of `hal up --tcp` and of URLs that name none."""
MAX_PLACES: Final = 16
TAKEOVER_S: Final = 8.0
"""So long several controllers are tried in turn before one has ever answered: another takes over within seconds."""
MAX_REMEMBERED: Final = 64
"""Groups of controllers of which it is remembered which one answered."""
SCHEMES: Final = ("http", "https")


class Place(NamedTuple):
    """One controller."""

    host: str
    port: int
    tls: bool = False

    @property
    def name(self) -> str:
        """What goes into the Host header."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{SCHEMES[self.tls]}://{self.name}"


def read_places(text: str) -> tuple[Place, ...]:
    """The controllers that URLs name, separated by commas.

    Raises:
        SpecError: one is no URL, there are too many, or some would be spoken to without TLS.
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not 1 <= len(parts) <= MAX_PLACES:
        raise SpecError(f"url: {len(parts)} URLs", hint=f"between 1 and {MAX_PLACES}")
    places = tuple(dict.fromkeys(_place(part) for part in parts))
    if len({place.tls for place in places}) > 1:
        # Whoever can keep the one with TLS from answering would be sent the token in plain text.
        raise SpecError("url: some with TLS and some without", hint="write https:// before each")
    return places


def _place(text: str) -> Place:
    try:
        parts = urlsplit(text)
        port = DEFAULT_PORT if parts.port is None else parts.port
    except ValueError:
        port = 0
    if not port or parts.scheme not in SCHEMES or not parts.hostname or parts.path not in ("", "/") or "@" in text:
        raise SpecError(
            f"url: '{shown(text)}' is not the address of a HAL",
            hint="write https://HOST:PORT, several with commas between, or unix:///PATH",
        )
    return Place(parts.hostname, port, parts.scheme == "https")


_ANSWERED: Final[dict[tuple[Place, ...], int]] = {}
_LOCK: Final = threading.Lock()


class Rotation:
    """Which of several controllers is asked. Thread-safe."""

    def __init__(self, places: tuple[Place, ...]) -> None:
        self.places = places
        self._at = _ANSWERED.get(places, 0)

    @property
    def current(self) -> Place | None:
        """The one to ask; None: a HAL of this machine, over its socket."""
        return self.places[self._at] if self.places else None

    def answered(self, place: Place | None) -> None:
        """It did."""
        if len(self.places) < 2 or place is None:
            return
        with _LOCK:
            if len(_ANSWERED) >= MAX_REMEMBERED:
                _ANSWERED.clear()
            _ANSWERED[self.places] = self.places.index(place)

    def failed(self, place: Place | None) -> None:
        """It did not: the next one, unless another request has gone on already."""
        with _LOCK:
            if place is not None and place == self.current:
                self._at = (self._at + 1) % len(self.places)


class Search:
    """The tries of one request, over all controllers and again, as long as that is worth while."""

    def __init__(self, rotation: Rotation, *, answered: bool, reconnect_s: float) -> None:
        """
        Args:
            answered: a controller has answered this client before: it is waited for.
        """
        self._rotation = rotation
        several = len(rotation.places) > 1
        self._dialling = Backoff(reconnect_s if answered else min(TAKEOVER_S, reconnect_s) if several else 0.0)
        self._broken = Backoff(reconnect_s)
        self._round: set[Place] = set()
        self._why: dict[Place, UnreachableError] = {}

    def failed(
        self, place: Place | None, error: UnreachableError, now_s: float, *, reached: bool = False
    ) -> float | None:
        """Seconds to wait before the next try, which is of the next controller; None when it is time to give up.

        Args:
            now_s: a monotonic clock.
            reached: a controller was reached, and then lost.
        """
        self._rotation.failed(place)
        if reached:
            return self._broken.failed(now_s)
        if place is not None:
            self._why[place] = error
            self._round.add(place)
            if len(self._round) < len(self._rotation.places):
                return 0.0
            self._round.clear()
        return self._dialling.failed(now_s)

    def error(self, last: UnreachableError) -> UnreachableError:
        """Why none answered."""
        if len(self._why) < 2:
            return last
        each = "; ".join(f"{place.url}: {error.message}" for place, error in self._why.items())
        return UnreachableError(f"none of {len(self._rotation.places)} controllers answers: {each}", hint=last.hint)
