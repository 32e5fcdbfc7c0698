"""The part that looks and tells, under virtual time, with a mail server and a web server that are real; routes of each
kind."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from hal.core.model import HALError, UnreachableError, parse_duration
from hal.core.model.alert_config import AlertsSection, RouteSection
from hal.core.model.samples_config import SamplesSection
from hal.daemons.collector.alerts_source import fullest_disks
from hal.planes.observability.alert_rules import NODE_DISK, rules_of
from hal.planes.observability.alerts.part import AlertsPart
from hal.planes.observability.alerts.recording import Recording, Scrape
from hal.planes.observability.alerts.sending import send
from hal.planes.observability.alerts.states import Alert, AlertState
from hal.planes.observability.alerts.telling import FIRST_RETRY_MS, MAX_TRIES, Message
from hal.planes.observability.samples.part import Samples
from hal.planes.observability.telemetry import ReceivedValues, Sender, SenderTable
from hal.runtime.interface import Runtime
from hal.runtime.virtual_process import VirtualProcess
from hal.runtime.virtual_world import VirtualWorld
from hal.wire.frames.telemetry import Series, SeriesKind
from hal.wire.roles import Role
from tests.daemons.controller.notices.servers import MailServer, WebServer, served

MINUTE_MS: Final = 60_000
WELL: Final = 'hal_nodes{state="up"} 2\nhal_store_writable 1\n'
AWAY: Final = 'hal_nodes{state="up"} 1\nhal_nodes{state="unreachable"} 1\nhal_store_writable 1\n'


class Site:
    """A collector that has alerts alone, and what it sees of a controller."""

    def __init__(self, world: VirtualWorld, directory: Path, **settings: Any) -> None:
        self.world, self.path = world, directory / "alerts.sqlite"
        self.section = AlertsSection(
            wait=parse_duration("0s"), interval=parse_duration("0s"), **{"every": parse_duration("15s"), **settings}
        )
        self.text: str | None = WELL
        """What the controller answers; None: nothing."""
        self.part: AlertsPart | None = None
        self.host = world.host("head")
        self.process = self.start()

    def start(self) -> VirtualProcess:
        return self.world.start(self.host, "observability", self.run)

    async def run(self, runtime: Runtime) -> None:
        self.part = AlertsPart(runtime, self.path, self.section, scrape=self.scrape, nodes_away=self.nodes_away)
        await self.part.run()

    async def scrape(self) -> bytes:
        if self.text is None:
            raise UnreachableError("it does not answer")
        return self.text.encode()

    async def nodes_away(self) -> Mapping[str, Sequence[str]]:
        return {"unreachable": ["n2"]}

    def states(self) -> dict[str, str]:
        assert self.part is not None
        return {alert.rule: alert.state.value for alert, _, _ in self.part.alerts()}

    def muted(self) -> dict[str, str]:
        assert self.part is not None
        return {alert.rule: muted for alert, _, muted in self.part.alerts()}


def test_a_controller_that_does_not_answer_is_an_alert_and_the_others_stay(tmp_path: Path) -> None:
    with VirtualWorld(1) as world:
        site = Site(world, tmp_path)
        site.text = AWAY
        world.run_for(3 * MINUTE_MS)
        assert site.states() == {"NodesDown": "firing"}
        site.text = None
        world.run_for(2 * MINUTE_MS)
        assert site.states() == {"NodesDown": "firing", "ControllerDown": "firing"}
        assert site.muted() == {"NodesDown": "ControllerDown", "ControllerDown": ""}
        site.text = WELL
        world.run_for(MINUTE_MS)
        assert site.states() == {"NodesDown": "resolved", "ControllerDown": "resolved"}


def test_alerts_outlive_the_collector_and_are_told_once(tmp_path: Path) -> None:
    """It is killed while an alert is pending, and while it fires: its time goes on, and one message comes of each."""
    web = WebServer()
    with served(web), VirtualWorld(1) as world:
        site = Site(world, tmp_path, routes=(RouteSection(name="hook", kind="webhook", url=web.url),))
        site.text = AWAY
        for _ in range(4):
            world.run_for(MINUTE_MS)
            site.process.kill()
            site.process = site.start()
        world.run_for(MINUTE_MS)
        assert site.states() == {"NodesDown": "firing"}
        site.text = WELL
        world.run_for(MINUTE_MS)
    assert [one["state"] for one in web.bodies] == ["firing", "resolved"]
    assert web.bodies[0]["alerts"][0]["detail"] == "n2"


def test_a_webhook_that_fails_is_tried_again_and_told_once(tmp_path: Path) -> None:
    web = WebServer()
    web.statuses = [503, 503]
    with served(web), VirtualWorld(1) as world:
        site = Site(world, tmp_path, routes=(RouteSection(name="hook", kind="webhook", url=web.url),))
        site.text = AWAY
        world.run_for(10 * MINUTE_MS)
        assert site.part is not None
        assert (site.part.routes["hook"].sent, site.part.routes["hook"].last_error) == (1, "")
    assert [one["state"] for one in web.bodies] == ["firing"] * 3


def test_a_target_that_is_gone_is_given_up_and_counted_and_looks_go_on(tmp_path: Path) -> None:
    route = RouteSection(name="hook", kind="webhook", url="http://127.0.0.1:1/secret-path")
    with VirtualWorld(1) as world:
        site = Site(world, tmp_path, routes=(route,))
        site.text = AWAY
        world.run_for(3 * MINUTE_MS + FIRST_RETRY_MS * 2**MAX_TRIES)
        assert site.part is not None
        assert (site.part.routes["hook"].sent, site.part.routes["hook"].dropped) == (0, 1)
        assert site.part.routes["hook"].last_error
        assert "secret" not in site.part.routes["hook"].last_error
        site.text = WELL
        world.run_for(MINUTE_MS)
        assert site.states() == {"NodesDown": "resolved"}


def test_people_are_told_while_the_database_cannot_be_written_and_once_only(tmp_path: Path) -> None:
    """What was told meanwhile is written afterwards, so that a collector that starts again does not repeat it."""
    web = WebServer()
    tables = ("alerts", "told", "scrapes")
    with served(web), VirtualWorld(1) as world, closing(sqlite3.connect(tmp_path / "alerts.sqlite")) as other:
        site = Site(world, tmp_path, routes=(RouteSection(name="hook", kind="webhook", url=web.url),))
        world.run_for(MINUTE_MS)
        for table in tables:
            fails = "BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END"
            other.execute(f"CREATE TRIGGER full_{table} BEFORE INSERT ON {table} {fails}")
        site.text = AWAY
        world.run_for(4 * MINUTE_MS)
        assert site.states() == {"NodesDown": "firing"}
        assert [one["state"] for one in web.bodies] == ["firing"]
        assert site.part is not None
        assert "disk is full" in str(site.part.health()["database"])
        for table in tables:
            other.execute(f"DROP TRIGGER full_{table}")
        world.run_for(MINUTE_MS)
        assert site.part.health()["database"] == "is written"
        site.process.kill()
        site.process = site.start()
        world.run_for(MINUTE_MS)
        assert site.states() == {"NodesDown": "firing"}
    assert [one["state"] for one in web.bodies] == ["firing"]


# ── one message on each kind of route ─────────────────────────────────────────────────────────────────────────────

ALERT: Final = Alert(
    rule="NodesDown", labels={"state": "down"}, severity="critical", state=AlertState.FIRING, since_ms=0, fired_ms=1,
    value=1, summary="Nodes that are down: 1", description="Look.", runbook="docs/alerts.md#nodesdown", detail="n2",
)  # fmt: skip


def sent(route: RouteSection, **settings: Any) -> None:
    message = Message(route=route.name, rule=ALERT.rule, firing=(ALERT,), resolved=())
    send(AlertsSection(routes=(route,), **settings), route, message, "hpc", "<1@hal>", 1_000)


def test_each_kind_of_route_gets_what_it_understands(tmp_path: Path) -> None:
    mail, web = MailServer(), WebServer()
    with served(mail, web):
        (tmp_path / "url").write_text(f"{web.url}\n")
        base = web.url.partition("/hook")[0]
        sent(RouteSection(name="w", kind="webhook", url=web.url))
        sent(RouteSection(name="s", kind="slack", url_file=str(tmp_path / "url")))
        sent(RouteSection(name="a", kind="alertmanager", url=f"{base}/prefix/"))
        to = RouteSection(name="m", kind="mail", to=("a@example.org", "b@example.org"))
        settings = {"smtp": f"127.0.0.1:{mail.port}", "smtp_security": "none", "sender": "hal@example.org"}
        mail.refuse = {"a@example.org": "550 nobody"}
        sent(to, **settings)
    hook, slack, (managed,) = web.bodies
    assert (hook["hal"], hook["alerts"][0]["labels"]) == ("hpc", {"state": "down"})
    assert list(slack) == ["text"]
    assert managed["labels"] == {"alertname": "NodesDown", "severity": "critical", "hal": "hpc", "state": "down"}
    assert [re.split(" ", head)[1] for head in web.heads][2] == "/prefix/api/v2/alerts"
    assert (mail.recipients, mail.mails[0]["X-HAL-Alert"]) == (["b@example.org"], "NodesDown")


@pytest.mark.parametrize("held", [None, "", "two words", "no-url", "https://user:hush@x/"])
def test_a_file_that_holds_no_url_is_an_error_without_what_it_holds(tmp_path: Path, held: str | None) -> None:
    if held is not None:
        (tmp_path / "url").write_text(held)
    with pytest.raises(HALError) as caught:
        sent(RouteSection(name="s", kind="slack", url_file=str(tmp_path / "url")))
    assert "s" in str(caught.value)
    assert not held or held not in str(caught.value)


def test_a_token_that_would_begin_a_header_of_its_own_is_refused(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a\r\nX: y")
    with pytest.raises(UnreachableError, match="token_file"):
        sent(RouteSection(name="w", kind="webhook", url="http://127.0.0.1:1/", token_file=str(tmp_path / "token")))


def test_nodes_with_full_disks_are_alerts_of_their_own_and_the_fullest_alone(tmp_path: Path) -> None:
    """Sixty nodes send, of which 55 have a twentieth free or less: fifty alerts. One has not been heard for minutes."""

    async def main(runtime: Runtime) -> None:
        samples = Samples(runtime, tmp_path, SamplesSection())
        for number in range(60):
            free = number / 1_000 if number < 55 else 0.5
            if number == 1:
                await runtime.sleep(2 * MINUTE_MS)  # node 0 is not heard any more
            table = SenderTable()
            table.define(0, [Series(name, SeriesKind.GAUGE, {}) for name in NODE_DISK])
            values = np.array([free * 1e9, 1e9])
            sender = Sender(Role.AGENT, f"n{number:02}", "boot:1")
            now_ms = runtime.now_ms()
            samples.take(ReceivedValues(sender, now_ms, now_ms, table, np.arange(2, dtype=np.uint32), values))
        found = fullest_disks(samples)
        recording = Recording()
        recording.add(Scrape(runtime.now_ms(), found))
        (rule,) = [rule for rule in rules_of(AlertsSection()) if rule.name == "NodeDiskNearlyFull"]
        nodes = sorted(dict(labels)["node"] for labels in rule.condition.value(recording))
        assert nodes == [f"n{number:02}" for number in range(1, 51)]

    with VirtualWorld(1) as world:
        process = world.start(world.host("head"), "observability", main)
        world.run_for(10 * MINUTE_MS)
        assert process.exit_code is None or process.exit_code == 0
