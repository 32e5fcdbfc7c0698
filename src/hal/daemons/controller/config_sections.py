"""The sections of hal.toml that a controller reads: their keys, defaults, help and checks. Pure.

A new key is a field here; a new section is a struct, its `Section`, and its name in `SECTIONS`. From them follows
`spec/config.md` (`make spec`); docs/config.md has an example of each key.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from hal.core.engine.config import Backfill
from hal.core.model import Duration, Resources, SpecError, StoreError
from hal.core.model.config_sections import Section, check_range, without_password
from hal.core.model.job import MAX_NODES
from hal.core.model.lease_times import LeaseTimes, check_lease_times
from hal.core.model.node_address import check_patterns
from hal.core.model.node_config import NODE
from hal.core.model.observability_config import OBSERVABILITY
from hal.core.model.policy_check import check_reserve
from hal.core.model.supervision_config import SUPERVISION
from hal.core.model.topology.tree import check_levels
from hal.core.model.web_config import WEB
from hal.daemons.controller.access.settings import AccessSection, check_access
from hal.daemons.controller.files.settings import FILES
from hal.rest.audit import MAX_AUDIT_BYTES
from hal.rest.limits import DEFAULT_REQUEST_BYTES, DEFAULT_USER_REQUEST_BYTES
from hal.runtime.step_users import FORMER_SETTING, GONE, SETTING
from hal.store import DAY_MS, LEASE_MS, LEAST_ATTEMPTS, Kept, ReaderBounds, Retention
from hal.store.database_url import HOW_TO_WRITE, parse_url
from hal.wire.address import DEFAULT_PORT, parse_address

CONTROLLER: Final = "controller"
LEAST_AUDIT_BYTES: Final = 1 << 20
MOST_AUDIT_BYTES: Final = 1 << 40
MAX_AUDIT_DAYS: Final = 36_500
MAX_RETENTION_DAYS: Final = 36_500
MAX_RETENTION_COUNT: Final = 1 << 40
MAX_RETENTION_QUEUES: Final = 1_000
AS_ABOVE: Final = -1
"""Of a queue: as for the others."""
LEAST_REQUEST_BYTES: Final = 1 << 10
MOST_REQUEST_BYTES: Final = 1 << 30
DEFAULT_CERTIFICATE_MS: Final = 90 * 86_400_000
DEFAULT_SERVICE_CERTIFICATE_MS: Final = 86_400_000
MIN_CERTIFICATE_MS: Final = 10_000
MAX_CERTIFICATE_MS: Final = 825 * 86_400_000
DEFAULT_ORDER: Final = "priority"
DEFAULT_PLACEMENT: Final = "auto"
DEFAULT_SLICE_WORK: Final = 30_000
"""Work of one slice of scheduling: 2 ms or so on one core, so that reports and requests are never kept waiting long."""
MIN_SLICE_WORK: Final = 100
MAX_SLICE_WORK: Final = 1 << 40
DEFAULT_RESERVATIONS: Final = 10
MAX_RESERVATIONS: Final = 1_000_000
MAX_RULES: Final = 100
LEAST_COMPACTION: Final = 1.0
MOST_COMPACTION: Final = 100.0
"""What a gang must gain by work that is moved, in multiples of what that work loses."""
"""Rules for submissions: each is asked about every job."""


class EngineSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[engine]`"""

    order: Annotated[
        str,
        Meta(description="order of jobs: `priority`, `fcfs` (higher priority, then job id), `sjf`, or a policy"),
    ] = DEFAULT_ORDER
    placement: Annotated[
        str,
        Meta(
            description="choice of nodes: `auto`, `first-fit`, `best-fit`, `worst-fit`, `least-loaded`, `dot-product`, "
            "`gpu-packing`, `fgd`, or a policy; see docs/placement.md"
        ),
    ] = DEFAULT_PLACEMENT
    backfill: Annotated[Backfill, Meta(description="who may pass a waiting job; see docs/backfill.md")] = Backfill.EASY
    reservations: Annotated[
        int, Meta(description="under `top-k`: jobs with a reservation for each set of competing nodes")
    ] = DEFAULT_RESERVATIONS
    slice_work: Annotated[
        int, Meta(description="checks after which a long decision pauses to serve requests and reports")
    ] = DEFAULT_SLICE_WORK
    domains: Annotated[
        str,
        Meta(
            description="domain of the topology for jobs of several nodes, of those that hold them: `smallest`, or a "
            "policy; see docs/topology.md"
        ),
    ] = "smallest"
    preempt: Annotated[str, Meta(description="what is preempted first: `least-lost`, or a policy")] = "least-lost"
    compaction: Annotated[
        float,
        Meta(
            description="movable work is moved for the first waiting gang if that gains so many times what the work "
            "loses; 0: never; see docs/compaction.md"
        ),
    ] = 0.0
    compaction_nodes: Annotated[int, Meta(description="it is moved for gangs of so many nodes at least")] = 8
    filters: Annotated[
        tuple[str, ...], Meta(description="names of filters from other packages; a node must pass all of them")
    ] = ()
    gpu_parts: Annotated[bool, Meta(description="several jobs may share a GPU of a node that binds them")] = False
    gpu_islands: Annotated[bool, Meta(description="jobs may ask for GPUs of one link island")] = False
    gpu_reserve: Annotated[
        Resources,
        Meta(description="cpu and memory of a node that work without GPUs must leave for each of its GPUs"),
    ] = Resources()
    admit: Annotated[
        tuple[str, ...], Meta(description="names of submission rules from other packages, in the order of their use")
    ] = ()


