"""What outlives the collector of alerts: their states, what was told, silences, the scrapes of the last hours.

All functions but the constant block; they run in a transaction of the part's database.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from hal.planes.observability.alerts.recording import Labels, Scrape
from hal.planes.observability.alerts.states import Alert, Silence
from hal.planes.observability.alerts.telling import Told

MIGRATIONS: Final = (
    """
CREATE TABLE alerts (key TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE told (route TEXT NOT NULL, rule TEXT NOT NULL, body BLOB NOT NULL, PRIMARY KEY (route, rule));
CREATE TABLE silences (id INTEGER PRIMARY KEY AUTOINCREMENT, body BLOB NOT NULL);
CREATE TABLE scrapes (at_ms INTEGER PRIMARY KEY, body BLOB NOT NULL);
""",
)
SILENCES_KEPT_MS: Final = 7 * 86_400_000
"""After their end."""

_Series = list[tuple[str, list[tuple[Labels, float]]]]
_SERIES: Final = msgspec.msgpack.Decoder(_Series)
_ALERT: Final = msgspec.json.Decoder(Alert)
_TOLD: Final = msgspec.json.Decoder(Told)
_SILENCE: Final = msgspec.json.Decoder(Silence)


def read_alerts(connection: sqlite3.Connection) -> dict[str, Alert]:
    """All alerts, by key."""
    found = (_ALERT.decode(body) for (body,) in connection.execute("SELECT body FROM alerts"))
    return {alert.key: alert for alert in found}


def write_alerts(connection: sqlite3.Connection, alerts: Mapping[str, Alert], before: Mapping[str, Alert]) -> None:
    """Bring the table from one state to another."""
    gone = [(key,) for key in before if key not in alerts]
    new = [(key, msgspec.json.encode(alert)) for key, alert in alerts.items() if before.get(key) != alert]
    connection.executemany("DELETE FROM alerts WHERE key = ?", gone)
    connection.executemany("INSERT OR REPLACE INTO alerts VALUES (?, ?)", new)


def read_told(connection: sqlite3.Connection) -> dict[tuple[str, str], Told]:
    """What was told, by route and rule."""
    return {(route, rule): _TOLD.decode(body) for route, rule, body in connection.execute("SELECT * FROM told")}


def write_told(connection: sqlite3.Connection, route: str, rule: str, told: Told | None) -> None:
    """What was told; None: nothing any more."""
    connection.execute("DELETE FROM told WHERE route = ? AND rule = ?", (route, rule))
    if told is not None:
        connection.execute("INSERT INTO told VALUES (?, ?, ?)", (route, rule, msgspec.json.encode(told)))


def read_silences(connection: sqlite3.Connection) -> list[Silence]:
    """All silences, oldest first."""
    return [_SILENCE.decode(body) for (body,) in connection.execute("SELECT body FROM silences ORDER BY id")]


def add_silence(connection: sqlite3.Connection, silence: Silence, now_ms: int) -> Silence:
    """Store a silence, which gets its number; those that ended long ago go."""
    for one in read_silences(connection):
        if one.until_ms + SILENCES_KEPT_MS < now_ms:
            connection.execute("DELETE FROM silences WHERE id = ?", (one.id,))
    number = connection.execute("INSERT INTO silences (body) VALUES (?)", (b"",)).lastrowid
    assert number is not None
    return put_silence(connection, msgspec.structs.replace(silence, id=number))


def put_silence(connection: sqlite3.Connection, silence: Silence) -> Silence:
    """Change a silence."""
    connection.execute("UPDATE silences SET body = ? WHERE id = ?", (msgspec.json.encode(silence), silence.id))
    return silence


def add_scrape(connection: sqlite3.Connection, scrape: Scrape, since_ms: int) -> None:
    """Keep a scrape; those before an instant go."""
    series: _Series = [(metric, list(some.items())) for metric, some in scrape.values.items()]
    connection.execute("INSERT OR REPLACE INTO scrapes VALUES (?, ?)", (scrape.at_ms, msgspec.msgpack.encode(series)))
    connection.execute("DELETE FROM scrapes WHERE at_ms < ? OR at_ms > ?", (since_ms, scrape.at_ms))


def read_scrapes(connection: sqlite3.Connection, since_ms: int) -> Sequence[Scrape]:
    """Those since an instant, oldest first."""
    rows = connection.execute("SELECT at_ms, body FROM scrapes WHERE at_ms >= ? ORDER BY at_ms", (since_ms,))
    return [Scrape(at_ms, {metric: dict(some) for metric, some in _SERIES.decode(body)}) for at_ms, body in rows]
