"""hal.toml: what is declared on this HAL and how its controller behaves. See docs/config.md.

Reading text is pure; the caller reads the file. An unknown field, or a value that makes no sense, stops the start with
one error that names it.
"""

from __future__ import annotations

import tomllib
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from hal.core.engine.config import Backfill, EngineConfig
from hal.core.model import Duration, SpecError, StoreError, convert, parse_duration
from hal.core.model.lease_times import LeaseTimes, check_lease_times
from hal.core.model.node_config import NO_NODE_SECTION, NodeSection, check_node_section
from hal.core.model.policy import Policy
from hal.core.model.policy_text import policy_from_plain
from hal.daemons.controller.access.settings import AccessSection, check_access
from hal.rest.audit import MAX_AUDIT_BYTES
from hal.store import LEASE_MS, Retention
from hal.store.database_url import HOW_TO_WRITE, parse_url
from hal.wire.address import DEFAULT_PORT, format_address, parse_address

MAX_CONFIG_BYTES = 1 << 20
LEAST_AUDIT_BYTES = 1 << 20
MOST_AUDIT_BYTES = 1 << 40
MAX_AUDIT_DAYS = 36_500
ANY_HOST = ("0.0.0.0", "::")
POLICY_TABLES = tuple(name for name in Policy.__struct_fields__ if name != "version")
"""What of the file is policy."""
NO_POLICY = policy_from_plain({})
"""What an empty file declares."""
DEFAULT_REQUEST_BYTES = 128 << 20
DEFAULT_USER_REQUEST_BYTES = 8 << 20
DEFAULT_CERTIFICATE = "90d"
MIN_CERTIFICATE_MS = 10_000
MAX_CERTIFICATE_MS = 825 * 86_400_000
DEFAULT_ORDER = "priority"
DEFAULT_SLICE_WORK = 30_000
"""Work of one slice of scheduling: 2 ms or so on one core, so that reports and requests are never kept waiting long."""
MIN_SLICE_WORK = 100
DEFAULT_RESERVATIONS = 10
MAX_RULES = 100
"""Rules for submissions: each is asked about every job."""


class EngineSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[engine]`"""

    order: str = DEFAULT_ORDER
    placement: str = "first-fit"
    backfill: Backfill = Backfill.EASY
    reservations: int = DEFAULT_RESERVATIONS
    """Waiting jobs of each set of competing nodes that are promised a start under `top-k`."""
    slice_work: int = DEFAULT_SLICE_WORK
    """Row checks and candidates after which a pass pauses, so that what came in meanwhile is handled."""
    preempt: str = "least-lost"
    filters: tuple[str, ...] = ()
    admit: tuple[str, ...] = ()
    """Rules for submissions, in the order in which they are asked."""


class ServerSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[server]`"""

    tcp: str = ""
    """`HOST:PORT` or a port (then 127.0.0.1): also listen there, for holders of a token. Empty: Unix sockets only."""
    tls: bool = False
    """TLS on `tcp` also where that is the loopback address; on any other there is TLS anyway."""
    tls_cert: str = ""
    """Files of a certificate of the site's, with its chain, and of its key, as PEM; empty: HAL's own authority."""
    tls_key: str = ""
    plain_tcp: bool = False
    """No TLS on `tcp`, whatever address that is."""
    address: str = ""
    """By which name or address other machines reach this one; empty: what it calls itself."""
    wire: str = ""
    """`HOST:PORT`, or a port (then 127.0.0.1), where agents of other machines dial: `0.0.0.0:7422`. Empty: none."""
    node_certificate: Any = DEFAULT_CERTIFICATE
    """How long a node's certificate is valid; it is renewed at two thirds of that."""
    max_request_bytes: int = DEFAULT_REQUEST_BYTES
    """Longest body of a request."""
    max_user_request_bytes: int = DEFAULT_USER_REQUEST_BYTES
    """The same, of whoever has the role user."""


class StoreSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[store]`"""

    url: str = ""
    """`postgresql://USER@HOST/DATABASE`; empty: the SQLite file in HAL_HOME."""


class LeasesSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[leases]`: see `LeaseTimes`; a controller's own lease is not among them, it is the store's."""

    heartbeat: Duration = Duration(LeaseTimes().heartbeat_ms)
    node: Duration = Duration(LeaseTimes().node_ms)
    kill: Duration = Duration(LeaseTimes().kill_ms)
    slack: Duration = Duration(LeaseTimes().slack_ms)


class RetentionSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[retention]`"""

    events_days: int = 30
    events_count: int = 1_000_000


class AuditSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[audit]`"""

    max_bytes: int = MAX_AUDIT_BYTES
    """Of all its files together; beyond that, whoever has most of it loses the oldest entries."""
    days: int = 0
    """Files in which nothing was written for so long are removed; 0: never."""
    syslog: bool = False
    """A copy of each entry goes to this machine's own syslog, as `hal-audit`."""


class ConfigFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file; from `queues` on it is policy, which `policy_from_plain` reads."""

    engine: EngineSection = EngineSection()
    server: ServerSection = ServerSection()
    store: StoreSection = StoreSection()
    retention: RetentionSection = RetentionSection()
    node: NodeSection = NO_NODE_SECTION
    """For agents and keepers on this machine, which read it themselves."""
    access: AccessSection = AccessSection()
    audit: AuditSection = AuditSection()
    leases: LeasesSection = LeasesSection()
    queues: Any = None
    accounts: Any = None
    users: Any = None
    qos: Any = None
    limits: Any = None
    bookings: Any = None
    licences: Any = None
    weights: Any = None
    fairshare: Any = None


class Config(Struct, frozen=True, kw_only=True):
    """The configuration of a controller."""

    engine: EngineConfig = EngineConfig(order=DEFAULT_ORDER, slice_work=DEFAULT_SLICE_WORK)
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
    node_certificate_ms: int = 90 * 86_400_000
    max_request_bytes: int = DEFAULT_REQUEST_BYTES
    max_user_request_bytes: int = DEFAULT_USER_REQUEST_BYTES
    retention: Retention = Retention()
    store_url: str = ""
    """As `Store.open` takes it, password and all: for nobody's eyes. Empty: the SQLite file in HAL_HOME."""
    access: AccessSection = AccessSection()
    steps_of: str = ""
    """The only user whose jobs are taken; empty: anybody's. As the process was started, not in the file."""
    runs_as: str = ""
    """User of this process, as whom steps run on this machine; empty: not known."""
    audit: AuditSection = AuditSection()
    leases: LeaseTimes = LeaseTimes()


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
        return _checked(convert(raw, ConfigFile))
    except SpecError as error:
        raise SpecError(f"hal.toml: {error.message}", hint=error.hint or "see docs/config.md") from error


def _checked(file: ConfigFile) -> Config:
    check_node_section(file.node)
    for field in ("max_request_bytes", "max_user_request_bytes"):
        if not 1 << 10 <= getattr(file.server, field) <= 1 << 30:
            raise SpecError(f"server.{field}: out of range", hint="between 1024 and 1073741824")
    if file.engine.slice_work < MIN_SLICE_WORK:
        raise SpecError("engine.slice_work: out of range", hint=f"at least {MIN_SLICE_WORK}")
    if len(file.engine.admit) > MAX_RULES:
        raise SpecError(f"engine.admit: {len(file.engine.admit)} rules", hint=f"at most {MAX_RULES}")
    if file.engine.reservations < 1:
        raise SpecError("engine.reservations: out of range", hint="at least 1")
    if file.retention.events_days < 0 or file.retention.events_count < 0:
        raise SpecError("retention: a negative amount")
    lifetime_ms = parse_duration(file.server.node_certificate, field="server.node_certificate")
    if not MIN_CERTIFICATE_MS <= lifetime_ms <= MAX_CERTIFICATE_MS:
        raise SpecError("server.node_certificate: out of range", hint="between 10s and 825d")
    declared = {name: value for name in POLICY_TABLES if (value := getattr(file, name)) is not None}
    return Config(
        engine=EngineConfig(
            order=file.engine.order,
            placement=file.engine.placement,
            backfill=file.engine.backfill,
            reservations=file.engine.reservations,
            slice_work=file.engine.slice_work,
            preempt=file.engine.preempt,
            filters=file.engine.filters,
        ),
        admit=file.engine.admit,
        policy=policy_from_plain(declared),
        tcp=_address(file.server.tcp),
        tls=file.server.tls,
        plain_tcp=file.server.plain_tcp,
        site_certificate=_site_certificate(file.server),
        address=_host(file.server.address),
        wire=_address(file.server.wire, "server.wire", DEFAULT_PORT),
        node_certificate_ms=lifetime_ms,
        max_request_bytes=file.server.max_request_bytes,
        max_user_request_bytes=file.server.max_user_request_bytes,
        store_url=_store_url(file.store.url),
        retention=Retention(
            events_ms=file.retention.events_days * 86_400_000, events_count=file.retention.events_count
        ),
        access=check_access(file.access),
        audit=_checked_audit(file.audit),
        leases=check_lease_times(_lease_times(file.leases)),
    )


