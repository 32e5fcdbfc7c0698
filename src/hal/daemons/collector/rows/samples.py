"""`GET /v1/nodes/latest`, `GET /v1/series`, `GET /v1/metrics`: what nodes and attempts use, now and before."""

from __future__ import annotations

import math
from typing import Annotated, Final

import msgspec
import numpy as np
from litestar import Response
from msgspec import Meta, Struct

from hal.core.model import DeniedError, NotFoundError, SpecError, shown
from hal.daemons.collector.collector import Collector
from hal.planes.observability.samples.blocks import Block, rates
from hal.planes.observability.samples.columns import SourceColumns, ratio_between
from hal.planes.observability.samples.exposition import ATTEMPT, exposition
from hal.planes.observability.samples.part import Samples
from hal.rest.call import Call
from hal.rest.endpoint import FLAG, INT, TEXT, Endpoint, Param
from hal.rest.rights import EVERYBODY, OPERATORS
from hal.runtime.metrics.text import TEXT as EXPOSITION
from hal.wire.frames.telemetry import Series

MAX_MS: Final = 1 << 53
DEFAULT_RANGE_MS: Final = 3_600_000
LONGEST_RANGE_MS: Final = 10 * 366 * 86_400_000
MAX_POINTS: Final = 5_000
"""Of one series in an answer; the step is made longer where there would be more."""
MAX_SERIES: Final = 500
"""In one answer."""
FRESH_MS: Final = 60_000


class JobOwner(Struct, frozen=True):
    """What is read of a job."""

    user: str


class NodesNow(Struct, frozen=True, kw_only=True):
    """All nodes that were heard in the last minutes, in columns; null: not known."""

    nodes: list[str]
    age_ms: Annotated[list[int], Meta(description="how long ago each was heard")]
    cpus: list[float | None]
    cpu: Annotated[list[float | None], Meta(description="part of all CPU time that was used, 0 to 1")]
    load: Annotated[list[float | None], Meta(description="load average over a minute")]
    memory_used_bytes: list[float | None]
    memory_total_bytes: list[float | None]
    gpus: list[int]
    gpu: Annotated[list[float | None], Meta(description="mean use of its GPUs, 0 to 1")]
    gpus_held_idle: Annotated[list[int], Meta(description="GPUs that a step holds and that are not used")]


class SeriesView(Struct, frozen=True, kw_only=True):
    """One series."""

    source: str
    """The node's name; of another process its role and name."""
    name: str
    kind: str
    labels: dict[str, str]
    at_ms: list[int]
    values: list[float]


class SeriesList(Struct, frozen=True, kw_only=True):
    """Series of one source."""

    series: list[SeriesView]
    step_ms: Annotated[int, Meta(description="0: as they came")]
    more: Annotated[bool, Meta(description="there are more series than are shown; name one")] = False


def _samples(collector: Collector) -> Samples:
    assert collector.samples is not None  # the collector is assembled with it
    return collector.samples


async def nodes_latest(collector: Collector, call: Call) -> NodesNow:
    """All nodes in columns: one request for a page that shows thousands."""
    now_ms = collector.runtime.monotonic_ms()
    found = NodesNow(
        nodes=[], age_ms=[], cpus=[], cpu=[], load=[], memory_used_bytes=[], memory_total_bytes=[], gpus=[], gpu=[],
        gpus_held_idle=[],
    )  # fmt: skip
    for source in sorted(_samples(collector).sources(), key=lambda one: one.name):
        if source.is_node:
            _add_node(found, source, now_ms)
    return found


def _add_node(found: NodesNow, source: SourceColumns, now_ms: int) -> None:
    newest_ms = source.last_ms()
    cpu_rows: list[int] = []
    busy_rows: list[int] = []
    used: list[float] = []
    held: dict[str, float] = {}
    values: dict[str, float] = {}
    for row, series in enumerate(source.series):
        value = float(source.newest[row])
        if ATTEMPT in series.labels or math.isnan(value) or newest_ms - int(source.newest_ms[row]) > FRESH_MS:
            continue
        match series.name:
            case "hal_node_cpu_seconds_total":
                cpu_rows.append(row)
                if series.labels.get("mode") not in ("idle", "iowait"):
                    busy_rows.append(row)
            case "hal_node_gpu_utilisation_ratio":
                used.append(value)
                held[series.labels.get("gpu", "")] = held.get(series.labels.get("gpu", ""), 0.0) + (value < 0.01)
            case "hal_node_gpu_held":
                held[series.labels.get("gpu", "")] = held.get(series.labels.get("gpu", ""), 0.0) + value
            case "hal_node_load" if series.labels.get("window") != "1m":
                continue
            case name:
                values[name] = value
    found.nodes.append(source.name)
    found.age_ms.append(max(0, now_ms - source.heard_ms))
    found.cpus.append(values.get("hal_node_cpus"))
    found.cpu.append(ratio_between(source, cpu_rows, busy_rows))
    found.load.append(values.get("hal_node_load"))
    found.memory_used_bytes.append(values.get("hal_node_memory_used_bytes"))
    found.memory_total_bytes.append(values.get("hal_node_memory_total_bytes"))
    found.gpus.append(len(used))
    found.gpu.append(sum(used) / len(used) if used else None)
    found.gpus_held_idle.append(sum(count >= 2 for count in held.values()))


