"""hal.toml: what is declared on this HAL and how its controller behaves. See docs/config.md.

Reading text is pure; the caller reads the file. An unknown field, or a value that makes no sense, stops the start with
one error that names it.
"""

from __future__ import annotations

import tomllib
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hal.core.engine.config import Backfill, EngineConfig
from hal.core.model import OnNodeLost, SpecError, convert
from hal.planes.tasks import DEFAULT_QUEUE, Queue, Site
from hal.store import Retention

MAX_CONFIG_BYTES = 1 << 20
MAX_QUEUES = 1_000
MAX_NAMES = 100_000
DEFAULT_REQUEST_BYTES = 16 << 20
DEFAULT_SLICE_WORK = 50_000
"""Work of one slice of scheduling: 2 ms or so on one core, so that reports and requests are never kept waiting long."""
MIN_SLICE_WORK = 100


class EngineSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[engine]`"""

    order: str = "fcfs"
    placement: str = "first-fit"
    backfill: Backfill = Backfill.EASY
    slice_work: int = DEFAULT_SLICE_WORK
    filters: tuple[str, ...] = ()
    """Row checks and candidates after which what came in meanwhile is looked at; a pass goes on where it was."""


class ServerSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[server]`"""

    tcp: str = ""
    """`HOST:PORT` or a port (then 127.0.0.1): also listen there, for holders of the token. Empty: Unix socket only."""
    max_request_bytes: int = DEFAULT_REQUEST_BYTES


class RetentionSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[retention]`"""

    events_days: int = 30
    events_count: int = 1_000_000


class ConfigFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    engine: EngineSection = EngineSection()
    server: ServerSection = ServerSection()
    retention: RetentionSection = RetentionSection()
    queues: dict[str, dict[str, Any]] = {}
    accounts: list[str] = []
    users: list[str] = []


class Config(Struct, frozen=True, kw_only=True):
    """What the controller is told to be."""

    engine: EngineConfig = EngineConfig(slice_work=DEFAULT_SLICE_WORK)
    site: Site = msgspec.field(default_factory=Site)
    tcp: tuple[str, int] | None = None
    max_request_bytes: int = DEFAULT_REQUEST_BYTES
    retention: Retention = Retention()


def read_config(text: str) -> Config:
    """The configuration in the text of hal.toml; an empty text gives the defaults.

    Raises:
        SpecError: not TOML, an unknown field, or a value out of range; names it.
    """
    if len(text) > MAX_CONFIG_BYTES:
        raise SpecError(f"hal.toml: longer than {MAX_CONFIG_BYTES} bytes")
    try:
        raw: dict[str, Any] = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise SpecError(f"hal.toml: not TOML: {error}") from error
    try:
        file = convert(raw, ConfigFile)
        return _checked(file)
    except SpecError as error:
        raise SpecError(f"hal.toml: {error.message}", hint=error.hint or "see docs/config.md") from error


def _checked(file: ConfigFile) -> Config:
    if len(file.queues) > MAX_QUEUES or max(len(file.accounts), len(file.users)) > MAX_NAMES:
        raise SpecError(f"at most {MAX_QUEUES} queues and {MAX_NAMES} names are allowed")
    if not 1 << 10 <= file.server.max_request_bytes <= 1 << 30:
        raise SpecError("server.max_request_bytes: out of range", hint="between 1024 and 1073741824")
    if file.engine.slice_work < MIN_SLICE_WORK:
        raise SpecError("engine.slice_work: out of range", hint=f"at least {MIN_SLICE_WORK}")
    if file.retention.events_days < 0 or file.retention.events_count < 0:
        raise SpecError("retention: a negative amount")
    queues = {DEFAULT_QUEUE: Queue()}
    for name, table in file.queues.items():
        queues[name] = _queue(name, table)
    return Config(
        engine=EngineConfig(
            order=file.engine.order,
            placement=file.engine.placement,
            backfill=file.engine.backfill,
            slice_work=file.engine.slice_work,
            filters=file.engine.filters,
        ),
        site=Site(queues=queues, accounts=tuple(file.accounts), users=tuple(file.users)),
        tcp=_address(file.server.tcp),
        max_request_bytes=file.server.max_request_bytes,
        retention=Retention(
            events_ms=file.retention.events_days * 86_400_000, events_count=file.retention.events_count
        ),
    )


def _queue(name: str, raw: dict[str, Any]) -> Queue:
    if "name" in raw:
        raise SpecError(f"queues.{name}.name: is given by the table's own name", hint="leave it out")
    try:
        table = convert(raw, Queue)
    except SpecError as error:
        raise SpecError(f"queues.{name}: {error.message}", hint=error.hint) from error
    if table.on_node_lost is OnNodeLost.REQUEUE:
        raise SpecError(f"queues.{name}.on_node_lost: 'requeue' is not supported by this version of HAL")
    for field in ("default_walltime", "max_walltime"):
        value = getattr(table, field)
        if value is not None and value <= 0:
            raise SpecError(f"queues.{name}.{field}: must be longer than nothing")
    if table.default_walltime and table.max_walltime and table.default_walltime > table.max_walltime:
        raise SpecError(f"queues.{name}: default_walltime is longer than max_walltime")
    if table.max_tasks is not None and table.max_tasks < 1:
        raise SpecError(f"queues.{name}.max_tasks: must be at least 1")
    return replace(table, name=name)


def _address(text: str) -> tuple[str, int] | None:
    """`8642`, `127.0.0.1:8642`, `[::1]:8642`.

    Raises:
        SpecError: none of these.
    """
    if not text:
        return None
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise SpecError(f"server.tcp: '{text}' is not HOST:PORT", hint="write 8642 or 127.0.0.1:8642")
    return host.strip("[]") or "127.0.0.1", int(port)


def with_tcp(config: Config, text: str) -> Config:
    """The same with another TCP address (`--listen`).

    Raises:
        SpecError: not an address.
    """
    return replace(config, tcp=_address(text)) if text else config