def _checked_audit(section: AuditSection) -> AuditSection:
    if not LEAST_AUDIT_BYTES <= section.max_bytes <= MOST_AUDIT_BYTES:
        raise SpecError(
            "audit.max_bytes: out of range", hint=f"between {LEAST_AUDIT_BYTES} (1 MiB) and {MOST_AUDIT_BYTES} (1 TiB)"
        )
    if not 0 <= section.days <= MAX_AUDIT_DAYS:
        raise SpecError("audit.days: out of range", hint=f"between 0 (never removed by age) and {MAX_AUDIT_DAYS}")
    return section


def _store_url(text: str) -> str:
    """
    Raises:
        SpecError: not the URL of a database; does not repeat it, for it may hold a password.
    """
    if not text:
        return ""
    try:
        url = parse_url(text)
    except StoreError as error:
        raise SpecError(f"store.url: {error.message}", hint=error.hint) from None
    if not url.database:
        raise SpecError("store.url: it names no database", hint=HOW_TO_WRITE)
    return text


def _lease_times(section: LeasesSection) -> LeaseTimes:
    given = {f"{name}_ms": int(getattr(section, name)) for name in section.__struct_fields__}
    return LeaseTimes(**given, leader_ms=LEASE_MS)


def _address(text: str, field: str = "server.tcp", example: int = 8642) -> tuple[str, int] | None:
    """`8642`, `127.0.0.1:8642`, `[::1]:8642`.

    Raises:
        SpecError: none of these.
    """
    if not text:
        return None
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise SpecError(f"{field}: '{text}' is not HOST:PORT", hint=f"write {example} or 127.0.0.1:{example}")
    return host.strip("[]") or "127.0.0.1", int(port)


def _host(text: str) -> str:
    """
    Raises:
        SpecError: no host's name or address.
    """
    return parse_address(f"{text}:{DEFAULT_PORT}", "server.address")[0] if text else ""


def with_addresses(config: Config, tcp: str, wire: str) -> Config:
    """The same with other TCP addresses (`--listen`, `--wire`); '' leaves one as it is.

    Raises:
        SpecError: not an address.
    """
    return replace(
        config,
        tcp=_address(tcp) if tcp else config.tcp,
        wire=_address(wire, "--wire", DEFAULT_PORT) if wire else config.wire,
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


def _site_certificate(section: ServerSection) -> tuple[Path, Path] | None:
    """
    Raises:
        SpecError: one file without the other, or a certificate where nothing is encrypted.
    """
    if bool(section.tls_cert) != bool(section.tls_key):
        raise SpecError("server.tls_cert, server.tls_key: one without the other", hint="name both files")
    if section.plain_tcp and (section.tls or section.tls_cert):
        raise SpecError("server.plain_tcp: excludes tls and tls_cert", hint="leave one of them out")
    files = Path(section.tls_cert), Path(section.tls_key)
    if section.tls_cert and not all(file.is_absolute() for file in files):
        raise SpecError("server.tls_cert, server.tls_key: are not absolute paths", hint="like /etc/hal/cert.pem")
    return files if section.tls_cert else None


def reached(listening: tuple[str, int] | None, address: str) -> str:
    """Where other machines reach what listens there, as `HOST:PORT`; '' where that is not known.

    Args:
        address: of this machine.
    """
    if listening is None or not listening[1]:
        return ""
    host = address if listening[0] in ANY_HOST else listening[0]
    return format_address(host, listening[1]) if host else ""


def is_loopback(host: str) -> bool:
    """Whether only this machine is reached there."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
