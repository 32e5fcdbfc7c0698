"""The collector's alerts: looks at the controller's metrics, works rules out, and tells routes. One of its parts.

A controller that does not answer is an alert itself; until it answers, the others stay as they are. A database that
cannot be written, on a full disk, say, is no reason to be silent: rules are worked out and people are told from what is
in memory, and what was not written is written when that succeeds again.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from hal.core.model import ConflictError, HALError, NotFoundError, OverloadedError, SpecError, StoreError
from hal.core.model.alert_config import AlertsSection, RouteSection
from hal.planes.observability.alert_rules import Rule, reads_of, rules_of
from hal.planes.observability.alerts import tables
from hal.planes.observability.alerts.recording import KEPT_MS, Parser, Recording, Scrape, Values
from hal.planes.observability.alerts.sending import send
from hal.planes.observability.alerts.states import Alert, AlertState, Silence, advanced
from hal.planes.observability.alerts.telling import (
    Message,
    Told,
    after_failure,
    after_success,
    due,
    matchers_of,
    muted_by,
    silenced_by,
)
from hal.planes.observability.database import Database
from hal.runtime.interface import Lane, Runtime

MAX_SILENCES: Final = 1_000
MAX_SILENCE_MS: Final = 366 * 86_400_000
MAX_COMMENT_CHARS: Final = 500
MAX_NAMED: Final = 20
"""Nodes that an alert names."""
UP: Final = "up"
AWAY_RULE: Final = "NodesDown"
TEST: Final = "Test"


class RouteCounts(Struct):
    """How a route does, since the collector began."""

    sent: int = 0
    dropped: int = 0
    last_error: str = ""


class AlertsPart:
    """See the module."""

    def __init__(
        self,
        runtime: Runtime,
        path: Path,
        section: AlertsSection,
        *,
        scrape: Callable[[], Awaitable[bytes]],
        nodes_away: Callable[[], Awaitable[Mapping[str, Sequence[str]]]],
        sampled: Callable[[], Values] = dict,
    ) -> None:
        """
        Args:
            path: of the database.
            scrape: reads the controller's metrics in Prometheus' text format; raises a HALError if it does not answer.
            nodes_away: names of the nodes that are not up, by state; raises a HALError as well.
            sampled: what nodes have sent of themselves, as far as rules look at it; bounded by who gives it.
        """
        self._runtime, self._section, self._instance = runtime, section, section.cluster
        self._scrape, self._nodes_away, self._sampled = scrape, nodes_away, sampled
        self._database = Database(runtime, path, tables.MIGRATIONS)
        self.rules: tuple[Rule, ...] = rules_of(section)
        self._parser = Parser(reads_of(self.rules))
        self._recording = Recording()
        self._alerts: dict[str, Alert] = {}
        self._stored: dict[str, Alert] = {}
        """What the database has of them."""
        self._unwritten = ""
        """Why the last write failed; empty: it did not."""
        self._told_unwritten: set[tuple[str, str]] = set()
        self._told: dict[tuple[str, str], Told] = {}
        self._silences: list[Silence] = []
        self.looked_ms = 0
        """When the controller was looked at last; 0: not yet."""
        self.answers = False
        """It answered then."""
        self.routes: dict[str, RouteCounts] = {route.name: RouteCounts() for route in section.routes}
        self._dropped_alerts = 0

    @property
    def name(self) -> str:
        """Of the part."""
        return "alerts"

    def health(self) -> Mapping[str, float | int | str]:
        """As `Part`."""
        firing = sum(alert.state is AlertState.FIRING for alert in self._alerts.values())
        return {
            "rules": len(self.rules),
            "firing": firing,
            "sent": sum(route.sent for route in self.routes.values()),
            "dropped": sum(route.dropped for route in self.routes.values()) + self._dropped_alerts,
            "bytes": self._database.size_bytes(),
            "database": self._unwritten or "is written",
        }

    async def close(self) -> None:
        """As `Part`."""
        await self._database.close()

    async def run(self) -> None:
        """Look, tell, wait; until cancelled."""
        if not self._section.on:
            await self._runtime.stopping.wait()
            return
        await self._load()
        telling: asyncio.Task[None] | None = None
        try:
            while True:
                await self.look()
                # A target that does not answer delays the other messages, and no look.
                if telling is None or telling.done():
                    if telling is not None:
                        telling.result()
                    telling = asyncio.create_task(self._tell())
                await self._runtime.sleep(int(self._section.every))
        finally:
            if telling is not None:
                telling.cancel()

    async def _load(self) -> None:
        since_ms = self._runtime.now_ms() - KEPT_MS
        self._alerts = self._stored = await self._database.read(tables.read_alerts)
        self._told = await self._database.read(tables.read_told)
        self._told_unwritten.clear()
        self._silences = await self._database.read(tables.read_silences)
        self._recording = Recording()
        for scrape in await self._database.read(partial(tables.read_scrapes, since_ms=since_ms)):
            self._recording.add(scrape)

    # ── looking ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def look(self) -> None:
        """Read the metrics, and work all rules out."""
        try:
            values: Values = self._parser.parse((await self._scrape()).decode("utf-8", "replace"))
            self.answers = True
        except HALError:
            values, self.answers = {}, False
        now_ms = self._runtime.now_ms()
        values = {**values, **self._sampled(), UP: {(): float(self.answers)}}
        scrape = Scrape(now_ms, values)
        if self._recording.add(scrape):
            await self._keep(partial(tables.add_scrape, scrape=scrape, since_ms=now_ms - KEPT_MS))
        known = self.rules if self.answers else [rule for rule in self.rules if rule.mutes]
        found = {rule.name: rule.condition.value(self._recording) for rule in known}
        after, dropped = advanced(self._alerts, self.rules, found, now_ms)
        self._alerts = after = await self._detailed(after)
        if after != self._stored and await self._keep(partial(tables.write_alerts, alerts=after, before=self._stored)):
            self._stored = after
        self.looked_ms, self._dropped_alerts = now_ms, self._dropped_alerts + dropped

    async def _keep(self, call: Callable[[sqlite3.Connection], None]) -> bool:
        """Write; False: that failed, which is logged when it begins."""
        try:
            await self._database.write(call)
        except (StoreError, OverloadedError) as error:
            if not self._unwritten:
                self._runtime.log.error("alerts cannot be kept, and go on from memory", reason=error.message)
            self._unwritten = error.message
            return False
        self._unwritten = ""
        return True

    async def _detailed(self, alerts: dict[str, Alert]) -> dict[str, Alert]:
        """With the names of nodes that are away, as long as the controller says them."""
        if not self.answers or not any(
            alert.rule == AWAY_RULE and alert.state is not AlertState.RESOLVED for alert in alerts.values()
        ):
            return alerts
        try:
            away = await self._nodes_away()
        except HALError:
            return alerts
        found = dict(alerts)
        for key, alert in alerts.items():
            names = away.get(alert.labels.get("state", ""), ())
            if alert.rule == AWAY_RULE and alert.state is not AlertState.RESOLVED and names:
                more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
                found[key] = replace(alert, detail=", ".join(names[:MAX_NAMED]) + more)
        return found

    # ── telling ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _tell(self) -> None:
        now_ms = self._runtime.now_ms()
        for key in sorted(self._told_unwritten):
            await self._keep_told(key)
        routes = {route.name: route for route in self._section.routes}
        for message in due(self._section, self.rules, self._alerts, self._silences, self._told, now_ms):
            key = (message.route, message.rule)
            before = self._told.get(key, Told())
            counts = self.routes[message.route]
            try:
                await self._send(routes[message.route], message)
            except HALError as error:
                told, given_up = after_failure(before, now_ms)
                counts.dropped += given_up
                counts.last_error = error.message
                self._runtime.log.warning(
                    "an alert was not taken", route=message.route, rule=message.rule, reason=error.message,
                    given_up=given_up,
                )  # fmt: skip
                after: Told | None = told
            else:
                counts.sent += 1
                counts.last_error = ""
                after = after_success(message, before, self._alerts, now_ms)
            if after is None:
                self._told.pop(key, None)
            else:
                self._told[key] = after
            await self._keep_told(key)

    async def _keep_told(self, key: tuple[str, str]) -> None:
        route, rule = key
        if await self._keep(partial(tables.write_told, route=route, rule=rule, told=self._told.get(key))):
            self._told_unwritten.discard(key)
        else:
            self._told_unwritten.add(key)

    async def _send(self, route: RouteSection, message: Message) -> None:
        now_ms = self._runtime.now_ms()
        lane = Lane.MAIL if route.kind == "mail" else Lane.WEBHOOK
        message_id = f"<alert-{message.rule}-{now_ms}@hal.{self._runtime.pid}>"
        call = partial(send, self._section, route, message, self._instance, message_id, now_ms)
        await self._runtime.run_blocking(call, lane)

    async def test(self, name: str) -> dict[str, str]:
        """Send a test alert on one route, or on all; why each did not take it, '' if it did.

        Raises:
            NotFoundError: there is no such route.
        """
        routes = [route for route in self._section.routes if name in ("", route.name)]
        if not routes:
            hint = "hal.toml: [[observability.alerts.routes]]"
            raise NotFoundError(f"there is no route '{name}'" if name else "there are no routes", hint=hint)
        now_ms = self._runtime.now_ms()
        alert = Alert(
            rule=TEST, labels={}, severity="info", state=AlertState.FIRING, since_ms=now_ms, fired_ms=now_ms, value=1,
            summary="This is a test", description="Somebody has typed `hal alert test`. Nothing is wrong.",
        )  # fmt: skip
        found = {}
        for route in routes:
            try:
                await self._send(route, Message(route=route.name, rule=TEST, firing=(alert,), resolved=()))
            except HALError as error:
                found[route.name] = error.message
            else:
                found[route.name] = ""
        return found

    # ── what is asked ─────────────────────────────────────────────────────────────────────────────────────────────

    def alerts(self) -> list[tuple[Alert, int | None, str]]:
        """All alerts, the worst and newest first; the silence that holds for each, and the rule that mutes it."""
        now_ms = self._runtime.now_ms()
        order = {AlertState.FIRING: 0, AlertState.PENDING: 1, AlertState.RESOLVED: 2}
        worst = {"critical": 0, "warning": 1, "info": 2}
        listed = sorted(self._alerts.values(), key=lambda one: (order[one.state], worst[one.severity], -one.since_ms))
        return [
            (one, silenced_by(one, self._silences, now_ms), muted_by(one, self._alerts.values(), self.rules))
            for one in listed
        ]

    def silences(self) -> list[Silence]:
        """All of them, oldest first; those that ended long ago are gone."""
        return list(self._silences)

    async def silence(self, matchers: Sequence[str], until_ms: int, author: str, comment: str) -> Silence:
        """Tell nobody of what fits, until then.

        Raises:
            SpecError: no matcher, an end that is none, a comment that is too long.
            ConflictError: there are too many silences.
            StoreError: it could not be kept.
        """
        now_ms = self._runtime.now_ms()
        if not matchers:
            raise SpecError("matchers: none is named", hint="LABEL=PATTERN, as rule=NodesDown; rule=* is every alert")
        matchers_of(matchers, "matchers")
        if not now_ms < until_ms <= now_ms + MAX_SILENCE_MS:
            raise SpecError("until_ms: it must be in the future, and within a year", hint="silence it again then")
        if len(comment) > MAX_COMMENT_CHARS:
            raise SpecError(f"comment: longer than {MAX_COMMENT_CHARS} characters")
        if sum(now_ms < one.until_ms for one in self._silences) >= MAX_SILENCES:
            raise ConflictError(f"there are {MAX_SILENCES} silences", hint="end some: hal alert unsilence ID")
        wanted = Silence(
            id=0, matchers=tuple(matchers), from_ms=now_ms, until_ms=until_ms, author=author, comment=comment
        )
        made = await self._database.write(partial(tables.add_silence, silence=wanted, now_ms=now_ms))
        self._silences = await self._database.read(tables.read_silences)
        return made

    async def unsilence(self, number: int) -> Silence:
        """End a silence now; one that has ended stays as it is.

        Raises:
            NotFoundError: there is none of that number.
            StoreError: it could not be kept.
        """
        found = next((one for one in self._silences if one.id == number), None)
        if found is None:
            raise NotFoundError(f"there is no silence {number}", hint="hal alert silences")
        now_ms = self._runtime.now_ms()
        if found.until_ms > now_ms:
            found = replace(found, until_ms=now_ms)
            await self._database.write(partial(tables.put_silence, silence=found))
            self._silences = await self._database.read(tables.read_silences)
        return found