def check_engine(section: EngineSection) -> None:
    """
    Raises:
        SpecError: a value is out of range; names it.
    """
    check_range("engine.slice_work", section.slice_work, MIN_SLICE_WORK, MAX_SLICE_WORK)
    if section.compaction and not LEAST_COMPACTION <= section.compaction <= MOST_COMPACTION:
        raise SpecError(
            f"engine.compaction: {section.compaction:g} is out of range",
            hint=f"from {LEAST_COMPACTION:g} to {MOST_COMPACTION:g}, or 0: nothing is moved",
        )
    check_range("engine.compaction_nodes", section.compaction_nodes, 1, MAX_NODES)
    check_range("engine.reservations", section.reservations, 1, MAX_RESERVATIONS)
    check_reserve(section.gpu_reserve, "engine.gpu_reserve")
    if len(section.admit) > MAX_RULES:
        raise SpecError(f"engine.admit: {len(section.admit)} rules", hint=f"at most {MAX_RULES}")


class RelayMode(StrEnum):
    """When streams into steps go through the relay of the controller's machine."""

    AUTO = "auto"
    """Where the client could not reach the node itself."""
    ALWAYS = "always"
    """Whenever client and node are not both on the controller's machine."""
    NEVER = "never"


class ServerSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[server]`"""

    tcp: Annotated[
        str,
        Meta(description="`HOST:PORT`, or a port of 127.0.0.1: also serve REST there, with tokens; empty: nowhere"),
    ] = ""
    tls: Annotated[
        bool, Meta(description="TLS at `tcp` on a loopback address, too; other addresses have TLS anyway")
    ] = False
    tls_cert: Annotated[
        str, Meta(description="the site's certificate with its chain, a PEM file; empty: signed by HAL's own authority")
    ] = ""
    tls_key: Annotated[str, Meta(description="its key, a PEM file")] = ""
    plain_tcp: Annotated[bool, Meta(description="no TLS at `tcp` on any address; excludes the three above")] = False
    address: Annotated[
        str, Meta(description="name under which other machines reach this one; empty: its host name")
    ] = ""
    wire: Annotated[
        str,
        Meta(description="`HOST:PORT`, or a port of 127.0.0.1, for agents of other machines; empty: nowhere"),
    ] = ""
    node_addresses: Annotated[
        tuple[str, ...],
        Meta(description="addresses that nodes of other machines may state: networks, `*.DOMAIN`, single addresses"),
    ] = ()
    relay: Annotated[
        RelayMode, Meta(description="when streams into steps go through this machine: `auto`, `always` or `never`")
    ] = RelayMode.AUTO
    relay_port: Annotated[
        int, Meta(ge=0, le=65_535, description="TCP port for these streams, on all addresses; 0: any free one")
    ] = 0
    node_certificate: Annotated[
        Duration, Meta(description="lifetime of a node's certificate; it is renewed after two thirds of it")
    ] = Duration(DEFAULT_CERTIFICATE_MS)
    service_certificate: Annotated[
        Duration,
        Meta(description="the same for brokers, workers, clients and services"),
    ] = Duration(DEFAULT_SERVICE_CERTIFICATE_MS)
    max_request_bytes: Annotated[int, Meta(description="maximum size of a request body")] = DEFAULT_REQUEST_BYTES
    max_user_request_bytes: Annotated[int, Meta(description="the same for the role user")] = DEFAULT_USER_REQUEST_BYTES


def check_server(section: ServerSection) -> None:
    """
    Raises:
        SpecError: a value makes no sense, or two exclude each other; names them.
    """
    for field in ("max_request_bytes", "max_user_request_bytes"):
        check_range(f"server.{field}", getattr(section, field), LEAST_REQUEST_BYTES, MOST_REQUEST_BYTES)
    for field in ("node_certificate", "service_certificate"):
        check_range(f"server.{field}", getattr(section, field), MIN_CERTIFICATE_MS, MAX_CERTIFICATE_MS)
    host_and_port(section.tcp)
    host_and_port(section.wire, "server.wire", DEFAULT_PORT)
    check_patterns(section.node_addresses, "server.node_addresses")
    if section.address:
        parse_address(f"{section.address}:{DEFAULT_PORT}", "server.address")
    if bool(section.tls_cert) != bool(section.tls_key):
        raise SpecError("server.tls_cert, server.tls_key: one without the other", hint="name both files")
    if section.plain_tcp and (section.tls or section.tls_cert):
        raise SpecError("server.plain_tcp: excludes tls and tls_cert", hint="leave one of them out")
    if section.tls_cert and not (Path(section.tls_cert).is_absolute() and Path(section.tls_key).is_absolute()):
        raise SpecError("server.tls_cert, server.tls_key: are not absolute paths", hint="like /etc/hal/cert.pem")


def host_and_port(text: str, field: str = "server.tcp", example: int = 8642) -> tuple[str, int] | None:
    """`8642`, `127.0.0.1:8642`, `[::1]:8642`; None for ''.

    Raises:
        SpecError: none of these.
    """
    if not text:
        return None
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise SpecError(f"{field}: '{text}' is not HOST:PORT", hint=f"write {example} or 127.0.0.1:{example}")
    return host.strip("[]") or "127.0.0.1", int(port)


class NotificationsSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[notifications]`"""

    smtp: Annotated[str, Meta(description="`HOST:PORT` of the mail server; empty: no mail is sent")] = ""
    smtp_security: Annotated[str, Meta(description="`starttls`, `tls` from the first byte, or `none`")] = "starttls"
    smtp_user: Annotated[str, Meta(description="user at the mail server; empty: without a login")] = ""
    smtp_password_file: Annotated[str, Meta(description="file with that user's password")] = ""
    sender: Annotated[str, Meta(description="mail address from which mail is sent")] = ""
    mail_domain: Annotated[str, Meta(description="domain of mail for a user without one; empty: addresses only")] = ""
    mail_domains: Annotated[tuple[str, ...], Meta(description="domains to which mail may be sent; empty: any")] = ()
    webhook_hosts: Annotated[
        tuple[str, ...],
        Meta(description="hosts of webhooks: a name, which may have any address; `*.DOMAIN` and `*`: public addresses"),
    ] = ()
    authorities: Annotated[
        str, Meta(description="PEM file of authorities for mail server and webhooks; empty: the machine's")
    ] = ""
    user_hour: Annotated[int, Meta(description="messages in an hour for the jobs of one user")] = 100
    all_hour: Annotated[int, Meta(description="messages in an hour altogether")] = 2_000


def check_notifications_section(section: NotificationsSection) -> None:
    """
    Raises:
        SpecError: a value makes no sense; names it.
    """
    host_and_port(section.smtp, "notifications.smtp", 587)
    if section.smtp and not section.sender:
        raise SpecError("notifications.sender: it is needed to send mail", hint="like hal@example.org")
    if section.smtp_security not in ("starttls", "tls", "none"):
        raise SpecError(
            f"notifications.smtp_security: '{section.smtp_security}' is unknown", hint="starttls, tls or none"
        )
    if bool(section.smtp_user) != bool(section.smtp_password_file):
        raise SpecError("notifications.smtp_user, smtp_password_file: one without the other", hint="give both")
    if section.smtp_user and section.smtp_security == "none":
        raise SpecError("notifications.smtp_user: a password is not sent unencrypted", hint="smtp_security = starttls")
    for file in ("smtp_password_file", "authorities"):
        if (name := getattr(section, file)) and not Path(name).is_absolute():
            raise SpecError(f"notifications.{file}: '{name}' is not an absolute path")
    for host in section.webhook_hosts:
        if not host or host != host.lower() or "/" in host or ("*" in host and host != "*" and host.rfind("*") > 0):
            raise SpecError(
                f"notifications.webhook_hosts: '{host}' is not a host", hint="hooks.example.org, *.example.org or *"
            )
    for bound in ("user_hour", "all_hour"):
        check_range(f"notifications.{bound}", getattr(section, bound), 1, 1_000_000)


class StoreSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[store]`"""

    url: Annotated[
        str,
        Meta(description="`postgresql://USER@HOST/DATABASE`; empty: the SQLite file in HAL_HOME"),
    ] = ""


