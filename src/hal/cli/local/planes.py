"""The planes beside the controller: which run, and how they are."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import urlsplit

import msgspec

from hal.cli.local.processes import LOOK_EVERY_S, Plane
from hal.cli.local.supervision import Tried, plane_sections, read_note
from hal.core.model import SpecError
from hal.core.model.printable import printable
from hal.core.model.supervision_config import PlaneSection
from hal.runtime.home import Home

HEALTH_PATH: Final = "/v1/health"
HEALTH_S: Final = 2.0
"""How long a plane may take to say how it is."""
MAX_HEALTH_BYTES: Final = 1 << 20
MAX_WARNINGS: Final = 20
"""Of one plane that are shown."""
MAX_TEXT: Final = 300
WORKS_S: Final = 30.0
"""How long `hal up` waits for planes to work."""


class PlaneWarning(msgspec.Struct, frozen=True):
    """What a plane warns of."""

    what: str
    do: str = ""


class PlaneAnswer(msgspec.Struct, frozen=True):
    """What a plane may say of itself in its answer about its health."""

    summary: str = ""
    warnings: tuple[PlaneWarning, ...] = ()


class PlaneStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One plane, as `hal status` shows it."""

    name: str
    state: str
    """`running`, `unhealthy`, `ended`."""
    pid: int | None = None
    restarts: int = 0
    reason: str = ""
    """Why it is not running, or what it answered."""
    summary: str = ""
    """What it says of itself, in a line."""
    warnings: tuple[PlaneWarning, ...] = ()
    """And what it warns of."""

    @property
    def works(self) -> bool:
        """Whether nothing need be done about it."""
        return self.state == "running"


def declared_planes(home: Home, names: Sequence[str]) -> tuple[str, ...]:
    """The names, each once.

    Raises:
        SpecError: one is not declared in hal.toml; or the file is malformed.
    """
    declared = plane_sections(home)
    for name in names:
        if name not in declared:
            known = f"there are: {', '.join(sorted(declared))}"
            raise SpecError(
                f"--with: there is no plane '{name}' in {home.config}",
                hint=f"{known}; declare it: [supervision.planes.{name}] command = [...]",
            )
    return tuple(dict.fromkeys(names))


def plane_states(home: Home, names: Sequence[str]) -> list[PlaneStatus]:
    """How they are now; asks each that says where it answers.

    Raises:
        SpecError: hal.toml is malformed.
    """
    declared, tried = plane_sections(home), read_note(home).processes
    return [_state(home, name, declared.get(name), tried.get(f"plane-{name}", Tried())) for name in names]


def wait_for_planes(home: Home, names: Sequence[str], show: Callable[[str], None]) -> list[PlaneStatus]:
    """How they are once all of them work, or after WORKS_S."""
    deadline_s = time.monotonic() + WORKS_S
    while True:
        found = plane_states(home, names)
        missing = [one.name for one in found if not one.works]
        if not missing or time.monotonic() >= deadline_s:
            return found
        show(f"waiting for {', '.join(missing)}")
        time.sleep(LOOK_EVERY_S)


def _state(home: Home, name: str, section: PlaneSection | None, tried: Tried) -> PlaneStatus:
    restarts = max(0, tried.starts - 1)
    if section is None:
        return PlaneStatus(name=name, state="ended", reason="it is not declared in hal.toml any more")
    identity = Plane(home, name).identity
    if identity is None:
        return PlaneStatus(name=name, state="ended", restarts=restarts, reason=tried.ended)
    wrong, said = _asked(home, section.health) if section.health else ("", PlaneAnswer())
    return PlaneStatus(
        name=name,
        state="unhealthy" if wrong else "running",
        pid=identity.pid,
        restarts=restarts,
        reason=wrong,
        summary=said.summary,
        warnings=said.warnings,
    )


def read_answer(body: bytes) -> PlaneAnswer:
    """What a plane says of itself, as far as it is said in words known here; short, and harmless on a terminal."""
    try:
        said = msgspec.json.decode(body, type=PlaneAnswer)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return PlaneAnswer()
    return PlaneAnswer(
        summary=printable(said.summary)[:MAX_TEXT],
        warnings=tuple(
            PlaneWarning(printable(one.what)[:MAX_TEXT], printable(one.do)[:MAX_TEXT])
            for one in said.warnings[:MAX_WARNINGS]
        ),
    )


def health_of(home: Home, where: str) -> str:
    """What is wrong with a plane that answers there; '' if nothing is."""
    return _asked(home, where)[0]


def _asked(home: Home, where: str) -> tuple[str, PlaneAnswer]:
    """What is wrong with it, '' if nothing is; and what it says of itself, if it says that in words known here."""
    connection = _connection(home, where)
    try:
        connection.request("GET", HEALTH_PATH)
        answer = connection.getresponse()
        if answer.status != http.HTTPStatus.OK:
            return f"it answers {answer.status} {answer.reason}", PlaneAnswer()
        body = answer.read(MAX_HEALTH_BYTES)
    except (OSError, http.client.HTTPException) as error:
        return f"it does not answer: {error or type(error).__name__}", PlaneAnswer()
    finally:
        connection.close()
    return "", read_answer(body)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=HEALTH_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(HEALTH_S)
        self.sock.connect(self._path)


def _connection(home: Home, where: str) -> http.client.HTTPConnection:
    if not where.startswith("http://"):
        return _UnixConnection(str((home.known_socket_dir() or home.run_dir) / where))
    parts = urlsplit(where)
    return http.client.HTTPConnection(parts.hostname or "localhost", parts.port, timeout=HEALTH_S)
