"""`hal logs --search`: lines that the collector has kept, of jobs and of HAL's own processes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from hal.cli.kit.collector import collector_client
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.client.rest.log_calls import LogLineInfo
    from hal.client.sync_client import Client

MAX_TURNS: Final = 200
"""Pages that are asked for before the search is given up for now."""


def print_found(screen: Screen, filters: dict[str, Any], limit: int, collector: str) -> None:
    """Print the newest lines that match, the newest last.

    Args:
        filters: as the collector's REST takes them.
        collector: its URL; '': found by itself.
    """
    found = list(found_lines(collector_client(screen, collector), filters, limit))[::-1]
    found.sort(key=lambda line: line.at_ms)  # lines of one instant stay as they came
    if screen.plain:
        screen.emit(found)
        return
    for line in found:
        screen.line(_shown(line))
    if not found:
        screen.note("no line matches; jobs' lines are found seconds after they were printed")
    elif len(found) == limit:
        screen.note(f"the newest {limit} lines; -n gives more")


def found_lines(client: Client, filters: dict[str, Any], limit: int) -> Iterator[LogLineInfo]:
    """The newest lines that match, newest first."""
    from hal.client.rest.log_calls import MAX_PAGE_ROWS, search

    cursor = ""
    for _ in range(MAX_TURNS):
        page = client.call(search(filters, limit=min(limit, MAX_PAGE_ROWS), cursor=cursor))
        yield from page.lines
        limit -= len(page.lines)
        if limit <= 0 or not page.cursor:
            return
        cursor = page.cursor


def kept_pieces(screen: Screen, job: str, filters: dict[str, Any], *, tail: int | None, url: str) -> Iterator[bytes]:
    """What the collector has kept of an output, oldest first.

    Args:
        filters: as the collector's REST takes them.
        tail: only so many lines.
        url: of the collector; '': found by itself.
    Raises:
        HALError: there is no collector, or it has nothing.
    """
    from hal.client.rest.log_calls import kept_output

    pieces = collector_client(screen, url).items_of(kept_output(job, filters))
    if tail is None:
        yield from pieces
        return
    last = deque[bytes](maxlen=tail)
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        last.extend(line + b"\n" for line in lines)
    if rest:
        last.append(rest)
    yield from last


def _shown(line: LogLineInfo) -> str:
    """A line for people; what could act on a terminal is made visible by the screen."""
    at = datetime.fromtimestamp(line.at_ms / 1_000).astimezone()
    level = "" if line.severity == "info" else f" {line.severity.upper()}"
    where = f" {line.node}" if line.component == "step" and line.node else ""
    return f"{at:%Y-%m-%d %H:%M:%S} {line.source}{where}{level}: {line.text}"
