"""What an operator should know of a collector that runs: what was dropped lately, and how far it is behind. Pure.

Counts of parts only grow. They are noted every minute, so that a warning is about the last hour and ends by itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from msgspec import Struct

NOTED_EVERY_MS: Final = 60_000
LATELY_MS: Final = 3_600_000
MOST_NOTES: Final = LATELY_MS // NOTED_EVERY_MS + 1
BEHIND_MS: Final = 120_000
"""A history that has more to read than it has read within this is behind."""
UNREAD_BYTES: Final = 64 << 20
"""Of HAL's own logs: more than that waits to be read."""

Values = Mapping[str, float | int | str]
"""Of one part's health."""


class Warned(Struct, frozen=True, kw_only=True):
    """One thing that is not as it should be."""

    what: str
    do: str
    """What helps."""


class _Loss(NamedTuple):
    part: str
    values: tuple[str, ...]
    """Counts of the part that are added up."""
    what: str
    do: str


_SLOWER: Final = "have nodes measure more rarely ([node.telemetry] every), or look at what floods it: GET /v1/health"
_DISK: Final = "look for free space on its disk, and at its log: hal logs --search is of no help then"
_LOSSES: Final = (
    _Loss(
        "telemetry",
        ("values_dropped_by_senders", "lines_dropped_by_senders", "spans_dropped_by_senders"),
        "values, lines or spans were dropped where they were sent: the collector took them too slowly, or was away",
        "is its machine overloaded, or the network to it cut?",
    ),
    _Loss(
        "telemetry",
        ("senders_held_seconds",),
        "seconds long senders that exceed their rate were not read: what they cannot keep they drop",
        _SLOWER,
    ),
    _Loss(
        "telemetry",
        ("values_faulty", "lines_faulty", "spans_faulty"),
        "values, lines or spans made no sense",
        "do all machines run the same version of HAL? Its log names the senders",
    ),
    _Loss(
        "attribution",
        ("lines_refused", "spans_refused"),
        "lines or spans were refused: a node sent them about attempts of others, or in another's name",
        "the collector's log names the nodes: who has root there?",
    ),
    _Loss("attribution", ("lines_dropped", "spans_dropped"), "lines or spans were dropped before it was known whose "
          "they are", "does the controller answer the collector?"),
    _Loss("samples", ("dropped_values",), "values were dropped: there are too many series",
          "raise [observability.samples] series"),
    _Loss("samples", ("dropped_blocks", "failed_writes"), "samples could not be written", _DISK),
    _Loss("logs", ("dropped_lines", "failed_writes"), "log lines were dropped before they were written", _DISK),
    _Loss("logs", ("dropped_exports",), "log lines were not taken by the receiver of OTLP",
          "does it run? [observability.logs] and [observability.traces] name it"),
    _Loss("traces", ("dropped_spans",), "spans were not taken by the receiver of OTLP",
          "does it run? [observability.traces] names it"),
    _Loss("alerts", ("dropped",), "messages about alerts reached nobody", "see: hal alerts, hal alert test"),
    _Loss("history", ("attempts_lost",), "ended attempts were removed before they were read: they are in no sum",
          "keep them longer: [readers] in hal.toml"),
)  # fmt: skip


class Losses:
    """What parts count of losses, over the last hour."""

    def __init__(self) -> None:
        self._notes: deque[tuple[int, tuple[int, ...]]] = deque(maxlen=MOST_NOTES)
        """When, and the counts in the order of `_LOSSES`."""

    def note(self, now_ms: int, parts: Mapping[str, Values]) -> None:
        """Note what they count now."""
        self._notes.append((now_ms, _counts(parts)))

    def lately(self, now_ms: int, parts: Mapping[str, Values]) -> list[tuple[_Loss, int]]:
        """What was lost within the last hour, or since this process began."""
        while self._notes and self._notes[0][0] < now_ms - LATELY_MS:
            self._notes.popleft()
        before = self._notes[0][1] if self._notes else (0,) * len(_LOSSES)
        grown = [now - then for now, then in zip(_counts(parts), before, strict=True)]
        return [(loss, more) for loss, more in zip(_LOSSES, grown, strict=True) if more > 0]


def _counts(parts: Mapping[str, Values]) -> tuple[int, ...]:
    return tuple(sum(_number(parts.get(loss.part, {}), name) for name in loss.values) for loss in _LOSSES)


def warnings_of(parts: Mapping[str, Values], failures: Mapping[str, str], losses: Losses, now_ms: int) -> list[Warned]:
    """All of them, worst first.

    Args:
        failures: of parts that do not work: why; empty: not to be shown.
        now_ms: since 1970.
    """
    found = [
        Warned(what=f"its part {name} does not work" + (f": {why}" if why else ""), do="it is tried again; see its log")
        for name, why in failures.items()
    ]
    away = str(parts.get("history", {}).get("controller", ""))
    if away.startswith("away"):
        found.append(Warned(what="the controller does not answer it", do="ended attempts are read once it does"))
    if behind_ms := behind_of(parts, now_ms):
        found.append(
            Warned(
                what=f"it is {_span(behind_ms)} behind: hal usage lacks what ended since",
                do="it catches up; if not, its disk or its machine is too slow",
            )
        )
    if (unread := _number(parts.get("logs", {}), "unread_bytes")) > UNREAD_BYTES:
        found.append(Warned(what=f"{unread >> 20} MiB of HAL's own logs wait to be read", do=_DISK))
    for loss, count in losses.lately(now_ms, parts):
        found.append(Warned(what=f"within an hour {count:,} {loss.what}", do=loss.do))
    return found


def behind_of(parts: Mapping[str, Values], now_ms: int) -> int:
    """How far the history is behind the controller; 0: it is not, or less than it matters."""
    history = parts.get("history", {})
    newest_ms = _number(history, "newest_ms")
    if not _number(history, "catching_up") or not newest_ms:
        return 0
    behind_ms = now_ms - newest_ms
    return behind_ms if behind_ms > BEHIND_MS else 0


def summary_of(parts: Mapping[str, Values], now_ms: int) -> str:
    """One line: what it has, and how far it is."""
    telemetry, samples, history = (parts.get(name, {}) for name in ("telemetry", "samples", "history"))
    said = [f"{_number(samples, 'sources')} senders heard", f"{_number(history, 'attempts_recorded'):,} attempts read"]
    behind_ms = behind_of(parts, now_ms)
    said.append(f"{_span(behind_ms)} behind" if behind_ms else "up to date")
    size = sum(_number(values, "bytes") for values in parts.values())
    said.append(f"{size / (1 << 20):,.0f} MiB kept")
    if network := str(telemetry.get("network", "")):
        said.append(f"listens at {network}")
    return ", ".join(said)


def _span(ms: int) -> str:
    minutes = ms // 60_000
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h" if minutes < 2_880 else f"{minutes // 1_440} d"


def _number(values: Values, name: str) -> int:
    value = values.get(name, 0)
    return int(value) if isinstance(value, int | float) else 0
