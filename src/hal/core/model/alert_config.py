"""`[observability.alerts]` of hal.toml: from when something is an alert, and who is told. Pure."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from msgspec import Meta, Struct

from hal.core.model.config_sections import check_range
from hal.core.model.errors import SpecError, shown
from hal.core.model.notification import check_url
from hal.core.model.units import Duration, parse_duration

KINDS: Final = ("mail", "webhook", "slack", "alertmanager")
SEVERITIES: Final = ("info", "warning", "critical")
MAX_ROUTES: Final = 50
MAX_MATCHERS: Final = 20
MAX_ADDRESSES: Final = 50


class RouteSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[observability.alerts.routes]]`"""

    name: Annotated[str, Meta(description="its name, in lists and errors")] = ""
    kind: Annotated[str, Meta(description="`mail`, `webhook`, `slack` or `alertmanager`")] = ""
    to: Annotated[tuple[str, ...], Meta(description="addresses, of `mail`")] = ()
    url: Annotated[str, Meta(description="where it is posted to; of `alertmanager` without `/api/v2/alerts`")] = ""
    url_file: Annotated[str, Meta(description="file with that URL, where the URL is a secret, as Slack's are")] = ""
    token_file: Annotated[str, Meta(description="file with a bearer token for it")] = ""
    severity: Annotated[str, Meta(description="least severity: `info`, `warning` or `critical`")] = "info"
    match: Annotated[
        tuple[str, ...], Meta(description="only alerts with these labels: `queue=gpu*`, `rule!=DiskNearlyFull`")
    ] = ()


class AlertsSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[observability.alerts]`"""

    on: Annotated[bool, Meta(description="look for alerts")] = True
    cluster: Annotated[str, Meta(description="the name of this HAL in messages and in the label `hal`")] = "hal"
    every: Annotated[Duration, Meta(description="how often to look")] = parse_duration("15s")
    wait: Annotated[Duration, Meta(description="how long a first message waits for more alerts of the same rule")] = (
        parse_duration("30s")
    )
    interval: Annotated[
        Duration, Meta(description="least time between messages about one rule when its alerts change")
    ] = parse_duration("5m")
    repeat: Annotated[Duration, Meta(description="after how long an alert that goes on is told again")] = (
        parse_duration("4h")
    )
    off: Annotated[tuple[str, ...], Meta(description="rules that are off, by name")] = ()
    node_down: Annotated[Duration, Meta(description="how long nodes may be away")] = parse_duration("2m")
    queue_starving: Annotated[
        Duration, Meta(description="how long nothing of a queue may start while tasks of it wait")
    ] = parse_duration("1h")
    limit_used: Annotated[float, Meta(description="part of a limit from which it is near its end")] = 0.9
    cycle: Annotated[Duration, Meta(description="how long 99 of 100 turns of the control loop may take")] = (
        parse_duration("1s")
    )
    commit: Annotated[Duration, Meta(description="how long 99 of 100 commits may take")] = parse_duration("1s")
    certificate: Annotated[Duration, Meta(description="how long before its end a certificate is an alert")] = (
        parse_duration("14d")
    )
    disk_free: Annotated[
        float, Meta(description="part of the disks of the controller and of each node that should be free")
    ] = 0.1
    failing: Annotated[float, Meta(description="part of a queue's attempts of half an hour that may fail")] = 0.5
    queue_wait: Annotated[
        Duration, Meta(description="objective: tasks get nodes within this, rounded up to a power of two seconds")
    ] = parse_duration("1h")
    queue_wait_share: Annotated[float, Meta(description="the part of tasks for which that should hold")] = 0.9
    start_share: Annotated[
        float, Meta(description="objective: the part of attempts that nodes should neither refuse nor lose")
    ] = 0.99
    smtp: Annotated[str, Meta(description="`HOST:PORT` of the mail server, for routes of kind `mail`")] = ""
    smtp_security: Annotated[str, Meta(description="`starttls`, `tls` from the first byte, or `none`")] = "starttls"
    smtp_user: Annotated[str, Meta(description="user at the mail server; empty: without a login")] = ""
    smtp_password_file: Annotated[str, Meta(description="file with that user's password")] = ""
    sender: Annotated[str, Meta(description="mail address from which mail is sent")] = ""
    authorities: Annotated[
        str, Meta(description="PEM file of authorities for mail server and URLs; empty: the machine's")
    ] = ""
    routes: Annotated[tuple[RouteSection, ...], Meta(description="who is told")] = ()


SECOND_MS: Final = 1_000
DAY_MS: Final = 86_400_000
AT: Final = "observability.alerts"


def check_alerts(section: AlertsSection) -> None:
    """
    Raises:
        SpecError: a value makes no sense; names it.
    """
    if not section.cluster.isprintable() or not 0 < len(section.cluster) <= 64:
        raise SpecError(f"{AT}.cluster: '{shown(section.cluster)}' is not a name", hint="at most 64 characters")
    check_range(f"{AT}.every", section.every, parse_duration("1s"), parse_duration("5m"))
    for name in ("wait", "interval", "node_down"):
        check_range(f"{AT}.{name}", getattr(section, name), parse_duration("0s"), parse_duration("1d"))
    check_range(f"{AT}.repeat", section.repeat, parse_duration("10s"), parse_duration("30d"))
    check_range(f"{AT}.queue_starving", section.queue_starving, parse_duration("5m"), parse_duration("6h"))
    for name in ("cycle", "commit"):
        check_range(f"{AT}.{name}", getattr(section, name), parse_duration("1ms"), parse_duration("1m"))
    check_range(f"{AT}.certificate", section.certificate, parse_duration("1h"), parse_duration("365d"))
    check_range(f"{AT}.queue_wait", section.queue_wait, parse_duration("1s"), parse_duration("7d"))
    for name in ("limit_used", "disk_free", "failing", "queue_wait_share", "start_share"):
        if not 0 < getattr(section, name) < 1:
            raise SpecError(f"{AT}.{name}: {getattr(section, name)} is out of range", hint="between 0 and 1")
    if section.smtp and not section.sender:
        raise SpecError(f"{AT}.sender: it is needed to send mail", hint="like hal@example.org")
    if section.smtp and mail_address_of(section) is None:
        raise SpecError(f"{AT}.smtp: '{shown(section.smtp)}' is not HOST:PORT", hint="mail.example.org:587")
    if section.smtp_security not in ("starttls", "tls", "none"):
        raise SpecError(
            f"{AT}.smtp_security: '{shown(section.smtp_security)}' is unknown", hint="starttls, tls or none"
        )
    if bool(section.smtp_user) != bool(section.smtp_password_file):
        raise SpecError(f"{AT}.smtp_user, smtp_password_file: one without the other", hint="give both")
    if section.smtp_user and section.smtp_security == "none":
        raise SpecError(f"{AT}.smtp_user: a password is not sent unencrypted", hint="smtp_security = starttls")
    for name in ("smtp_password_file", "authorities"):
        _check_file(f"{AT}.{name}", getattr(section, name))
    if len(section.routes) > MAX_ROUTES:
        raise SpecError(f"{AT}.routes: {len(section.routes)} of them", hint=f"at most {MAX_ROUTES}")
    names = [route.name for route in section.routes]
    for number, route in enumerate(section.routes):
        if not route.name or names.count(route.name) > 1:
            raise SpecError(
                f"{AT}.routes: each needs a name of its own", hint=f"number {number + 1} has '{route.name}'"
            )
        _check_route(section, route)


def mail_address_of(section: AlertsSection) -> tuple[str, int] | None:
    """Host and port of the mail server; None: there is none."""
    host, _, port = section.smtp.rpartition(":")
    return (host, int(port)) if host and port.isascii() and port.isdigit() and 0 < int(port) < 65_536 else None


def read_matcher(text: str, field: str) -> tuple[str, bool, str]:
    """Label, whether it must match, and the pattern, of `queue=gpu*` or `rule!=NodesDown`.

    Raises:
        SpecError: it is none.
    """
    name, equals, pattern = text.partition("=")
    wanted = not name.endswith("!")
    name = name.removesuffix("!")
    if not equals or not name.isidentifier() or not pattern or len(text) > 200 or not text.isprintable():
        raise SpecError(
            f"{field}: '{shown(text)}' selects nothing", hint="LABEL=PATTERN or LABEL!=PATTERN, as rule=Nod*"
        )
    return name, wanted, pattern


def _check_route(section: AlertsSection, route: RouteSection) -> None:
    at = f"{AT}.routes.{route.name}"
    if route.kind not in KINDS:
        raise SpecError(f"{at}.kind: '{shown(route.kind)}' is unknown", hint=f"one of {', '.join(KINDS)}")
    if route.severity not in SEVERITIES:
        raise SpecError(f"{at}.severity: '{shown(route.severity)}' is unknown", hint=f"one of {', '.join(SEVERITIES)}")
    if len(route.match) > MAX_MATCHERS:
        raise SpecError(f"{at}.match: {len(route.match)} of them", hint=f"at most {MAX_MATCHERS}")
    for text in route.match:
        read_matcher(text, f"{at}.match")
    if route.kind == "mail":
        if not section.smtp:
            raise SpecError(f"{at}: mail needs a mail server", hint=f"smtp and sender under [{AT}]")
        if not route.to or len(route.to) > MAX_ADDRESSES:
            raise SpecError(f"{at}.to: {len(route.to)} addresses", hint=f"between 1 and {MAX_ADDRESSES}")
        for address in route.to:
            if address.count("@") != 1 or not address.isprintable() or " " in address or len(address) > 254:
                raise SpecError(f"{at}.to: '{shown(address)}' is not a mail address")
        if route.url or route.url_file or route.token_file:
            raise SpecError(f"{at}: mail goes to addresses, not to a URL")
        return
    if route.to:
        raise SpecError(f"{at}.to: only mail goes to addresses", hint="name a url or a url_file")
    if bool(route.url) == bool(route.url_file):
        raise SpecError(f"{at}: it needs a url or a url_file, not both")
    for name in ("url_file", "token_file"):
        _check_file(f"{at}.{name}", getattr(route, name))
    if route.url:
        try:
            check_url(route.url)
        except SpecError as error:
            raise SpecError(f"{at}.url: {error.message.removeprefix('notify: ')}", hint=error.hint) from None


def _check_file(field: str, name: str) -> None:
    if name and not Path(name).is_absolute():
        raise SpecError(f"{field}: '{shown(name)}' is not an absolute path")
