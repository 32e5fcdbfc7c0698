"""The dashboards as JSON that Grafana imports: its SDK builds them from the table of panels."""

from __future__ import annotations

import json
import warnings
from itertools import count
from typing import Any, Final

from hal.integrations.grafana.panels import BOARDS, Board, Panel

SOURCE: Final = "source"
"""The dashboards' variable: which Prometheus is asked."""
NUMBER_WIDTH, GRAPH_WIDTH, NUMBER_HEIGHT, GRAPH_HEIGHT = 4, 8, 4, 8
"""Of 24 columns; in rows of Grafana's grid."""


def dashboard(board: Board) -> dict[str, Any]:
    """One dashboard, as Grafana exports and imports it (the format of versions 5 to 12, which later ones convert)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the SDK prefers the format of version 12
        from grafana_foundation_sdk.builders import dashboard as build
        from grafana_foundation_sdk.cog.encoder import JSONEncoder
        from grafana_foundation_sdk.models.dashboard import DashboardCursorSync

        made = (
            build.Dashboard(board.title)
            .uid(board.uid)
            .description(board.text)
            .tags(["hal"])
            .refresh("30s")
            .time("now-6h", "now")
            .timezone("browser")
            .tooltip(DashboardCursorSync.CROSSHAIR)
            .with_variable(build.DatasourceVariable(SOURCE).label("Prometheus").type("prometheus"))
        )
        numbers = count(1)
        for row in board.rows:
            made = made.with_row(build.Row(row.title).id(next(numbers)))
            for panel in row.panels:
                made = made.with_panel(_panel(panel).id(next(numbers)))
        found: dict[str, Any] = json.loads(JSONEncoder().encode(made.build()))
        return found


def _panel(panel: Panel) -> Any:
    from grafana_foundation_sdk.builders import common as build
    from grafana_foundation_sdk.builders import prometheus, stat, timeseries
    from grafana_foundation_sdk.models.common import DataSourceRef, LegendDisplayMode, LegendPlacement, StackingMode

    source = DataSourceRef(type_val="prometheus", uid=f"${{{SOURCE}}}")
    made: Any = stat.Panel() if panel.number else timeseries.Panel()
    made = made.title(panel.title).datasource(source).unit(panel.unit)
    width, height = (NUMBER_WIDTH, NUMBER_HEIGHT) if panel.number else (GRAPH_WIDTH, GRAPH_HEIGHT)
    made = made.span(width).height(height)
    if panel.text:
        made = made.description(panel.text)
    if not panel.number:
        names = build.VizLegendOptions().show_legend(True).display_mode(LegendDisplayMode.LIST)
        made = made.min(0).fill_opacity(20 if panel.stacked else 0).legend(names.placement(LegendPlacement.BOTTOM))
        if panel.highest is not None:
            made = made.max(panel.highest)
        if panel.stacked:
            made = made.stacking(build.StackingConfig().mode(StackingMode.NORMAL))
    for number, (ask, legend) in enumerate(panel.asks):
        query = prometheus.Dataquery().expr(ask).ref_id("ABCDEFGH"[number]).datasource(source)
        made = made.with_target(query.legend_format(legend) if legend else query)
    return made


DASHBOARDS: Final = {f"{board.uid.removeprefix('hal-')}.json": board for board in BOARDS}
"""By file name."""
