"""Small charts of a report as SVG: bars, stacked bars, columns. Pure; no text of people goes in here."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from typing import Final

WIDTH: Final = 960
HEIGHT: Final = 220
BASE: Final = 190
"""Where columns stand."""
TOP: Final = 24
ROOM: Final = 0.42
"""Part of a column's room that stays empty."""


def bar(part: float, colour: str) -> str:
    """A horizontal bar of a part, 0..1."""
    width = max(min(part, 1.0), 0.0) * 100
    return (
        '<svg viewBox="0 0 100 8" preserveAspectRatio="none" style="height:8px" aria-hidden="true">'
        f'<rect width="100" height="8" rx="1.5" fill="var(--line)"/>'
        f'<rect width="{width:.1f}" height="8" rx="1.5" fill="{colour}"/></svg>'
    )


def stacked(parts: Sequence[float], colours: Sequence[str]) -> str:
    """A horizontal bar of several parts that add up to 1."""
    at, rects = 0.0, []
    for part, colour in zip(parts, colours, strict=True):
        if part > 0:
            rects.append(f'<rect x="{at * 100:.2f}" width="{part * 100:.2f}" height="8" fill="{colour}"/>')
        at += part
    inner = "".join(rects)
    return f'<svg viewBox="0 0 100 8" preserveAspectRatio="none" style="height:8px" aria-hidden="true">{inner}</svg>'


def columns(
    labels: Sequence[str],
    values: Sequence[tuple[float, float]],
    colours: tuple[str, str],
    shown: Callable[[float], str],
) -> str:
    """Columns of two parts each, with their sums above."""
    most = max((sum(pair) for pair in values), default=0.0) or 1.0
    room = WIDTH / max(len(values), 1)
    width = room * (1 - ROOM)
    parts = [f'<line x1="0" x2="{WIDTH}" y1="{BASE}" y2="{BASE}" stroke="var(--line)"/>']
    for number, (label, (low, high)) in enumerate(zip(labels, values, strict=True)):
        left, middle = number * room + (room - width) / 2, number * room + room / 2
        low_height, whole = (BASE - TOP) * low / most, (BASE - TOP) * (low + high) / most
        if whole > 0:
            parts.append(_rect(left, BASE - whole, width, whole, colours[1]))
            parts.append(_rect(left, BASE - low_height, width, low_height, colours[0]))
            parts.append(_text(middle, BASE - whole - 7, shown(low + high), "value"))
        parts.append(_text(middle, BASE + 20, label, ""))
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="Core hours by day">{"".join(parts)}</svg>'


def _rect(x: float, y: float, width: float, height: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="3" fill="{colour}"/>'


def _text(x: float, y: float, words: str, kind: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle" class="{kind}">{html.escape(words)}</text>'
