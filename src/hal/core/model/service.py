"""Services: jobs that serve others while they run. When a task counts as ready, when it is restarted, its ports, and
which job it replaces.

Pure. What the answers to probes mean is decided by `hal.core.lifecycle.readiness`, what follows from the end of an
attempt by `hal.core.lifecycle.outcome`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from hal.core.model.errors import SpecError, shown
from hal.core.model.units import MAX_AMOUNT, Duration

MAX_PORTS: Final = 16
"""Ports of one job."""
MAX_PORT: Final = 65_535
LEAST_PORT: Final = 1_024
"""Smallest port that a job may ask for: those below belong to root."""
MAX_PROBE_BYTES: Final = 4_096
"""Longest path, or command with its arguments, of a probe."""
MAX_PROBE_WORDS: Final = 64
SHORTEST_INTERVAL_MS: Final = 1_000
LONGEST_INTERVAL_MS: Final = 3_600_000
SHORTEST_TIMEOUT_MS: Final = 100
LONGEST_TIMEOUT_MS: Final = 60_000
MAX_IN_A_ROW: Final = 100
"""Answers in a row that change whether a task is ready."""
DEFAULT_RESTARTS: Final = 5
"""Restarts of a task within the window, where a service says nothing of retries."""
SHORTEST_WINDOW_MS: Final = 1_000
LONGEST_WINDOW_MS: Final = 30 * 86_400_000
SHORTEST_DEADLINE_MS: Final = 1_000
LONGEST_DEADLINE_MS: Final = 86_400_000

_PORT_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_CONTROL: Final = re.compile(r"[\u0000-\u0020\u007f-\u009f]")


class Restart(StrEnum):
    """After which ends a task of a service runs again."""

    ALWAYS = "always"
    """Whatever its exit code is, and after its walltime."""
    ON_FAILURE = "on-failure"
    """After a failure."""
    NEVER = "never"


class ProbeKind(StrEnum):
    """How a task is asked whether it can serve."""

    HTTP = "http"
    """A GET request to its port is answered with a status from 200 to 399."""
    TCP = "tcp"
    """Its port accepts a connection."""
    COMMAND = "command"
    """A command inside the step exits with 0."""


class Readiness(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How it is found out, on the task's node, whether the task can serve: exactly one of http, tcp and command."""

    http: Annotated[str, Meta(description="path of a GET request to the port; ready: a status from 200 to 399")] = ""
    tcp: Annotated[bool, Meta(description="ready: the port accepts a connection")] = False
    command: Annotated[
        tuple[str, ...], Meta(description="program and arguments, run inside the step; ready: it exits with 0")
    ] = ()
    port: Annotated[str, Meta(description="name of the port that http and tcp ask; unset: the only one")] = ""
    interval: Annotated[Duration, Meta(description="between two probes")] = Duration(10_000)
    timeout: Annotated[Duration, Meta(description="a probe without an answer by then has failed")] = Duration(2_000)
    successes: Annotated[int, Meta(ge=1, le=MAX_IN_A_ROW, description="in a row that make it ready")] = 1
    failures: Annotated[int, Meta(ge=1, le=MAX_IN_A_ROW, description="in a row after which it is not ready")] = 3

    @property
    def kind(self) -> ProbeKind:
        """Which of the three it is, of one that was checked."""
        return ProbeKind.HTTP if self.http else ProbeKind.TCP if self.tcp else ProbeKind.COMMAND


