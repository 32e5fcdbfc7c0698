"""`hal alerts`, `hal alert`: what is wrong with this HAL, silences, tests of who is told."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from hal.cli.kit import exit_codes
from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.lazy_group import NounGroup
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.client.rest.alert_calls import AlertInfo, AlertsInfo, SilenceInfo

COLUMNS = ("STATE", "SEVERITY", "RULE", "SINCE", "SUMMARY", "NOTE")
SILENCE_COLUMNS = ("ID", "ACTIVE", "UNTIL", "BY", "MATCHERS", "COMMENT")
WATCH_EVERY_S = 2.0

alert = NounGroup(
    "alert",
    help="Alerts are found by the collector: hal up --with observability. hal alerts lists them.",
    epilog="Example: hal alert silence rule=NodesDown --for 2h",
)


@command(
    "alerts",
    output=True,
    examples="""
    hal alerts                 # what fires, or soon may
    hal alerts --all           # and what was resolved within a day
    hal alerts -w              # until Ctrl-C
    hal alerts -o json | jq '.alerts[].rule'
    """,
)
@click.option("--all", "everything", is_flag=True, help="Include alerts that were resolved within a day.")
@click.option("-w", "--watch", is_flag=True, help="Update the list until Ctrl-C; in a pipe it is printed once.")
@click.option("--collector", metavar="URL", default="", help="The collector (default: $HAL_COLLECTOR, else here).")
@pass_screen
def alerts(screen: Screen, everything: bool, watch: bool, collector: str) -> None:
    """The collector looks every 15 s. NOTE says who is not told, and why. docs/alerts.md says what to do about each."""
    from hal.cli.kit.collector import collector_client
    from hal.client.rest import alert_calls

    client = collector_client(screen, collector)

    def found() -> AlertsInfo:
        return client.call(alert_calls.alerts())

    if watch and not screen.plain and screen.out.isatty():
        _watch(screen, found, everything)
        return
    answer = found()
    if screen.plain:
        screen.emit(answer)
        return
    listed = _listed(answer, everything)
    if listed:
        screen.table(COLUMNS, [_row(one) for one in listed])
    elif not answer.looked_ms:
        screen.note("the collector has not looked yet")
    else:
        screen.note("nothing is wrong, as far as the collector knows")
    if answer.looked_ms and not answer.answers:
        screen.note("the controller does not answer the collector: other alerts are as they were")
    for route in answer.routes:
        if route.last_error:
            screen.note(f"route {route.name}: {route.last_error}")


def _listed(answer: AlertsInfo, everything: bool) -> list[AlertInfo]:
    return [one for one in answer.alerts if everything or one.state != "resolved"]


def _row(one: AlertInfo) -> tuple[str, ...]:
    from hal.cli.kit.formats import instant

    since_ms = one.resolved_ms or one.fired_ms or one.since_ms
    summary = f"{one.summary}: {one.detail}" if one.detail else one.summary
    muted = f"muted by {one.muted_by}" if one.muted_by else ""
    note = f"silence {one.silence}" if one.silence is not None else muted
    return one.state, one.severity, one.rule, instant(since_ms), summary, note


def _watch(screen: Screen, found: object, everything: bool) -> None:
    """Print it anew, in place of what was printed before."""
    from rich.live import Live

    from hal.cli.kit.tables import console_on, rich_table

    assert callable(found)
    console = console_on(screen.out)
    with Live(console=console, auto_refresh=False, screen=False) as live:
        try:
            while True:
                rows = [_row(one) for one in _listed(found(), everything)]
                live.update(rich_table(COLUMNS, rows, "STATE", console), refresh=True)
                time.sleep(WATCH_EVERY_S)
        except KeyboardInterrupt:
            return


@command(
    "silence",
    output=True,
    examples="""
    hal alert silence rule=NodesDown --for 2h -m "new switch"
    hal alert silence queue=gpu* severity!=critical --until "tomorrow 08:00"
    """,
)
@click.argument("matchers", metavar="LABEL=PATTERN...", nargs=-1, required=True)
@click.option("--for", "duration", metavar="TIME", help="For so long, from now on.")
@click.option("--until", metavar="TIME", help="Until then.")
@click.option("-m", "--comment", default="", metavar="TEXT", help="Why.")
@click.option("--collector", metavar="URL", default="", help="The collector (default: $HAL_COLLECTOR, else here).")
@pass_screen
def silence(
    screen: Screen, matchers: Sequence[str], duration: str | None, until: str | None, comment: str, collector: str
) -> None:
    """Tell nobody of the alerts that fit all matchers; for operators. They are listed all the same.

    A label is one of the alert's, `rule` or `severity`; LABEL!=PATTERN: not so; * stands for any letters.
    """
    from hal.cli.kit.collector import collector_client
    from hal.cli.kit.formats import instant
    from hal.client.instants import instant_ms
    from hal.client.rest import alert_calls
    from hal.core.model import parse_duration

    if (duration is None) == (until is None):
        raise click.UsageError("say until when: --for TIME or --until TIME")
    if duration is not None:
        until_ms = round(time.time() * 1_000) + int(parse_duration(duration, field="--for"))
    else:
        until_ms = instant_ms(str(until), "--until")
    made = collector_client(screen, collector).call(alert_calls.silence(matchers, until_ms, comment))
    screen.show(made, lambda: screen.line(f"silence {made.id} until {instant(made.until_ms)}"))


@command("unsilence", output=True, examples="hal alert unsilence 3")
@click.argument("number", metavar="ID", type=click.IntRange(1))
@click.option("--collector", metavar="URL", default="", help="The collector (default: $HAL_COLLECTOR, else here).")
@pass_screen
def unsilence(screen: Screen, number: int, collector: str) -> None:
    """End a silence now; for operators."""
    from hal.cli.kit.collector import collector_client
    from hal.client.rest import alert_calls

    ended = collector_client(screen, collector).call(alert_calls.unsilence(number))
    screen.show(ended, lambda: screen.line(f"silence {ended.id} is over"))


@command("silences", output=True, examples="hal alert silences")
@click.option("--collector", metavar="URL", default="", help="The collector (default: $HAL_COLLECTOR, else here).")
@pass_screen
def silences(screen: Screen, collector: str) -> None:
    """List silences; a week after their end they are gone."""
    from hal.cli.kit.collector import collector_client
    from hal.client.rest import alert_calls

    found = collector_client(screen, collector).call(alert_calls.silences())
    screen.show_list(found, SILENCE_COLUMNS, _silence_row, "there are no silences")


def _silence_row(one: SilenceInfo) -> tuple[str, ...]:
    from hal.cli.kit.formats import instant

    active = "yes" if one.active else "no"
    return str(one.id), active, instant(one.until_ms), one.author, " ".join(one.matchers), one.comment


@command("test", output=True, examples="hal alert test\nhal alert test pager")
@click.argument("route", default="")
@click.option("--collector", metavar="URL", default="", help="The collector (default: $HAL_COLLECTOR, else here).")
@pass_screen
def test(screen: Screen, route: str, collector: str) -> int:
    """Send a test alert on a route, or on all; for operators. Exits with 1 if one does not take it."""
    from hal.cli.kit.collector import collector_client
    from hal.client.rest import alert_calls

    found = collector_client(screen, collector).call(alert_calls.test(route))

    def render() -> None:
        for one in found:
            screen.line(f"{one.route}: {'taken' if one.ok else one.error}")

    screen.show(found, render)
    return exit_codes.OK if all(one.ok for one in found) else exit_codes.FAILED


@command("rules", examples="hal alert rules > hal-rules.yml && promtool check rules hal-rules.yml")
@click.option("--collector", metavar="URL", default="", help="The collector (default: $HAL_COLLECTOR, else here).")
@pass_screen
def rules(screen: Screen, collector: str) -> None:
    """Print the rules as a rule file for Prometheus, with what hal.toml says of them."""
    from hal.cli.kit.collector import collector_client
    from hal.client.rest import alert_calls

    screen.out.write(collector_client(screen, collector).call(alert_calls.prometheus_rules()))


for each in (silence, unsilence, silences, test, rules):
    alert.add_command(each)
