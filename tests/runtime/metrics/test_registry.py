"""The registry: series, bounds, views, and the formats."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from hal.core.model import InternalError
from hal.runtime.metrics.declaration import OTHER, Kind, Label, Metric
from hal.runtime.metrics.exposition import wants_protobuf
from hal.runtime.metrics.protobuf import protobuf_of
from hal.runtime.metrics.registry import Registry, replace_all
from hal.runtime.metrics.text import text_of

DONE = Metric(name="hal_done_total", kind=Kind.COUNTER, text="What is done.", labels=(Label("queue", "a queue", 2),))
LEFT = Metric(name="hal_left", kind=Kind.GAUGE, text="What is left.", labels=(Label("queue", "a queue", 2),))
TOOK = Metric(name="hal_took_seconds", kind=Kind.HISTOGRAM, unit="seconds", text="A \\ time.", classic=(-1, 1))
HIDDEN = Metric(name="hal_hidden", kind=Kind.GAUGE, text="For operators.", for_operators=True)
ALL = (DONE, LEFT, TOOK, HIDDEN)
PROMTOOL = shutil.which("promtool")
EVIL = 'a"b\\c\nd\x1b[2J'


def filled() -> Registry:
    registry = Registry(ALL)
    registry.numbers(DONE).of("main").add(3)
    registry.numbers(LEFT).of(EVIL).set(0.25)
    registry.numbers(HIDDEN).of().set(7)
    for value in (0.5, 0.75, 8.0):
        registry.histograms(TOOK).of().observe(value)
    return registry


def test_the_text_has_all_metrics_by_name() -> None:
    """A name from people stays inside its quotes and acts on no terminal; bounds count what is not above them."""
    assert text_of(filled().families(operator=False)).splitlines() == [
        "# HELP hal_done_total What is done.",
        "# TYPE hal_done_total counter",
        'hal_done_total{queue="main"} 3',
        "# HELP hal_left What is left.",
        "# TYPE hal_left gauge",
        r'hal_left{queue="a\"b\\c\\nd\\x1b[2J"} 0.25',
        r"# HELP hal_took_seconds A \\ time.",
        "# TYPE hal_took_seconds histogram",
        'hal_took_seconds_bucket{le="0.5"} 1',
        'hal_took_seconds_bucket{le="1"} 2',
        'hal_took_seconds_bucket{le="2"} 2',
        'hal_took_seconds_bucket{le="+Inf"} 3',
        "hal_took_seconds_sum 9.25",
        "hal_took_seconds_count 3",
    ]


@pytest.mark.skipif(PROMTOOL is None, reason="Prometheus is not installed")
def test_prometheus_itself_finds_no_fault() -> None:
    """Not even one of style."""
    assert PROMTOOL is not None
    text = text_of(filled().families())
    checked = subprocess.run([PROMTOOL, "check", "metrics"], input=text, capture_output=True, text=True, timeout=60)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def test_what_is_beyond_a_bound_is_added_up() -> None:
    """Two queues are kept apart, the third and the fourth are not."""
    registry = Registry(ALL)
    for queue, jobs in (("a", 1), ("b", 2), ("c", 4), ("d", 8)):
        registry.numbers(DONE).of(queue).add(jobs)
    series = {values: one.value for values, one in registry.numbers(DONE).series.items()}
    assert series == {("a",): 1, ("b",): 2, (OTHER,): 12}


def test_a_view_makes_series_that_are_gone_room_for_others() -> None:
    registry = Registry(ALL)
    left = registry.numbers(LEFT)
    replace_all(left, [(("a",), 1.0), (("b",), 2.0)])
    replace_all(left, [(("c",), 3.0), (("d",), 4.0)])
    assert {values: one.value for values, one in left.series.items()} == {("c",): 3, ("d",): 4}


def test_a_view_that_fails_takes_only_its_own_numbers_with_it() -> None:
    """It says so once, and again after it has worked."""
    registry = filled()
    registry.before_scrape("bad", lambda: registry.numbers(LEFT).of("x", "y").set(1))
    assert "labels" in registry.look("bad")
    assert registry.look("bad") == ""
    registry.before_scrape("bad", lambda: None)
    assert registry.look("bad") == ""
    assert "hal_done_total" in text_of(registry.families())


def test_only_operators_see_what_is_for_them() -> None:
    registry = filled()
    assert "hal_hidden" in text_of(registry.families())
    assert "hal_hidden" not in text_of(registry.families(operator=False))


@pytest.mark.parametrize(
    ("name", "kind", "unit"),
    [("Hal_x", Kind.GAUGE, ""), ("hal_x", Kind.COUNTER, ""), ("hal_x_total", Kind.COUNTER, "seconds")],
)
def test_names_keep_to_the_conventions(name: str, kind: Kind, unit: str) -> None:
    with pytest.raises(InternalError):
        Metric(name=name, kind=kind, unit=unit, text="")


@pytest.mark.parametrize(
    ("accept", "protobuf"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain;version=0.0.4;q=0.5,*/*;q=0.1", False),
        ("application/vnd.google.protobuf", False),
        (
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,"
            "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            True,
        ),
        ("application/vnd.google.protobuf; encoding=delimited; q=0.1, text/plain; q=0.5", False),
        ("application/vnd.google.protobuf; encoding=delimited; q=x", False),
    ],
)
def test_protobuf_is_sent_to_whom_prefers_it(accept: str, protobuf: bool) -> None:
    assert wants_protobuf(accept) is protobuf


def test_messages_are_as_the_protocol_has_them() -> None:
    """The bytes of a counter, written out by hand: fields, lengths, the double 3.0."""
    registry = Registry((DONE,))
    registry.numbers(DONE).of("q").add(3)
    label = b"\x0a\x05queue\x12\x01q"
    value = b"\x09" + b"\x00\x00\x00\x00\x00\x00\x08\x40"
    series = b"\x0a" + bytes([len(label)]) + label + b"\x1a" + bytes([len(value)]) + value
    body = b"\x0a\x0ehal_done_total\x12\x0dWhat is done.\x18\x00\x22" + bytes([len(series)]) + series
    assert protobuf_of(registry.families()) == bytes([len(body)]) + body
