"""`hal security check`: what is weak on this machine's HAL, and how to mend it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from hal.cli.kit import exit_codes
from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.lazy_group import NounGroup
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.cli.local.site_security import Report, Settings
    from hal.client.rest.access_calls import TokenInfo
    from hal.runtime.home import Home

security = NounGroup(
    "security",
    help="These commands look at the HAL on this machine, running or not, and change nothing.",
    epilog="Example: hal security check",
)


@command(
    "check",
    output=True,
    examples="""
    hal security check                  # as the user who started HAL, or as root
    hal security check --json
    """,
)
@pass_screen
def check(screen: Screen) -> int:
    """Say what is weak, what could happen, and the command that mends it.

    Looks at modes and owners of HAL's files and sockets, listeners, certificates, settings, tokens, and who has which
    role. Prints no secret. Exit code 1: something serious was found; 4: you may not look at this HAL.
    """
    from hal.cli.local.site_security import Severity
    from hal.core.model import NotFoundError
    from hal.runtime.home import find_home

    home = find_home(screen.home)
    if home.owner() is None and not _hidden(home):
        raise NotFoundError(f"there is no HAL in {home.root}", hint="name its home with HAL_HOME or --home")
    report = _report(screen, home)
    screen.show(report, lambda: _render(screen, report))
    if any(one.severity is Severity.SERIOUS for one in report.findings):
        return exit_codes.FAILED
    return exit_codes.DENIED if _hidden(home) else exit_codes.OK


def _hidden(home: Home) -> bool:
    """Whether the home, or what is in it, may not be looked at."""
    try:
        os.listdir(home.root)
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def _report(screen: Screen, home: Home) -> Report:
    from hal.cli.local import site_security as site
    from hal.client.addresses.login import login_file

    now_ms = _now_ms()
    files = site.Files(home)
    findings = list(files.check())
    unseen = files.unseen
    settings, raw_url = _settings(home, unseen)
    pids = _processes(home)
    tokens = _tokens(screen, home, unseen) if pids.get("controller") else _unseen_tokens(unseen)
    public = str(settings.get(("access", "socket")) or "")
    findings += files.sockets(public)
    findings += site.check_settings(settings, home.config, raw_url=raw_url, as_root=home.owner() == site.ROOT)
    findings += site.check_listeners(pids, settings, unseen)
    findings += site.check_certificates(_certificates(home, settings), now_ms, unseen)
    findings += site.check_tokens(tokens, now_ms)
    findings += site.check_login(login_file())
    return site.Report(
        home=str(home.root),
        running="controller" in pids,
        findings=site.worst_first(findings),
        people=site.people_of(site.owner_name(home), settings, tokens),
        unseen=unseen,
    )


def _now_ms() -> int:
    import time

    return int(time.time() * 1_000)


def _settings(home: Home, unseen: list[str]) -> tuple[Settings, str]:
    """As they hold, and the URL of the store as it is in the file."""
    import tomllib

    from hal.cli.local.config import effective_settings_of
    from hal.cli.local.site_security import by_name
    from hal.core.model import HALError
    from hal.runtime.config_file import config_text

    try:
        settings = by_name(effective_settings_of(home.config, must_exist=False))
        store = tomllib.loads(config_text(home.config)).get("store", {})
    except HALError as error:
        unseen.append(f"{home.config}: {error.message}")
        return {}, ""
    return settings, str(store.get("url", "")) if isinstance(store, dict) else ""


def _processes(home: Home) -> dict[str, int]:
    """Processes of this home that run, by name: their ids."""
    from hal.runtime.identity import running

    found = {}
    try:
        names = sorted(path.stem for path in home.run_dir.glob("*.pid"))
    except OSError:
        return {}
    for name in names:
        try:
            process = running(home.pid_file(name))
        except OSError:
            continue
        if process is not None:
            found[name] = process.pid
    return found


def _certificates(home: Home, settings: Settings) -> list[Path]:
    own = [home.authority / name for name in ("authority.pem", "controller.pem", "rest.pem")]
    nodes = [home.nodes_dir / name / "identity" / "node.pem" for name in home.node_names()] if not _hidden(home) else []
    site = str(settings.get(("server", "tls_cert")) or "")
    return [*own, *nodes, *([Path(site)] if site else [])]


def _tokens(screen: Screen, home: Home, unseen: list[str]) -> tuple[TokenInfo, ...]:
    from hal.client.addresses.address import Address
    from hal.client.rest import access_calls
    from hal.client.sync_client import Client
    from hal.core.model import HALError

    try:
        with Client(Address(home=home), reconnect_s=0.0) as client:
            return client.call(access_calls.tokens())
    except HALError as error:
        unseen.append(f"API tokens: {error.message}")
        return ()


def _unseen_tokens(unseen: list[str]) -> tuple[TokenInfo, ...]:
    unseen.append("API tokens: HAL does not run")
    return ()


def _render(screen: Screen, report: Report) -> None:
    from hal.cli.local.site_security import Severity

    for one in report.findings:
        screen.line(f"{one.severity}: {one.what}")
        screen.line(f"  could happen: {one.risk}")
        screen.line(f"  mend: {one.mend}")
    counts = {severity: sum(one.severity is severity for one in report.findings) for severity in Severity}
    told = ", ".join(f"{count} {severity}" for severity, count in counts.items() if count)
    screen.line(f"{report.home}: {told or 'nothing found'}")
    if report.people:
        screen.table(("WHO", "ROLE", "RULE"), [(one.who, one.role, one.rule) for one in report.people])
    for text in report.unseen:
        screen.line(f"not seen: {text}")
    if report.unseen:
        screen.note("to see the rest, run this as the user who started HAL, or as root, while HAL runs")


security.add_command(check)