def check_store(section: StoreSection) -> None:
    """
    Raises:
        SpecError: not the URL of a database; does not repeat it, for it may hold a password.
    """
    if not section.url:
        return
    try:
        url = parse_url(section.url)
    except StoreError as error:
        raise SpecError(f"store.url: {error.message}", hint=error.hint) from None
    if not url.database:
        raise SpecError("store.url: it names no database", hint=HOW_TO_WRITE)


class LeasesSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[leases]`: see `LeaseTimes`; a controller's own lease is not among them, it is the store's."""

    heartbeat: Annotated[
        Duration, Meta(description="interval of heartbeats; a node that misses three is unreachable")
    ] = Duration(LeaseTimes().heartbeat_ms)
    node: Annotated[
        Duration,
        Meta(description='how long a node runs `on_node_lost = "requeue"` steps without hearing from the controller'),
    ] = Duration(LeaseTimes().node_ms)
    kill: Annotated[Duration, Meta(description="longest time that a node needs to end processes")] = Duration(
        LeaseTimes().kill_ms
    )
    slack: Annotated[
        Duration, Meta(description="margin: such steps run elsewhere after 1.02 (node + 3 s + kill) + slack")
    ] = Duration(LeaseTimes().slack_ms)


def lease_times(section: LeasesSection) -> LeaseTimes:
    """The section as the shells take it.

    Raises:
        SpecError: times that do not fit together; names them.
    """
    given = {f"{name}_ms": int(getattr(section, name)) for name in section.__struct_fields__}
    return check_lease_times(LeaseTimes(**given, leader_ms=LEASE_MS))


class QueueRetentionSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[retention.queues.NAME]`"""

    jobs_days: Annotated[int, Meta(description="as above, for the jobs of this queue; -1: as above")] = AS_ABOVE
    jobs_count: Annotated[int, Meta(description="the same")] = AS_ABOVE
    attempts_days: Annotated[int, Meta(description="the same")] = AS_ABOVE
    attempts_count: Annotated[int, Meta(description="the same")] = AS_ABOVE
    outputs_days: Annotated[int, Meta(description="the same")] = AS_ABOVE
    outputs_count: Annotated[int, Meta(description="the same")] = AS_ABOVE


class RetentionSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[retention]`: of each limit, 0 means that there is none."""

    jobs_days: Annotated[int, Meta(description="days after the end of a job until it is removed; 0: no limit")] = (
        Kept().jobs_ms // DAY_MS
    )
    jobs_count: Annotated[int, Meta(description="ended jobs of each queue beyond which the oldest are removed")] = (
        Kept().jobs_count
    )
    attempts_days: Annotated[int, Meta(description="days after the end of a job until its attempts are removed")] = (
        Kept().attempts_ms // DAY_MS
    )
    attempts_count: Annotated[
        int, Meta(description="tasks of ended jobs of each queue whose attempts are kept, newest end first")
    ] = Kept().attempts_count
    outputs_days: Annotated[int, Meta(description="days after the end of a job until its outputs are removed")] = (
        Kept().outputs_ms // DAY_MS
    )
    outputs_count: Annotated[
        int, Meta(description="tasks of ended jobs of each queue whose outputs are kept, newest end first")
    ] = Kept().outputs_count
    attempts_per_task: Annotated[
        int, Meta(description="newest attempts that are kept of each task, also of live jobs; at least 10; 0: all")
    ] = Retention().attempts_per_task
    events_days: Annotated[int, Meta(description="age in days beyond which an event is removed")] = (
        Retention().events_ms // DAY_MS
    )
    events_count: Annotated[int, Meta(description="number of events beyond which the oldest are removed")] = (
        Retention().events_count
    )
    queues: dict[str, QueueRetentionSection] = {}