class Replacement(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The service whose place a job takes, task by task."""

    job: Annotated[int, Meta(ge=1, le=MAX_AMOUNT, description="id of the job that is replaced")]
    max_unavailable: Annotated[
        int, Meta(ge=0, le=MAX_AMOUNT, description="ready tasks that may be missing: so many old ones make room")
    ] = 0
    give_up_after: Annotated[Duration, Meta(description="given up when no further task became ready for so long")] = (
        Duration(300_000)
    )


class Service(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a job is beside its tasks if it serves others while it runs."""

    restart: Annotated[Restart, Meta(description="after which ends a task runs again; `retries` says how often")] = (
        Restart.ALWAYS
    )
    window: Annotated[
        Duration,
        Meta(description="a task is restarted at most `retries.max` times within this time; then it has failed"),
    ] = Duration(600_000)
    ports: Annotated[
        dict[str, Annotated[int, Meta(ge=0, le=MAX_PORT)]],
        Meta(description="TCP ports by name; 0: the node chooses a free one. The task sees each as HAL_PORT_NAME"),
    ] = {}
    readiness: Annotated[
        Readiness | None, Meta(description="how its tasks are asked whether they are ready; unset: when they run")
    ] = None
    replaces: Annotated[
        Replacement | None, Meta(description="the service whose place it takes; `hal replace` sets it")
    ] = None


def parse_port(text: str) -> tuple[str, int]:
    """Parse `http` (the node chooses) or `http=8080`.

    Raises:
        SpecError: neither.
    """
    name, equals, number = text.partition("=")
    if equals and not (number.isascii() and number.isdigit() and len(number) <= len(str(MAX_PORT))):
        raise SpecError(f"service.ports: '{shown(text)}' is not NAME or NAME=NUMBER", hint="write http, or http=8080")
    return name.strip(), int(number) if equals else 0


def parse_probe(text: str) -> dict[str, Any]:
    """Parse `http:/healthz`, `http:admin/healthz` (of port `admin`), `tcp`, `tcp:admin`, `command:TEXT for a shell`:
    plain data of a `Readiness`.

    Raises:
        SpecError: none of these.
    """
    kind, colon, rest = text.partition(":")
    if kind == ProbeKind.HTTP:
        port, slash, path = rest.partition("/")
        return {"http": f"/{path}" if slash else "/"} | ({"port": port} if port else {})
    if kind == ProbeKind.TCP:
        return {"tcp": True} | ({"port": rest} if colon else {})
    if kind == ProbeKind.COMMAND and rest.strip():
        return {"command": ["/bin/sh", "-c", rest]}
    raise SpecError(
        f"service.readiness: '{shown(text)}' is no probe",
        hint="write http:/PATH, tcp or command:TEXT, such as tcp:http",
    )


def loosened_service(raw: object) -> object:
    """Convert what people write to the declared form: `true`, ports as a list, a probe as text."""
    if raw is True:
        return {}
    if not isinstance(raw, Mapping):
        return raw
    out = dict(raw)
    ports = out.get("ports")
    if isinstance(ports, str):
        ports = [ports]
    if isinstance(ports, list | tuple) and all(isinstance(one, str) for one in ports):
        named = [parse_port(one) for one in ports]
        if len({name for name, _ in named}) < len(named):
            raise SpecError("service.ports: a name is given twice")
        out["ports"] = dict(named)
    if isinstance(out.get("readiness"), str):
        out["readiness"] = parse_probe(out["readiness"])
    return out


def check_service(service: Service) -> None:
    """Check that its parts are well formed and fit together.

    Raises:
        SpecError: names the field and what to write instead.
    """
    if len(service.ports) > MAX_PORTS:
        raise SpecError(f"service.ports: {len(service.ports)}; at most {MAX_PORTS} are allowed")
    for name, number in service.ports.items():
        if not _PORT_NAME.fullmatch(name):
            raise SpecError(
                f"service.ports: '{shown(name)}' is not the name of a port",
                hint="a small letter, then small letters, digits, _ and -, at most 32",
            )
        if 0 < number < LEAST_PORT:
            raise SpecError(
                f"service.ports.{name}: {number} belongs to root", hint=f"from {LEAST_PORT} on, or 0 for any free one"
            )
    variables = [port_variable(name) for name in service.ports]
    if len(set(variables)) < len(variables):
        raise SpecError("service.ports: two names differ only in - and _, which variables do not show")
    _check_within("window", service.window, SHORTEST_WINDOW_MS, LONGEST_WINDOW_MS)
    if service.replaces is not None:
        _check_within(
            "replaces.give_up_after", service.replaces.give_up_after, SHORTEST_DEADLINE_MS, LONGEST_DEADLINE_MS
        )
    if service.readiness is not None:
        _check_readiness(service.readiness, service.ports)


def port_variable(name: str) -> str:
    """The variable in which a task finds the port of that name."""
    return f"HAL_PORT_{name.upper().replace('-', '_')}"


def _check_readiness(probe: Readiness, ports: Mapping[str, int]) -> None:
    given = [name for name in ("http", "tcp", "command") if getattr(probe, name)]
    if len(given) != 1:
        what = " and ".join(given) or "none of http, tcp and command"
        raise SpecError(f"service.readiness: {what} given", hint="a probe is exactly one of the three")
    if probe.command:
        if probe.port:
            raise SpecError("service.readiness.port: a command is asked at no port", hint="leave it out")
        if not probe.command[0]:
            raise SpecError("service.readiness.command: the program's name is empty")
        size = sum(len(word.encode(errors="surrogatepass")) for word in probe.command)
        if size > MAX_PROBE_BYTES or len(probe.command) > MAX_PROBE_WORDS:
            raise SpecError(
                f"service.readiness.command: more than {MAX_PROBE_WORDS} words, or {MAX_PROBE_BYTES} bytes together",
                hint="put it into a script",
            )
        if any("\0" in word or not _is_unicode(word) for word in probe.command):
            raise SpecError("service.readiness.command: a word cannot be passed to a program")
    elif probe.port and probe.port not in ports:
        raise SpecError(
            f"service.readiness.port: the service has no port '{shown(probe.port)}'",
            hint=f"its ports: {', '.join(ports) or 'none; name one in `ports`'}",
        )
    elif not probe.port and len(ports) != 1:
        hint = "name one of them in `port`" if ports else "name it in `ports`"
        raise SpecError(f"service.readiness: which port is asked? The service has {len(ports)}", hint=hint)
    if probe.http and (not probe.http.startswith("/") or len(probe.http) > MAX_PROBE_BYTES):
        raise SpecError(f"service.readiness.http: '{shown(probe.http)}' is no path", hint="begin it with /")
    if _CONTROL.search(probe.http) or not probe.http.isascii():
        raise SpecError("service.readiness.http: a path is ASCII without spaces", hint="write others as %20")
    _check_within("readiness.interval", probe.interval, SHORTEST_INTERVAL_MS, LONGEST_INTERVAL_MS)
    _check_within("readiness.timeout", probe.timeout, SHORTEST_TIMEOUT_MS, LONGEST_TIMEOUT_MS)


def _check_within(field: str, value: Duration, low_ms: int, high_ms: int) -> None:
    if not low_ms <= value <= high_ms:
        raise SpecError(f"service.{field}: {value} is out of range", hint=f"{Duration(low_ms)} to {Duration(high_ms)}")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
