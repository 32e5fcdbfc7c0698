"""The dashboards for Grafana: as its own SDK reads them, on metrics that there are, in expressions that Prometheus
understands."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hal.daemons.controller.metrics.declared import CONTROLLER
from hal.integrations.grafana.dashboards import DASHBOARDS
from hal.integrations.grafana.panels import RATE
from hal.planes.observability.samples.declared import OF_NODES, PART
from hal.runtime.metrics.declaration import Kind, Metric

SPEC = Path(__file__).parents[2] / "spec"
FILES = sorted((SPEC / "grafana").glob("*.json"))
PROMTOOL = shutil.which("promtool")
DECLARED: dict[str, Metric] = {metric.name: metric for metric in (*CONTROLLER, *OF_NODES, PART)}
NAME = re.compile(r"\b(?:hal|process)_[a-z0-9_]+\b")
LABELS = re.compile(r"\b((?:hal|process)_[a-z0-9_]+)\{([^}]*)\}|\bby \(([^)]*)\)")
FROM_PROMETHEUS = frozenset({"job", "instance", "le"})


def panels(board: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for panel in board["panels"]:
        yield panel
        yield from panel.get("panels", ())


def expressions(path: Path) -> list[str]:
    return [target["expr"] for panel in panels(json.loads(path.read_text())) for target in panel.get("targets", ())]


def declared(name: str) -> Metric | None:
    """The metric of a series' name."""
    found = DECLARED.get(name)
    if found is None:
        base = DECLARED.get(re.sub("_(bucket|sum|count)$", "", name))
        found = base if base is not None and base.kind is Kind.HISTOGRAM else None
    return found


def test_every_dashboard_is_there() -> None:
    assert {path.name for path in FILES} == set(DASHBOARDS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_grafanas_types_read_all_of_a_dashboard(path: Path) -> None:
    """A field that its SDK does not know, or knows elsewhere, would be missing when it writes what it has read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from grafana_foundation_sdk.cog.encoder import JSONEncoder
        from grafana_foundation_sdk.cog.plugins import register_default_plugins
        from grafana_foundation_sdk.models.dashboard import Dashboard

        register_default_plugins()
        text = path.read_text()
        assert json.loads(JSONEncoder().encode(Dashboard.from_json(json.loads(text)))) == json.loads(text)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_panels_have_numbers_of_their_own_and_do_not_overlap(path: Path) -> None:
    found = list(panels(json.loads(path.read_text())))
    assert len({panel["id"] for panel in found}) == len(found)
    taken: set[tuple[int, int]] = set()
    for panel in found:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


@pytest.mark.parametrize("path", [*FILES, SPEC / "prometheus-rules.yml"], ids=lambda path: path.stem)
def test_every_metric_that_is_named_is_declared_with_its_labels(path: Path) -> None:
    """In dashboards, and in the rules of alerts."""
    if path.suffix == ".json":
        asked = expressions(path)
    else:
        asked = [rule["expr"] for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]
    assert asked
    for expression in asked:
        names = NAME.findall(re.sub(r'"[^"]*"', '""', expression))
        metrics = {name: declared(name) for name in names}
        assert None not in metrics.values(), metrics
        known = {label.name for metric in metrics.values() if metric is not None for label in metric.labels}
        for _, selected, grouped in LABELS.findall(expression):
            used = re.findall(r"([a-z_]+)\s*[=!]", selected) + [word.strip() for word in grouped.split(",") if word]
            assert set(used) <= known | FROM_PROMETHEUS, expression


@pytest.mark.skipif(PROMTOOL is None, reason="Prometheus is not installed")
def test_prometheus_understands_every_expression(tmp_path: Path) -> None:
    """As recording rules, with a window in place of Grafana's variable."""
    rules = [
        {"record": f"panel:{path.stem}:{number}", "expr": expression.replace(RATE, "5m")}
        for path in FILES
        for number, expression in enumerate(expressions(path))
    ]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    checked = subprocess.run([str(PROMTOOL), "check", "rules", str(file)], capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(rules)} rules found" in checked.stdout


def test_the_command_writes_the_same_files(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hal.integrations.grafana", str(tmp_path / "boards")]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    for path in FILES:
        assert json.loads((tmp_path / "boards" / path.name).read_text()) == json.loads(path.read_text())
