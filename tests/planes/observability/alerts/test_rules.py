"""The table of rules: what Prometheus makes of it and what HAL does are the same, on the same inputs."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest
import yaml

from hal.core.model.alert_config import AlertsSection
from hal.daemons.controller.metrics import declared
from hal.planes.observability.alert_rules import PAGE, names, reads_of, rule_file, rules_of
from hal.planes.observability.alerts.expressions import Is, Last, Selector
from hal.planes.observability.alerts.recording import Labels, Parser, Recording, Scrape, Selected
from hal.planes.observability.alerts.states import Alert, AlertState, advanced
from hal.planes.observability.samples.declared import OF_NODES

PROMTOOL: Final = shutil.which("promtool")
ROOT: Final = Path(__file__).resolve().parents[4]
EVERY_S: Final = 60
RULES: Final = rules_of(AlertsSection())
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="Prometheus is not installed")


def labels_of(**labels: str) -> Labels:
    return tuple(sorted(labels.items()))


class Story:
    """Series over time, one point a minute."""

    def __init__(self, minutes: int) -> None:
        self.minutes = minutes
        self.series: dict[tuple[str, Labels], list[float]] = {}

    def put(self, metric: str, values: list[float], **labels: str) -> None:
        assert len(values) == self.minutes
        self.series[metric, labels_of(**labels)] = values

    def flat(self, metric: str, value: float, **labels: str) -> None:
        self.put(metric, [value] * self.minutes, **labels)

    def counter(self, metric: str, rates: list[float], **labels: str) -> None:
        """Of so much growth in each minute."""
        total, values = 0.0, []
        for rate in rates:
            total += rate
            values.append(total)
        self.put(metric, values, **labels)

    def histogram(self, metric: str, bounds: dict[str, list[float]], **labels: str) -> None:
        """Growth of each bucket a minute; cumulated here."""
        total = [0.0] * self.minutes
        for bound, rates in bounds.items():
            total = [a + b for a, b in zip(total, rates, strict=True)]
            self.counter(f"{metric}_bucket", total, le=bound, **labels)
        self.counter(f"{metric}_count", total, **labels)

    def firing(self) -> list[dict[str, set[Labels]]]:
        """What HAL finds to fire, by minute and rule."""
        recording, found = Recording(), []
        known: dict[str, Alert] = {}
        for minute in range(self.minutes):
            now_ms = minute * EVERY_S * 1_000
            values: dict[str, dict[Labels, float]] = {}
            for (metric, labels), points in self.series.items():
                values.setdefault(metric, {})[labels] = points[minute]
            recording.add(Scrape(now_ms, values))
            verdicts = {rule.name: rule.condition.value(recording) for rule in RULES}
            known, _ = advanced(known, RULES, verdicts, now_ms)
            by_rule: dict[str, set[Labels]] = {rule.name: set() for rule in RULES}
            for alert in known.values():
                if alert.state is AlertState.FIRING:
                    by_rule[alert.rule].add(labels_of(**alert.labels))
            found.append(by_rule)
        return found

    def prometheus_tests(self, firing: list[dict[str, set[Labels]]], minutes: list[int]) -> dict[str, object]:
        """A file for `promtool test rules` that expects this."""
        series = [
            {
                "series": metric + "{" + ",".join(f'{name}="{text}"' for name, text in labels) + "}",
                "values": " ".join(f"{value:.10g}" for value in points),
            }
            for (metric, labels), points in self.series.items()
        ]
        severity = {rule.name: rule.severity for rule in RULES}
        checks = [
            {
                "eval_time": f"{minute}m",
                "alertname": name,
                "exp_alerts": [{"exp_labels": {"severity": severity[name], **dict(labels)}} for labels in sorted(some)],
            }
            for minute in minutes
            for name, some in firing[minute].items()
        ]
        return {
            "rule_files": ["rules.yml"],
            "evaluation_interval": f"{EVERY_S}s",
            "tests": [{"interval": f"{EVERY_S}s", "input_series": series, "alert_rule_test": checks}],
        }


def bad_day(seed: int) -> Story:
    """Eight hours of two queues, in which everything goes wrong at some time or other."""
    chance = random.Random(seed)
    story = Story(480)
    minutes = range(story.minutes)

    def spell(low: float, high: float) -> list[float]:
        """One value, and another between two instants."""
        begin, end = sorted(chance.sample(minutes, 2))
        return [high if begin <= minute < end else low for minute in minutes]

    story.put("up", spell(1, 0), job="hal", instance="a")
    story.put("hal_store_writable", spell(1, 0))
    story.put("hal_home_free_ratio", spell(0.5, 0.05))
    story.put("hal_nodes", spell(0, 3), state="unreachable")
    story.put("hal_nodes", spell(9, 6), state="up")
    story.put("hal_limit_used_ratio", spell(0.2, 0.95), limit="gpus")
    story.put("hal_plane_in_service", spell(1, 0), plane="joining")
    story.flat("hal_certificate_expiry_timestamp_seconds", 14 * 86_400 + 4 * 3_600, certificate="wire")
    for metric in ("hal_cycle_seconds", "hal_commit_seconds"):
        slow = spell(0, 40)
        story.histogram(metric, {"0.25": [50.0] * story.minutes, "4": slow, "+Inf": [0.0] * story.minutes})
    for queue in ("batch", "gpu"):
        story.put("hal_queue_oldest_wait_seconds", spell(30, 7_200), queue=queue)
        story.counter("hal_tasks_started_total", spell(2, 0), queue=queue)
        story.counter("hal_attempts_ended_total", spell(5, 1), queue=queue, result="succeeded")
        story.counter("hal_attempts_ended_total", spell(0, 9), queue=queue, result="failed")
        story.counter("hal_attempts_ended_total", spell(0, 2), queue=queue, result="lost")
        late = spell(0, 50)
        story.histogram("hal_queue_wait_seconds", {"4096": [5.0] * story.minutes, "+Inf": late}, queue=queue)
    story.put("hal_announced_plane_up", spell(1, 0), plane="prices")
    for node in ("n1", "n2"):
        story.put("hal_node_home_free_bytes", spell(4e10, 4e9), node=node)
        story.flat("hal_node_home_size_bytes", 1e11, node=node)
    return story


@needs_promtool
@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 13))])
def test_hal_and_prometheus_find_the_same_alerts(seed: int, tmp_path: Path) -> None:
    """Every rule, at 32 instants of a bad day: `promtool test rules` finds what HAL found."""
    story = bad_day(seed)
    firing = story.firing()
    rules = rule_file(RULES)
    for rule in rules["groups"][0]["rules"]:  # type: ignore[index]
        del rule["annotations"]  # they are written differently
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(rules))
    tests = story.prometheus_tests(firing, list(range(14, story.minutes, 15)))
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(tests))
    assert PROMTOOL is not None
    ran = subprocess.run([PROMTOOL, "test", "rules", "tests.yml"], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[:4_000]
    assert sum(bool(some) for minute in firing for some in minute.values()) > 500


def test_a_bound_is_the_number_that_prometheus_is_asked_about() -> None:
    """Six times the tenth that 0.9 leaves is 0.5999999999999998 to a computer, and 0.6 in the rule: 0.6 is not more."""
    recording = Recording()
    recording.add(Scrape(0, {"x": {(): 0.6}}))
    condition = Is(Last(Selector("x")), ">", 6 * (1 - 0.9))
    assert condition.promql() == "sum(x) > 0.6"
    assert condition.value(recording) == {}


def test_every_rule_fires_on_some_bad_day() -> None:
    """So that the comparison is about all of them."""
    fired = {name for seed in (1, 2) for minute in bad_day(seed).firing() for name, some in minute.items() if some}
    assert fired == set(names())


@needs_promtool
def test_prometheus_takes_the_rule_file() -> None:
    assert PROMTOOL is not None
    ran = subprocess.run([PROMTOOL, "check", "rules", ROOT / "spec" / "prometheus-rules.yml"], capture_output=True)
    assert ran.returncode == 0, ran.stdout


def test_rules_read_metrics_that_the_controller_or_nodes_have() -> None:
    known = {metric.name for metric in (*declared.CONTROLLER, *OF_NODES)} | {"up"}
    used = {one.metric.removesuffix("_bucket").removesuffix("_count") for one in reads_of(RULES)}
    assert used <= known


def test_the_bound_of_the_objective_is_a_bucket_of_its_histogram() -> None:
    """Whatever hal.toml says: from a second to a week, rounded up to a power of two."""
    first, last = declared.QUEUE_WAIT.classic
    assert first <= 0
    assert 2**last >= 7 * 86_400


def test_each_rule_has_its_paragraph() -> None:
    page = (ROOT / PAGE).read_text()
    assert [name for name in names() if f"### {name}\n" not in page] == []


def test_an_exposition_is_read_as_it_is_written() -> None:
    """Only what somebody looks at: of the buckets those that end at 4."""
    text = '# HELP a x\na{q="x\\"y\\\\z\\n",le="4"} 3\na{q="x",le="8"} 5\nb 1e-3\nbroken{ 1\nc NaN\nother 4\n'
    parser = Parser([Selected("a", (("le", ("4",)),)), Selected("b"), Selected("broken")])
    assert parser.parse(text) == {"a": {(("le", "4"), ("q", 'x"y\\z\n')): 3.0}, "b": {(): 0.001}}
    assert next(iter(parser.parse(text)["a"])) is next(iter(parser.parse(text)["a"]))
