"""hal.toml: what is declared on this HAL and how its controller behaves. See docs/config.md.

Reading text is pure; the caller reads the file. An unknown field, or a value that makes no sense, stops the start with
one error that names it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from hal.core.engine.config import EngineConfig
from hal.core.model import SpecError
from hal.core.model.config_sections import (
    SEE,
    Effective,
    Section,
    Sections,
    effective_settings,
    no_others,
    parse_toml,
    read_sections,
)
from hal.core.model.lease_times import LeaseTimes
from hal.core.model.policy import Policy
from hal.core.model.policy_text import policy_from_plain
from hal.core.model.topology.tree import Topology, renamed, topology_of_labels
from hal.daemons.controller.access.settings import AccessSection
from hal.daemons.controller.config_sections import (
    ACCESS,
    AUDIT,
    DEFAULT_CERTIFICATE_MS,
    DEFAULT_ORDER,
    DEFAULT_PLACEMENT,
    DEFAULT_SERVICE_CERTIFICATE_MS,
    DEFAULT_SLICE_WORK,
    ENGINE,
    LEASES,
    NOTIFICATIONS,
    READERS,
    RETENTION,
    SECTIONS,
    SERVER,
    STORE,
    TOPOLOGY,
    TRACING,
    AuditSection,
    NotificationsSection,
    RelayMode,
    TopologySection,
    host_and_port,
    lease_times,
    retention,
)
from hal.daemons.controller.files.settings import FILES, FilesSection
from hal.rest.limits import DEFAULT_REQUEST_BYTES, DEFAULT_USER_REQUEST_BYTES
from hal.runtime.step_users import Serving
from hal.runtime.time_zones import zone_offsets
from hal.store import Retention
from hal.wire.address import DEFAULT_PORT, format_address, is_loopback

LEVELS = "topology.levels"
ANY_HOST = ("0.0.0.0", "::")
POLICY_TABLES = tuple(name for name in Policy.__struct_fields__ if name != "version")
"""What of the file is policy."""
NO_POLICY = policy_from_plain({})
"""What an empty file declares."""


class Config(Struct, frozen=True, kw_only=True):
    """The configuration of a controller."""

    engine: EngineConfig = EngineConfig(order=DEFAULT_ORDER, placement=DEFAULT_PLACEMENT, slice_work=DEFAULT_SLICE_WORK)
    admit: tuple[str, ...] = ()
    """Rules for submissions, by name."""
    policy: Policy = NO_POLICY
    """What the file declares; which policy holds is said by the store (see `policy_start`)."""
    tcp: tuple[str, int] | None = None
    tls: bool = False
    plain_tcp: bool = False
    site_certificate: tuple[Path, Path] | None = None
    """Files of a certificate for REST, and of its key."""
    address: str = ""
    """By which name or address other machines reach this one; empty: that is not known."""
    wire: tuple[str, int] | None = None
    """Where agents of other machines dial."""
    node_addresses: tuple[str, ...] = ()
    """Patterns of addresses that nodes of other machines may state, beside the one from which they dial."""
    relay: RelayMode = RelayMode.AUTO
    relay_port: int = 0
    """0: any free one."""
    node_certificate_ms: int = DEFAULT_CERTIFICATE_MS
    service_certificate_ms: int = DEFAULT_SERVICE_CERTIFICATE_MS
    max_request_bytes: int = DEFAULT_REQUEST_BYTES
    max_user_request_bytes: int = DEFAULT_USER_REQUEST_BYTES
    retention: Retention = Retention()
    store_url: str = ""
    """As `Store.open` takes it, password and all: for nobody's eyes. Empty: the SQLite file in HAL_HOME."""
    access: AccessSection = AccessSection()
    serving: Serving = Serving.ALL_AS_OWNER
    """Whose steps run where this process starts nodes, and as whom. As the process was started, not in the file."""
    runs_as: str = ""
    """User of this process, as whom steps run on this machine; empty: not known."""
    audit: AuditSection = AuditSection()
    leases: LeaseTimes = LeaseTimes()
    notifications: NotificationsSection = NotificationsSection()
    traced_share: float = 0.0
    """Of traces of jobs without a `traceparent`: those whose processes get TRACEPARENT."""
    topology_file: str = ""
    """Where the topology is declared; empty: nowhere."""
    topology_levels: tuple[str, ...] = ()
    topology: Topology | None = None
    """None: none is declared, or its file was not read yet (see `with_topology`)."""
    files: FilesSection = FilesSection()


def read_config(text: str, others: Callable[[str], bool] = no_others) -> Config:
    """The configuration in the text of hal.toml; an empty text gives the defaults.

    Args:
        others: whether another daemon reads a table of that name.
    Raises:
        SpecError: not TOML, an unknown field, or a value out of range; names it.
    """
    raw = parse_toml(text)
    try:
        return _config(read_sections(raw, SECTIONS, tables=POLICY_TABLES, others=others))
    except SpecError as error:
        raise SpecError(f"hal.toml: {error.message}", hint=error.hint or SEE) from error


