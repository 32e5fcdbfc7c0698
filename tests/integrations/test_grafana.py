"""The dashboards for Grafana: as its own SDK reads them, on metrics that there are, in expressions that Prometheus
understands."""

from __future__ import annotations

import enum
import json
import re
import shutil
import subprocess
import sys
import types
import typing
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hal.daemons.controller.metrics.declared import CONTROLLER
from hal.integrations.grafana.dashboards import DASHBOARDS
from hal.integrations.grafana.panels import RATE
from hal.planes.observability.samples.declared import OF_NODES, OF_SESSIONS, PART
from hal.runtime.metrics.declaration import Kind, Metric

SPEC = Path(__file__).parents[2] / "spec"
FILES = sorted((SPEC / "grafana").glob("*.json"))
PROMTOOL = shutil.which("promtool")
DECLARED: dict[str, Metric] = {metric.name: metric for metric in (*CONTROLLER, *OF_NODES, *OF_SESSIONS, PART)}
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


def faults(value: Any, hint: Any, where: str) -> Iterator[str]:
    """Where a value that Grafana's SDK has read is of another type than Grafana's schema, from which the types of the
    SDK are generated, says."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in (object, Any) or isinstance(hint, typing.TypeVar):
        return
    if origin is typing.Literal:
        if value not in arguments:
            yield f"{where}: {value!r} is none of {arguments}"
    elif origin in (typing.Union, types.UnionType):
        found = [list(faults(value, one, where)) for one in arguments]
        if all(found):
            yield from max(found, key=lambda some: len(some[0].partition(":")[0]))  # of what it nearly is
    elif origin is list:
        if not isinstance(value, list):
            yield f"{where}: {value!r} is no list"
            return
        for at, one in enumerate(value):
            yield from faults(one, arguments[0], f"{where}[{at}]")
    elif origin is dict:
        if not isinstance(value, dict):
            yield f"{where}: {value!r} is no object"
            return
        for name, one in value.items():
            yield from faults(one, arguments[1], f"{where}.{name}")
    elif isinstance(hint, type) and issubclass(hint, enum.Enum):
        if value not in [one.value for one in hint]:
            yield f"{where}: {value!r} is no {hint.__name__}"
    elif hint is float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            yield f"{where}: {value!r} is no number"
    elif hint in (int, str, bool, type(None)):
        if type(value) is not hint:
            yield f"{where}: {value!r} is no {hint.__name__}"
    elif not isinstance(value, hint):
        yield f"{where}: {value!r} is no {hint.__name__}"
    else:
        for name, inner in typing.get_type_hints(type(value)).items():
            yield from faults(getattr(value, name), inner, f"{where}.{name}")


def schema_faults(board: dict[str, Any]) -> list[str]:
    """Of a dashboard, as the SDK reads it: of its own fields, of panels, their options and their queries."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from grafana_foundation_sdk.cog.plugins import register_default_plugins
        from grafana_foundation_sdk.models.dashboard import Dashboard

        register_default_plugins()
        return list(faults(Dashboard.from_json(board), Dashboard, "dashboard"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_value_is_of_the_type_that_grafanas_schema_has(path: Path) -> None:
    assert schema_faults(json.loads(path.read_text())) == []


@pytest.mark.parametrize(
    ("break_it", "named"),
    [
        (lambda board: board.update(refresh=30), "dashboard.refresh"),
        (lambda board: board.update(tags="hal"), "dashboard.tags"),
        (lambda board: board["panels"][1]["gridPos"].update(w="12"), "grid_pos.w"),
        (lambda board: board["panels"][1]["targets"][0].update(expr=5), "expr"),
        (lambda board: board["panels"][1]["fieldConfig"]["defaults"].update(unit=["s"]), "unit"),
    ],
)
def test_a_value_of_another_type_is_found(break_it: Callable[[dict[str, Any]], None], named: str) -> None:
    """So that the comparison is about these, too."""
    board = json.loads(FILES[0].read_text())
    break_it(board)
    assert any(named in fault for fault in schema_faults(board))


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