def check_retention(section: RetentionSection) -> None:
    """Raises: as `retention`."""
    retention(section, ReadersSection())


def retention(section: RetentionSection, readers: ReadersSection) -> Retention:
    """The sections as the store takes them.

    Raises:
        SpecError: a limit is out of range, or there are too many queues; names it.
    """
    if len(section.queues) > MAX_RETENTION_QUEUES:
        raise SpecError(f"retention.queues: {len(section.queues)}", hint=f"at most {MAX_RETENTION_QUEUES}")
    if 0 < section.attempts_per_task < LEAST_ATTEMPTS:
        check_range("retention.attempts_per_task", section.attempts_per_task, LEAST_ATTEMPTS, MAX_RETENTION_COUNT)
    common = {name: getattr(section, name) for name in QueueRetentionSection.__struct_fields__}
    by_queue = {}
    for queue, own in section.queues.items():
        differing = {name: value for name in common if (value := getattr(own, name)) != AS_ABOVE}
        by_queue[queue] = _kept({**common, **differing}, f"retention.queues.{queue}")
    return Retention(
        jobs=_kept(common, "retention"),
        queues=by_queue,
        attempts_per_task=_limit(section.attempts_per_task, "retention.attempts_per_task", MAX_RETENTION_COUNT),
        events_ms=_limit(section.events_days, "retention.events_days", MAX_RETENTION_DAYS) * DAY_MS,
        events_count=_limit(section.events_count, "retention.events_count", MAX_RETENTION_COUNT),
        readers=ReaderBounds(rows=readers.rows, age_ms=readers.days * DAY_MS),
    )