def settings_in_force(text: str, file: str, others: Sequence[Section[Any]] = ()) -> list[Effective]:
    """Every setting with the value that a start with this file gives it; nothing is started, and secrets are hidden.

    Args:
        file: name of the file.
        others: sections that other daemons read, which are checked and shown, too.
    Raises:
        SpecError: as `read_config`.
    """
    names = {section.name for section in others}
    read_config(text, names.__contains__)
    raw, sections = parse_toml(text), (*SECTIONS, *others)
    try:
        values = read_sections(raw, sections, tables=POLICY_TABLES)
    except SpecError as error:
        raise SpecError(f"hal.toml: {error.message}", hint=error.hint or SEE) from error
    return effective_settings(raw, sections, values, file)


def _config(file: Sections) -> Config:
    engine, server, topology = file[ENGINE], file[SERVER], file[TOPOLOGY]
    policy = policy_from_plain(file.tables)
    zone_offsets(policy)
    return Config(
        engine=EngineConfig(
            order=engine.order,
            placement=engine.placement,
            domains=engine.domains,
            backfill=engine.backfill,
            reservations=engine.reservations,
            slice_work=engine.slice_work,
            gpu_parts=engine.gpu_parts,
            gpu_islands=engine.gpu_islands,
            gpu_reserve=dict(engine.gpu_reserve),
            preempt=engine.preempt,
            compaction=engine.compaction,
            compaction_nodes=engine.compaction_nodes,
            filters=engine.filters,
            compact=topology.compact,
        ),
        admit=engine.admit,
        policy=policy,
        tcp=host_and_port(server.tcp),
        tls=server.tls,
        plain_tcp=server.plain_tcp,
        site_certificate=(Path(server.tls_cert), Path(server.tls_key)) if server.tls_cert else None,
        address=server.address,
        wire=host_and_port(server.wire, "server.wire", DEFAULT_PORT),
        node_addresses=server.node_addresses,
        relay=server.relay,
        relay_port=server.relay_port,
        node_certificate_ms=int(server.node_certificate),
        service_certificate_ms=int(server.service_certificate),
        max_request_bytes=server.max_request_bytes,
        max_user_request_bytes=server.max_user_request_bytes,
        store_url=file[STORE].url,
        retention=retention(file[RETENTION], file[READERS]),
        access=file[ACCESS],
        audit=file[AUDIT],
        leases=lease_times(file[LEASES]),
        notifications=file[NOTIFICATIONS],
        traced_share=file[TRACING].processes,
        topology_file=topology.file,
        topology_levels=topology.levels,
        topology=_topology_of_labels(topology),
        files=file[FILES],
    )


def _topology_of_labels(section: TopologySection) -> Topology | None:
    return topology_of_labels(section.levels, LEVELS) if section.levels and not section.file else None


def with_topology(config: Config, read: Callable[[str], Topology]) -> Config:
    """The same with the topology that its file declares; nothing is read where none is named.

    Args:
        read: reads the file of that name.
    Raises:
        SpecError: it cannot be read, there is a mistake in it, or its levels are others; names file and line.
    """
    if not config.topology_file:
        return config
    topology = read(config.topology_file)
    if config.topology_levels:
        topology = renamed(topology, config.topology_levels, LEVELS)
    return replace(config, topology=topology)


def with_addresses(config: Config, tcp: str, wire: str) -> Config:
    """The same with other TCP addresses (`--listen`, `--wire`); '' leaves one as it is.

    Raises:
        SpecError: not an address.
    """
    return replace(
        config,
        tcp=host_and_port(tcp) if tcp else config.tcp,
        wire=host_and_port(wire, "--wire", DEFAULT_PORT) if wire else config.wire,
    )


def serves_tls(config: Config) -> bool:
    """Whether what is listened to at `server.tcp` is TLS."""
    if config.tcp is None or config.plain_tcp:
        return False
    return config.tls or config.site_certificate is not None or not is_loopback(config.tcp[0])


def rest_url(config: Config) -> str:
    """Where people reach REST from elsewhere; '' where nowhere."""
    port = reached(config.tcp, config.address)
    return f"http{'s' if serves_tls(config) else ''}://{port}" if port else ""


def reached(listening: tuple[str, int] | None, address: str) -> str:
    """Where other machines reach what listens there, as `HOST:PORT`; '' where that is not known.

    Args:
        address: of this machine.
    """
    if listening is None or not listening[1]:
        return ""
    host = address if listening[0] in ANY_HOST else listening[0]
    return format_address(host, listening[1]) if host else ""
