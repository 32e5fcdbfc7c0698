"""Draw a Gantt chart: as text for a terminal, as SVG, as a page of HTML around it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from hal.cli.jobs.gantt_bars import Bar, Kind, Row, tick_text, ticks
from hal.cli.kit.formats import instant, span
from hal.core.model.printable import printable

MARKS: Final = {Kind.SUCCEEDED: "█", Kind.FAILED: "▓", Kind.RUNNING: "▒", Kind.PLANNED: "░"}
COLOURS: Final = {Kind.SUCCEEDED: "#0072b2", Kind.FAILED: "#d55e00", Kind.RUNNING: "#009e73", Kind.PLANNED: "#c7ccd4"}
"""Told apart by everybody; planned ones are pale."""
WORDS: Final = {
    Kind.SUCCEEDED: "succeeded", Kind.FAILED: "did not succeed", Kind.RUNNING: "runs", Kind.PLANNED: "reserved",
}  # fmt: skip
TEXT_LANES: Final = 6
"""Lanes of a row that text shows."""
NAME_WIDTH: Final = 16
TICK_CHARS: Final = 10
"""Characters between two ticks, at least."""

WIDTH, LANE, GAP, TOP, LEFT, RIGHT = 1120, 16, 6, 46, 150, 20
"""Pixels of the drawing."""
MIN_BAR: Final = 1.0
CHAR: Final = 6.6
"""Pixels that a letter takes, about."""


def as_text(rows: Sequence[Row], begin_ms: int, end_ms: int, now_ms: int, width: int) -> list[str]:
    """Lines of text: an axis, a line for each lane, what the marks mean. A bar that is long enough has its id in it."""
    room = max(width - NAME_WIDTH - 1, 20)
    scale = room / max(end_ms - begin_ms, 1)

    def column(ms: int) -> int:
        return min(max(int((ms - begin_ms) * scale), 0), room - 1)

    marks = ticks(begin_ms, end_ms, max(room // TICK_CHARS, 1))
    step = marks[1] - marks[0] if len(marks) > 1 else end_ms - begin_ms
    axis = [" "] * room
    for tick in marks:
        text = tick_text(tick, step)
        at = column(tick)
        if at + len(text) <= room:
            axis[at : at + len(text)] = text
    lines = [f"{'':{NAME_WIDTH}} {''.join(axis).rstrip()}"]
    for row in rows:
        for index, lane in enumerate(row.lanes[:TEXT_LANES]):
            cells = [" "] * room
            if begin_ms <= now_ms <= end_ms:
                cells[column(now_ms)] = "│"
            for bar in lane:
                first, last = column(bar.start_ms), max(column(bar.end_ms - 1), column(bar.start_ms))
                cells[first : last + 1] = MARKS[bar.kind] * (last + 1 - first)
                text = bar.label
                if last - first >= len(text) + 1:
                    cells[first + 1 : first + 1 + len(text)] = text
            name = _cut(printable(row.name), NAME_WIDTH) if not index else ""
            lines.append(f"{name:{NAME_WIDTH}} {''.join(cells)}".rstrip())
        left_out = row.hidden + sum(len(lane) for lane in row.lanes[TEXT_LANES:])
        if left_out:
            lines.append(f"{'':{NAME_WIDTH}} … and {left_out} more at the same time")
    lines.append(f"{'':{NAME_WIDTH}} {'  '.join(f'{MARKS[kind]} {WORDS[kind]}' for kind in Kind)}  │ now")
    return lines


def as_svg(rows: Sequence[Row], begin_ms: int, end_ms: int, now_ms: int, title: str) -> str:
    """One drawing; each bar has a title with what it is."""
    height = TOP + sum(_height(row) for row in rows) + 34
    room = WIDTH - LEFT - RIGHT
    scale = room / max(end_ms - begin_ms, 1)

    def x(ms: int) -> float:
        return LEFT + min(max((ms - begin_ms) * scale, 0.0), float(room))

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        'font-family="DejaVu Sans, Arial, sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="10" y="18" font-size="13" font-weight="bold" fill="#22272e">{_safe(title)}</text>',
    ]
    marks = ticks(begin_ms, end_ms, 10)
    step = marks[1] - marks[0] if len(marks) > 1 else end_ms - begin_ms
    for tick in marks:
        at = f"{x(tick):.1f}"
        parts.append(f'<line x1="{at}" x2="{at}" y1="{TOP - 4}" y2="{height - 30}" stroke="#e5e7eb"/>')
        parts.append(
            f'<text x="{at}" y="{TOP - 10}" text-anchor="middle" fill="#6b7280">{tick_text(tick, step)}</text>'
        )
    y = TOP
    for row in rows:
        parts.append(f'<text x="10" y="{y + LANE - 4}" fill="#22272e">{_safe(_cut(row.name, 20))}</text>')
        for lane in row.lanes:
            parts.extend(_bar(bar, x(bar.start_ms), x(bar.end_ms), y) for bar in lane)
            y += LANE
        if row.hidden:
            parts.append(f'<text x="{LEFT}" y="{y + LANE - 4}" fill="#6b7280">and {row.hidden} more</text>')
            y += LANE
        y += GAP
    if begin_ms <= now_ms <= end_ms:
        at = f"{x(now_ms):.1f}"
        parts.append(f'<line x1="{at}" x2="{at}" y1="{TOP - 4}" y2="{height - 30}" stroke="#22272e"/>')
    left = float(LEFT)
    for kind in Kind:
        parts.append(f'<rect x="{left:.1f}" y="{height - 20}" width="10" height="10" fill="{COLOURS[kind]}"/>')
        parts.append(f'<text x="{left + 15:.1f}" y="{height - 11}" fill="#22272e">{WORDS[kind]}</text>')
        left += 30 + CHAR * len(WORDS[kind])
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def as_html(svg: str, title: str) -> str:
    """A page that needs nothing else."""
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{_safe(title)}</title>\n</head>\n'
        f'<body style="margin:1em">\n{svg}</body>\n</html>\n'
    )


def _height(row: Row) -> int:
    return LANE * (len(row.lanes) + bool(row.hidden)) + GAP


def _bar(bar: Bar, left: float, right: float, y: int) -> str:
    width = max(right - left, MIN_BAR)
    what = f"{bar.label} {bar.name}".rstrip() + (f" of {bar.user}" if bar.user else "")
    times = f"{instant(bar.start_ms)}, {span(bar.end_ms - bar.start_ms)} on {', '.join(bar.nodes)}"
    text = ""
    if width > CHAR * len(bar.label) + 4:
        ink = "#22272e" if bar.kind is Kind.PLANNED else "white"
        text = f'<text x="{left + 3:.1f}" y="{y + LANE - 5}" fill="{ink}">{_safe(bar.label)}</text>'
    return (
        f'<g><title>{_safe(f"{what}: {WORDS[bar.kind]}; {times}")}</title><rect x="{left:.1f}" y="{y}" '
        f'width="{width:.1f}" height="{LANE - 2}" rx="2" fill="{COLOURS[bar.kind]}"/>{text}</g>'
    )


def _safe(text: str) -> str:
    return escape(printable(text), quote=True)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