def _kept(limits: dict[str, int], field: str) -> Kept:
    amounts: dict[str, int] = {}
    for name, value in limits.items():
        kind, _, unit = name.rpartition("_")
        if unit == "days":
            amounts[f"{kind}_ms"] = _limit(value, f"{field}.{name}", MAX_RETENTION_DAYS) * DAY_MS
        else:
            amounts[name] = _limit(value, f"{field}.{name}", MAX_RETENTION_COUNT)
    return Kept(**amounts)


def _limit(value: int, field: str, most: int) -> int:
    """The limit; 0 stands for `most`, beyond which nothing can be.

    Raises:
        SpecError: out of range.
    """
    check_range(field, value, 0, most, least_means="no limit")
    return value or most


class ReadersSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[readers]`"""

    days: Annotated[int, Meta(description="age in days beyond which nothing is kept for a reader")] = 30
    rows: Annotated[
        int, Meta(description="of events, and of ended attempts, the newest so many are kept for readers at most")
    ] = ReaderBounds().rows


def check_readers(section: ReadersSection) -> None:
    """
    Raises:
        SpecError: a value is out of range; names it.
    """
    check_range("readers.days", section.days, 0, MAX_RETENTION_DAYS, least_means="nothing is kept for readers")
    check_range("readers.rows", section.rows, 0, MAX_RETENTION_COUNT, least_means="nothing is kept for readers")


class AuditSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[audit]`"""

    max_bytes: Annotated[
        int,
        Meta(description="size of the audit log; beyond it, whoever has the largest share loses the oldest entries"),
    ] = MAX_AUDIT_BYTES
    days: Annotated[int, Meta(description="remove files that were not written to for this long; 0: never")] = 0
    syslog: Annotated[bool, Meta(description="copy each entry to this machine's own syslog, as `hal-audit`")] = False


def check_audit(section: AuditSection) -> None:
    """
    Raises:
        SpecError: a value is out of range; names it.
    """
    check_range("audit.max_bytes", section.max_bytes, LEAST_AUDIT_BYTES, MOST_AUDIT_BYTES)
    check_range("audit.days", section.days, 0, MAX_AUDIT_DAYS, least_means="never removed by age")


class TopologySection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[topology]`"""

    file: Annotated[
        str,
        Meta(
            description="`*.toml`, or Slurm's `topology.conf` or `topology.yaml`; relative to this file's directory; "
            "empty: none"
        ),
    ] = ""
    levels: Annotated[
        tuple[str, ...],
        Meta(description="without a file: labels of nodes that say where they are, widest first; with one: its levels"),
    ] = ()
    compact: Annotated[
        bool,
        Meta(description="place jobs of several nodes on as few domains as they fit into, whether they ask or not"),
    ] = True


class TracingSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tracing]`"""

    processes: Annotated[
        float,
        Meta(
            description="share of the traces, 0 to 1, of jobs without a `traceparent` whose processes get TRACEPARENT "
            "all the same"
        ),
    ] = 0.0


def check_tracing(section: TracingSection) -> None:
    """
    Raises:
        SpecError: it is no share.
    """
    if not 0 <= section.processes <= 1:
        raise SpecError(f"tracing.processes: {section.processes} is out of range", hint="between 0 and 1")


def check_topology(section: TopologySection) -> None:
    """
    Raises:
        SpecError: names of levels that are none.
    """
    check_levels(section.levels, "topology.levels")
    if "\0" in section.file:
        raise SpecError("topology.file: not the name of a file")


ENGINE: Final = Section(
    name="engine",
    kind=EngineSection,
    reader=CONTROLLER,
    about="How jobs are ordered and placed; policies of other packages ([docs/plugins.md](../docs/plugins.md)).",
    check=check_engine,
)
SERVER: Final = Section(
    name="server",
    kind=ServerSection,
    reader=CONTROLLER,
    about="Where REST and the agents of other machines are served.",
    check=check_server,
)
STORE: Final = Section(
    name="store",
    kind=StoreSection,
    reader=CONTROLLER,
    about="Where rows and events are kept ([docs/store.md](../docs/store.md)).",
    check=check_store,
    secrets={"url": without_password},
)
ACCESS: Final = Section(
    name="access",
    kind=AccessSection,
    reader=CONTROLLER,
    about="Who has access, and how much they may ask ([docs/access.md](../docs/access.md)).",
    check=check_access,
    former={FORMER_SETTING: GONE.format(f"{SETTING} = true")},
)
AUDIT: Final = Section(
    name="audit",
    kind=AuditSection,
    reader=CONTROLLER,
    about="What is kept of the audit log ([docs/access.md](../docs/access.md#the-audit-log)).",
    check=check_audit,
)
LEASES: Final = Section(
    name="leases",
    kind=LeasesSection,
    reader=CONTROLLER,
    about="Times between machines ([docs/failures.md](../docs/failures.md#times)).",
    check=lease_times,
)
RETENTION: Final = Section(
    name="retention",
    kind=RetentionSection,
    reader=CONTROLLER,
    about="How much is kept of ended jobs, and of the event feed ([docs/store.md](../docs/store.md#retention)).",
    check=check_retention,
)
READERS: Final = Section(
    name="readers",
    kind=ReadersSection,
    reader=CONTROLLER,
    about="What is kept for registered readers ([docs/events.md](../docs/events.md#readers)).",
    check=check_readers,
)

TOPOLOGY: Final = Section(
    name="topology",
    kind=TopologySection,
    reader=CONTROLLER,
    about="Which rack, zone or switch nodes are in ([docs/topology.md](../docs/topology.md)).",
    check=check_topology,
)

NOTIFICATIONS: Final = Section(
    name="notifications",
    kind=NotificationsSection,
    reader=CONTROLLER,
    about="Mail and webhooks of jobs ([docs/notifications.md](../docs/notifications.md)).",
    check=check_notifications_section,
)

TRACING: Final = Section(
    name="tracing",
    kind=TracingSection,
    reader=CONTROLLER,
    about="Which jobs' processes go on with the trace of their job ([docs/logs-and-traces.md]"
    "(../docs/logs-and-traces.md#traces)).",
    check=check_tracing,
)
SECTIONS: Final[tuple[Section[Any], ...]] = (
    ENGINE, SERVER, STORE, ACCESS, AUDIT, LEASES, RETENTION, READERS, FILES, TOPOLOGY, TRACING, NOTIFICATIONS, NODE,
    SUPERVISION,
    OBSERVABILITY,
    WEB,
)  # fmt: skip
"""In the order in which they are described. `[node]` is read by agents and keepers, `[supervision]` by the supervisor,
`[observability]` by the collector; a controller checks them with the rest, so that a mistake in the file is found when
HAL starts."""