async def get_series(collector: Collector, call: Call) -> SeriesList:
    """Values of series of one node, or of one attempt there, over a time."""
    params, samples = call.params, _samples(collector)
    node, name, attempt = params.text("node"), params.text("name"), params.text("attempt")
    if not node:
        raise SpecError("node: name the node", hint="GET /v1/nodes/latest lists those there")
    until_ms = params.integer("until_ms", collector.runtime.now_ms(), low=0, high=MAX_MS)
    since_ms = params.integer("since_ms", max(0, until_ms - DEFAULT_RANGE_MS), low=0, high=MAX_MS)
    if not since_ms < until_ms <= since_ms + LONGEST_RANGE_MS:
        raise SpecError(f"since_ms: {since_ms} is not before until_ms, {until_ms}, or ten years before it")
    step_ms = params.integer("step_ms", 0, low=0, high=LONGEST_RANGE_MS)
    if (until_ms - since_ms) // max(step_ms, 1_000) > MAX_POINTS:
        step_ms = max(step_ms, -(-(until_ms - since_ms) // MAX_POINTS))
    if attempt:
        await _check_attempt(collector, call, attempt)

    def is_asked(one: Series) -> bool:
        return (not name or one.name == name) and _is_asked(one.labels.get(ATTEMPT, ""), attempt)

    block = await samples.history(node, since_ms, until_ms, step_ms, is_asked)
    if not block.series and samples.source(node) is None and node not in await samples.known_sources():
        raise NotFoundError(f"nothing was heard of '{shown(node)}'", hint="GET /v1/nodes/latest lists nodes")
    if params.flag("rate"):
        block = rates(block)
    count = len(block.series)
    return SeriesList(
        series=[_view(node, block, row) for row in range(min(count, MAX_SERIES))],
        step_ms=step_ms,
        more=count > MAX_SERIES,
    )


def _is_asked(label: str, attempt: str) -> bool:
    """A series of the node itself where no attempt is named; else of that attempt, in any rank."""
    return label == attempt or (bool(attempt) and label.startswith(f"{attempt}."))


def _view(node: str, block: Block, row: int) -> SeriesView:
    one, values = block.series[row], block.values[row]
    there = ~np.isnan(values)
    return SeriesView(
        source=node,
        name=one.name,
        kind=one.kind,
        labels=one.labels,
        at_ms=block.at_ms[there].tolist(),
        values=values[there].tolist(),
    )


async def _check_attempt(collector: Collector, call: Call, attempt: str) -> None:
    """
    Raises:
        SpecError: it is no attempt.
        DeniedError: it is of somebody else's job, or of one that the controller does not know any more.
    """
    job, *others = attempt.split(".")
    if not (job.isascii() and job.isdigit() and 0 < len(job) <= 16 and len(others) in (2, 3)):
        raise SpecError(f"attempt: '{shown(attempt)}' is no attempt", hint="write 42.0.1: job, task, attempt")
    operator = call.visit.identity.role.rank > 0
    if operator:
        return
    denied = DeniedError(f"attempt: {shown(attempt)} is not of a job of yours", hint="ask an operator")
    assert collector.controller is not None  # the collector is assembled with it
    try:
        answer = await collector.controller.ask("GET", f"/v1/jobs/{job}")
    except NotFoundError:
        raise denied from None
    if msgspec.json.decode(answer, type=JobOwner).user != call.visit.identity.user:
        call.visit.not_own = True
        raise denied


async def get_metrics(collector: Collector, call: Call) -> Response[bytes]:
    """Pushed metrics, for Prometheus."""
    health = {name: part.values for name, part in collector.health().items()}
    samples, runtime = _samples(collector), collector.runtime
    text = exposition(samples.sources(), health, runtime.now_ms(), samples.brokers.sums(runtime.monotonic_ms()))
    return Response(content=text.encode(), media_type=EXPOSITION)


ROWS: Final = (
    Endpoint(
        method="GET",
        path="/v1/nodes/latest",
        handler=nodes_latest,
        right=EVERYBODY,
        name="nodesLatest",
        tag="samples",
        summary="Show what all nodes use now, in columns",
        result=NodesNow,
    ),
    Endpoint(
        method="GET",
        path="/v1/series",
        handler=get_series,
        right=EVERYBODY,
        name="series",
        tag="samples",
        summary="Show what a node, or an attempt on it, used over a time",
        text=(
            "Gauges are averaged over a step, of counters the last value of a step is shown. The step is made longer "
            "where a series would have more than 5,000 values. Values older than `fine` of `[observability.samples]` "
            "are kept by the minute, older ones by the hour. Users see nodes, and attempts of their own jobs."
        ),
        params=(
            Param(name="node", text="the node's name; of another process its role and name, `broker:s1`", schema=TEXT),
            Param(name="name", text="only series with this name", schema=TEXT, example="hal_node_memory_used_bytes"),
            Param(name="attempt", text="the attempt, `42.0.1`, instead of the node itself", schema=TEXT),
            Param(name="since_ms", text="since when; default: an hour before `until_ms`", schema=INT),
            Param(name="until_ms", text="until when; default: now", schema=INT),
            Param(name="step_ms", text="one value for so long; 0: as they came", schema=INT),
            Param(name="rate", text="of counters, how much they grow a second", schema=FLAG),
        ),
        result=SeriesList,
        problems=("400", "404"),
    ),
    Endpoint(
        method="GET",
        path="/v1/metrics",
        handler=get_metrics,
        right=OPERATORS,
        name="metrics",
        tag="samples",
        summary="Show what nodes and other processes have sent last, for Prometheus",
        media={"text/plain": {"type": "string"}},
    ),
)  # fmt: skip
