"""The page of a report: harmless whatever names are in it, loads nothing, and says what it does not know."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from html.parser import HTMLParser

import click
import pytest

from hal.cli.accounting.report import monday_of
from hal.cli.accounting.report_page import duration, page
from hal.cli.accounting.report_sums import Report, total
from hal.client.rest.usage_calls import LostInfo, UsageInfo

EVIL = "<script>alert('x')</script>\x1b[31m\x1b]0;owned\x07\u202e"
MONDAY = datetime(2026, 11, 16, tzinfo=UTC)


def row(key: str, core_hours: float = 10.0, **fields: object) -> UsageInfo:
    return UsageInfo(
        **{
            "key": key, "since_ms": 0, "until_ms": 1, "attempts": 4, "states": {"succeeded": 3, "failed": 1},
            "core_hours": core_hours, "cpu_hours": core_hours / 4, "cpu_efficiency": 0.25,
            "idle_core_hours": core_hours * 0.75, "unsuccessful_core_hours": 1.0, "waited": 4, "wait_s": 30.0,
            "waits": {"1m": 4, "10m": 4, "1h": 4, "6h": 4, "1d": 4}, **fields,
        }  # type: ignore[arg-type]
    )  # fmt: skip


def report(*rows: UsageInfo, **fields: object) -> Report:
    return Report(
        **{
            "title": "Week 47 of 2026", "scope": "", "monday": MONDAY, "zone": "UTC", "total": total(rows),
            "before": total([]), "days": [total(rows)] + [total([])] * 6, "accounts": rows, "users": rows,
            "queues": rows,
            "names": rows, "currency": "", "lost": (), "rounded": False, **fields,
        }  # type: ignore[arg-type]
    )  # fmt: skip


class Tags(HTMLParser):
    """What a browser would make of it."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)


def test_names_are_text_whatever_is_in_them() -> None:
    """As account, user, queue, job name, scope and currency: no tag, no escape sequence, no reversed line."""
    text = page(report(row(EVIL, price=1.0), scope=f"user {EVIL}", currency="<b>"))
    parsed = Tags()
    parsed.feed(text)
    assert not parsed.tags & {"script", "b", "img", "iframe", "object"} - {"b"}
    assert "<script" not in text
    assert text.count("&lt;script&gt;") == 6  # title, heading, and four tables
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)


def test_the_page_loads_nothing() -> None:
    """No address, no script, no attribute by which a browser fetches or runs something; a policy that forbids it."""
    text = page(report(row("physics")))
    parsed = Tags()
    parsed.feed(text)
    assert not parsed.attributes & {"src", "href", "onload", "onclick", "srcset", "action"}
    assert not re.search(r"https?:|url\(|@import", text)
    assert "default-src 'none'" in text
    assert "prefers-color-scheme:dark" in text


def test_what_is_not_known_is_not_shown_as_nothing() -> None:
    """Without CPU time and waits there are dashes, no 0 %."""
    text = page(report(row("physics", cpu_efficiency=None, wait_s=None, waited=0)))
    assert "<b>-</b><span>CPU efficiency" in text
    assert "<b>–</b><span>mean wait" in text


def test_an_empty_week_says_so() -> None:
    assert "Nothing ended in this week." in page(report())


def test_gaps_are_named() -> None:
    assert "40 attempts were removed before they were read" in page(report(row("a"), lost=[LostInfo(first=1, last=40)]))


def test_only_ten_of_many_are_shown() -> None:
    assert "The 10 of 12 that had most." in page(report(*(row(f"u{number}") for number in range(12))))


def test_a_week_begins_on_monday_by_the_clocks_of_the_zone() -> None:
    """Sunday 22 November 2026 belongs to the week of the 16th; week 53 of 2026 begins on 28 December."""
    sunday = datetime(2026, 11, 22, 23, 59, tzinfo=UTC)
    assert monday_of("this", sunday) == MONDAY
    assert monday_of("last", sunday) == datetime(2026, 11, 9, tzinfo=UTC)
    assert monday_of("2026-W53", sunday) == datetime(2026, 12, 28, tzinfo=UTC)
    with pytest.raises(click.BadParameter, match="is no week"):
        monday_of("2027-W53", sunday)


def test_waits_are_as_exact_as_it_matters() -> None:
    assert [duration(s) for s in (0, 2.5, 59, 60, 2_280, 3_600, 90_000, 300_000)] == [
        "0 s", "2.5 s", "59 s", "1 min", "38 min", "1.0 h", "25 h", "3.5 days",
    ]  # fmt: skip


def test_gpus_that_were_held_but_idle_have_a_section_where_they_were_measured() -> None:
    """8 GPU hours, of which 6 were measured and 4.5 idle."""
    idle = row("train", gpu_hours=8.0, measured_gpu_hours=6.0, idle_gpu_hours=4.5, gpu_efficiency=0.25)
    text = page(report(idle, row("other", gpu_hours=2.0)))
    assert "GPUs held but idle" in text
    assert "25% used, 4.50 idle" in text
    assert "GPUs held but idle" not in page(report(row("other", gpu_hours=2.0)))
