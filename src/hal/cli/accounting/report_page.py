"""The HTML of a weekly report: one file without scripts that loads nothing, light or dark as its reader has it. Pure.

Every text that came from people goes through `text`: escaped, with control characters made visible.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final, TypeVar

from hal.cli.accounting.report_charts import bar, columns, stacked
from hal.cli.accounting.report_sums import Report, Total
from hal.cli.accounting.usage import hours, percent
from hal.client.rest.usage_calls import UsageInfo
from hal.core.model.printable import printable

T = TypeVar("T")
MOST_ROWS: Final = 10
"""Of each table."""
MAX_KEY: Final = 60
"""Characters of a name that are shown."""
LITTLE: Final = 0.5
"""CPU efficiency below this is marked."""
WAITS: Final = (
    ("1m", "up to 1 min"), ("10m", "to 10 min"), ("1h", "to 1 h"), ("6h", "to 6 h"), ("1d", "to 1 day"),
)  # fmt: skip
STATE_WORDS: Final = {
    "failed": "failed", "timed-out": "reached their walltime", "out-of-memory": "ran out of memory",
    "cancelled": "were cancelled", "preempted": "were preempted", "lost": "were lost with their node",
    "refused": "were refused by their node",
}  # fmt: skip

STYLE: Final = """
:root{color-scheme:light dark;--bg:#fbfbfa;--card:#fff;--ink:#1c1d21;--soft:#686b75;--line:#e6e6e3;--accent:#3b5bdb;
--good:#2b8a5f;--warn:#c2700c;--bad:#c92a2a;--pale:#dfe3ee}
@media (prefers-color-scheme:dark){:root{--bg:#131418;--card:#1b1d22;--ink:#e9eaee;--soft:#9a9eaa;--line:#2b2e36;
--accent:#829bff;--good:#4fc08d;--warn:#f0a04b;--bad:#ff7b7b;--pale:#363b4a}}
*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;
font-variant-numeric:tabular-nums}
main{max-width:1060px;margin:0 auto;padding:40px 24px 64px}header{margin-bottom:28px}
h1{font-size:28px;line-height:1.2;margin:0;letter-spacing:-.02em}h2{font-size:17px;margin:0 0 2px;letter-spacing:-.01em}
p{margin:0}.soft{color:var(--soft)}.lead{font-size:17px;margin-top:14px;max-width:46em}
section{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:22px 24px;margin-top:18px}
section>.soft{margin-bottom:14px;font-size:14px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(210px,1fr));gap:12px}
.tile{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:14px 16px}
.tile b{display:block;font-size:25px;font-weight:600;letter-spacing:-.02em;line-height:1.3}
.tile span{display:block;font-size:13px;color:var(--soft)}.legend span{white-space:nowrap}.chart svg{min-width:520px}
.two{display:grid;grid-template-columns:1fr 1fr;gap:18px}.two section{min-width:0}
table{width:100%;border-collapse:collapse;font-size:14px}th{font-weight:500;color:var(--soft);text-align:right;
padding:4px 10px 6px;border-bottom:1px solid var(--line);white-space:nowrap}td{padding:7px 10px;text-align:right;
border-bottom:1px solid var(--line);white-space:nowrap}tr:last-child td{border-bottom:0}
th:first-child,td:first-child{text-align:left;padding-left:0;white-space:normal;overflow-wrap:anywhere;
min-width:8em}
th:last-child,td:last-child{padding-right:0}td.bar{width:28%;min-width:90px}.scroll{overflow-x:auto}
svg{display:block;width:100%;height:auto}svg text{fill:var(--soft);font-size:12px}svg .value{fill:var(--ink)}
.key{display:inline-block;width:10px;height:10px;border-radius:3px;margin:0 6px 0 14px}
.legend>:first-child .key,.legend>.key:first-child{margin-left:0}
.low{color:var(--warn)}.bad{color:var(--bad)}.legend{font-size:13px;color:var(--soft);margin-top:8px}
footer{margin-top:28px;font-size:13px;color:var(--soft)}footer p{margin-top:6px;max-width:62em}
@media (max-width:760px){.tiles{grid-template-columns:1fr 1fr}
.two{grid-template-columns:1fr}main{padding:24px 14px 40px}section{padding:18px 16px}}
@media print{body{background:#fff}section,.tile{break-inside:avoid}}
"""


def page(report: Report) -> str:
    """The whole file."""
    sunday = report.monday + timedelta(days=6)
    scope = f" · {text(report.scope)}" if report.scope else ""
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>HAL: {text(report.title)}{scope}</title><style>{STYLE}</style></head><body><main>",
        f"<header><h1>{text(report.title)}</h1>",
        f'<p class="soft">{_day(report.monday)} to {_day(sunday)} {sunday:%Y}, {text(report.zone)}{scope}</p>',
        f'<p class="lead">{_summary(report)}</p></header>',
        _tiles(report),
    ]
    if report.total.attempts:
        parts += [
            _days(report),
            '<div class="two">',
            _most(report.users, "Users", "User"),
            _most(report.accounts, "Accounts", "Account"),
            "</div>",
            _waste(report.names),
            _idle_gpus(report.names),
            '<div class="two">',
            _waits(report.queues),
            _failures(report),
            "</div>",
        ]
    parts += [_footer(report), "</main></body></html>\n"]
    return "\n".join(parts)


def text(value: str, most: int = 1_000) -> str:
    """Of people: shortened, harmless in HTML and on a terminal."""
    shown = printable(value)
    return html.escape(shown if len(shown) <= most else f"{shown[: most - 1]}…")


def duration(seconds: float) -> str:
    """In words, as exact as it matters: `12 s`, `38 min`, `25 h`, `3.2 days`."""
    for unit, length, most in (("s", 1, 60), ("min", 60, 3_600), ("h", 3_600, 2 * 86_400)):
        if seconds < most:
            amount = seconds / length
            return f"{amount:.1f} {unit}" if 0 < amount < 10 and unit != "min" else f"{amount:.0f} {unit}"
    return f"{seconds / 86_400:.1f} days"


def _day(day: datetime) -> str:
    return f"{day:%a} {day.day} {day:%b}"


def _summary(report: Report) -> str:
    """What matters, in two sentences."""
    total = report.total
    if not total.attempts:
        return "Nothing ended in this week."
    said = [f"{total.attempts:,} attempts had {hours(total.core_hours)} core hours"]
    if total.cpu_efficiency is not None:
        said.append(f" and used {percent(total.cpu_efficiency)} of them")
    wasted = total.unsuccessful_core_hours
    said.append(
        f". {percent(wasted / total.core_hours if total.core_hours else 0.0)} went into work that did not succeed"
    )
    if total.wait_s is not None:
        said.append(f"; the mean wait was {duration(total.wait_s)}")
    return text("".join(said) + ".")


def _tiles(report: Report) -> str:
    total, before = report.total, report.before
    success = total.succeeded / total.attempts if total.attempts else None
    tiles = [
        (hours(total.core_hours), "core hours", _change(total.core_hours, before.core_hours)),
        (percent(total.cpu_efficiency), "CPU efficiency", _points(total.cpu_efficiency, before.cpu_efficiency)),
        (percent(total.memory_efficiency), "memory efficiency", ""),
    ]
    if total.gpu_hours:
        used = "use not measured"
        if total.gpu_efficiency is not None:
            used = f"{percent(total.gpu_efficiency)} used, {hours(total.idle_gpu_hours)} idle"
        tiles.append((hours(total.gpu_hours), "GPU hours", used))
    wait = "–" if total.wait_s is None else duration(total.wait_s)
    tiles += [
        (wait, "mean wait", f"longest {duration(total.longest_wait_s)}"),
        (percent(success), "succeeded", f"of {total.attempts:,} attempts"),
        (f"{hours(total.energy_kwh)} kWh", "energy", _measured(total.energy_measured)),
    ]
    if total.price is not None:
        tiles.append(
            (f"{total.price:,.2f}", text(report.currency) or "price", _change(total.price, before.price or 0.0))
        )
    shown = (
        f'<div class="tile"><b>{big}</b><span>{small}</span><span>{more}&nbsp;</span></div>'
        for big, small, more in tiles
    )
    return f'<div class="tiles">{"".join(shown)}</div>'


def _measured(part: float) -> str:
    return "measured" if part > 0.99 else f"{part:.0%} measured" if part >= 0.01 else "estimated"


def _change(now: float, before: float) -> str:
    if not before:
        return ""
    part = (now - before) / before
    return "as the week before" if abs(part) < 0.005 else f"{part:+.0%} on the week before" if abs(part) < 10 else ""


def _points(now: float | None, before: float | None) -> str:
    return "" if now is None or before is None else f"{(now - before) * 100:+.0f} points"


def _days(report: Report) -> str:
    labels = [f"{report.monday + timedelta(days=day):%a}" for day in range(len(report.days))]
    values = [_worked_and_rest(day) for day in report.days]
    return (
        "<section><h2>Core hours by day</h2>"
        '<p class="soft">What attempts that ended on each day were given, and how much of it was CPU time.</p>'
        f'<div class="scroll chart">{columns(labels, values, ("var(--accent)", "var(--pale)"), hours)}</div>'
        '<p class="legend"><span class="key" style="background:var(--accent)"></span>CPU time used'
        '<span class="key" style="background:var(--pale)"></span>given, not used</p></section>'
    )


def _worked_and_rest(total: Total) -> tuple[float, float]:
    worked = min(total.cpu_hours, total.core_hours)
    return worked, total.core_hours - worked


def _most(rows: Sequence[UsageInfo], title: str, head: str) -> str:
    most = max((row.core_hours for row in rows), default=0.0)

    def cells(row: UsageInfo) -> Iterable[str]:
        yield text(row.key, MAX_KEY) or '<span class="soft">none</span>'
        yield hours(row.core_hours)
        yield _efficiency(row.cpu_efficiency)
        yield bar(row.core_hours / most if most else 0.0, "var(--accent)")

    return (
        f"<section><h2>{title}</h2>{_shown_of(rows)}"
        f"{_table((head, 'Core hours', 'CPU', ''), rows[:MOST_ROWS], cells)}</section>"
    )


def _shown_of(rows: Sequence[UsageInfo]) -> str:
    note = (
        f"The {MOST_ROWS} of {len(rows):,} that had most." if len(rows) > MOST_ROWS else "By the core hours they had."
    )
    return f'<p class="soft">{note}</p>'


def _efficiency(part: float | None) -> str:
    return f'<span class="low">{percent(part)}</span>' if part is not None and part < LITTLE else percent(part)


def _waste(names: Sequence[UsageInfo]) -> str:
    def wasted(row: UsageInfo) -> float:
        return max(row.idle_core_hours, row.unsuccessful_core_hours)

    rows = sorted((row for row in names if wasted(row) > 0), key=wasted, reverse=True)[:MOST_ROWS]
    most = max(map(wasted, rows), default=0.0)

    def cells(row: UsageInfo) -> Iterable[str]:
        yield text(row.key, MAX_KEY) or '<span class="soft">without a name</span>'
        yield f"{row.attempts:,}"
        yield hours(row.core_hours)
        yield _efficiency(row.cpu_efficiency)
        yield _efficiency(row.memory_efficiency)
        yield hours(row.idle_core_hours)
        yield hours(row.unsuccessful_core_hours)
        yield bar(wasted(row) / most if most else 0.0, "var(--warn)")

    heads = ("Job name", "Attempts", "Core hours", "CPU", "Memory", "Idle", "Unsuccessful", "")
    return (
        "<section><h2>Where core hours were lost</h2>"
        '<p class="soft">Idle: given while the CPU waited; fewer cores (-c) would do. Unsuccessful: of attempts that '
        "failed, ran out of time or memory, or were ended. <code>hal efficiency JOB</code> says "
        "what would be enough.</p>"
        f"{_table(heads, rows, cells)}</section>"
    )


def _idle_gpus(names: Sequence[UsageInfo]) -> str:
    rows = sorted((row for row in names if row.idle_gpu_hours > 0), key=lambda row: row.idle_gpu_hours, reverse=True)
    if not rows:
        return ""
    most = rows[0].idle_gpu_hours

    def cells(row: UsageInfo) -> Iterable[str]:
        yield text(row.key, MAX_KEY) or '<span class="soft">without a name</span>'
        yield f"{row.attempts:,}"
        yield hours(row.gpu_hours)
        yield _efficiency(row.gpu_efficiency)
        yield hours(row.idle_gpu_hours)
        yield bar(row.idle_gpu_hours / most, "var(--warn)")

    heads = ("Job name", "Attempts", "GPU hours", "GPU", "Idle", "")
    return (
        "<section><h2>GPUs held but idle</h2>"
        '<p class="soft">GPU hours in which nothing ran on the GPU, where its use was measured: fewer GPUs, a part of '
        "one (--gpus 0.5) or faster input would use them better.</p>"
        f"{_table(heads, rows[:MOST_ROWS], cells)}</section>"
    )


def _waits(queues: Sequence[UsageInfo]) -> str:
    shades = (
        "var(--good)",
        "color-mix(in srgb,var(--good) 55%,var(--pale))",
        "var(--pale)",
        "var(--warn)",
        "var(--bad)",
        "var(--ink)",
    )
    rows = [row for row in queues if row.waited][:MOST_ROWS]

    def cells(row: UsageInfo) -> Iterable[str]:
        yield text(row.key, MAX_KEY)
        yield "–" if row.wait_s is None else duration(row.wait_s)
        yield duration(row.longest_wait_s)
        upto = [row.waits.get(name, 0) for name, _ in WAITS] + [row.waited]
        parts = [(high - low) / row.waited for low, high in zip([0, *upto], upto, strict=False)]
        yield stacked(parts, shades)

    words = [*(words for _, words in WAITS), "longer"]
    legend = "".join(
        f'<span><span class="key" style="background:{shade}"></span>{word}</span> '
        for shade, word in zip(shades, words, strict=True)
    )
    return (
        '<section><h2>Waits</h2><p class="soft">From when it could have started until it began, by queue.</p>'
        f"{_table(('Queue', 'Mean', 'Longest', 'Attempts by wait'), rows, cells)}"
        f'<p class="legend">{legend}</p></section>'
    )


def _failures(report: Report) -> str:
    total = report.total
    failed = sorted(((count, state) for state, count in total.states.items() if state != "succeeded"), reverse=True)
    most = max((count for count, _ in failed), default=0)

    def cells(one: tuple[int, str]) -> Iterable[str]:
        count, state = one
        yield text(STATE_WORDS.get(state, state))
        yield f"{count:,}"
        yield percent(count / total.attempts) if count * 200 >= total.attempts else "&lt;1%"
        yield bar(count / most, "var(--bad)")

    if not failed:
        return '<section><h2>Failures</h2><p class="soft">Every attempt succeeded.</p></section>'
    return (
        f'<section><h2>Failures</h2><p class="soft">{total.attempts - total.succeeded:,} attempts did not succeed; '
        f"they had {hours(total.unsuccessful_core_hours)} core hours.</p>"
        f"{_table(('Attempts that', '', 'Of all', ''), failed, cells)}</section>"
    )


def _footer(report: Report) -> str:
    said = [
        "An attempt counts in whole on the day on which it ended.",
        "Efficiency is CPU time, or peak memory, of what was asked for.",
        "Energy is estimated from cores, memory and GPUs, unless it was measured.",
    ]
    for gap in report.lost:
        said.append(f"{gap.last - gap.first + 1:,} attempts were removed before they were read; they are in no sum.")
    if report.rounded:
        said.append("Only sums by hours or days of UTC are kept of a part of this time; it was rounded to them.")
    return f"<footer>{''.join(f'<p>{text(one)}</p>' for one in said)}</footer>"


def _table(heads: Sequence[str], rows: Sequence[T], cells: Callable[[T], Iterable[str]]) -> str:
    """A table whose last column may hold bars."""
    head = "".join(f"<th>{html.escape(one)}</th>" for one in heads)
    body = []
    for row in rows:
        *values, last = cells(row)
        body.append(f'<tr>{"".join(f"<td>{one}</td>" for one in values)}<td class="bar">{last}</td></tr>')
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table></div>'
