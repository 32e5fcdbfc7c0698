"""What the dashboards show: rows of panels with their expressions, as data. Pure.

Histograms are asked in both forms, since a Prometheus that takes native histograms has no buckets of the classic ones.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

RATE: Final = "$__rate_interval"
"""Grafana's variable: a window that holds some scrapes."""


class Panel(Struct, frozen=True, kw_only=True):
    """One panel."""

    title: str
    asks: tuple[tuple[str, str], ...]
    """Expressions in PromQL, each with the legend of its series."""
    unit: str = "short"
    """One of Grafana's units."""
    text: str = ""
    number: bool = False
    """Only the newest value is shown, large."""
    stacked: bool = False
    highest: float | None = None


class Row(Struct, frozen=True, kw_only=True):
    """Panels under one title."""

    title: str
    panels: tuple[Panel, ...]


class Board(Struct, frozen=True, kw_only=True):
    """One dashboard."""

    uid: str
    title: str
    text: str
    rows: tuple[Row, ...]


def quantiles(metric: str, *, by: str = "", legend: str = "") -> tuple[tuple[str, str], ...]:
    """The median and the 99th percentile of a histogram, by a label or of all."""
    classic, native = (f"sum by (le, {by})", f"sum by ({by})") if by else ("sum by (le)", "sum")
    return tuple(
        (
            f"histogram_quantile({share}, {classic} (rate({metric}_bucket[{RATE}]))) "
            f"or histogram_quantile({share}, {native} (rate({metric}[{RATE}])))",
            f"{legend} {name}".strip(),
        )
        for share, name in (("0.5", "p50"), ("0.99", "p99"))
    )


def _number(title: str, ask: str, unit: str = "short", text: str = "") -> Panel:
    return Panel(title=title, asks=((ask, ""),), unit=unit, text=text, number=True)


def _used(resource: str) -> str:
    held, there = (f'sum(hal_resource_{what}{{resource="{resource}"}})' for what in ("allocated", "capacity"))
    return f"{held} / {there}"


OVERVIEW: Final = Board(
    uid="hal-overview",
    title="HAL: overview",
    text="What the cluster does: nodes, what is in use, queues, results.",
    rows=(
        Row(
            title="Now",
            panels=(
                _number("Nodes up", 'sum(hal_nodes{state="up"})'),
                _number("Nodes not up", 'sum(hal_nodes{state!="up"}) or vector(0)'),
                _number("Tasks running", 'sum(hal_tasks{state="running"}) or vector(0)'),
                _number("Tasks waiting", 'sum(hal_tasks{state="pending"}) or vector(0)'),
                _number("Cores in use", _used("cpu"), "percentunit"),
                _number("GPUs in use", _used("gpu"), "percentunit"),
            ),
        ),
        Row(
            title="Work",
            panels=(
                Panel(
                    title="Tasks by state",
                    asks=(("sum by (state) (hal_tasks)", "{{state}}"),),
                    stacked=True,
                ),
                Panel(
                    title="Waiting tasks by queue",
                    asks=(('sum by (queue) (hal_tasks{state="pending"})', "{{queue}}"),),
                    stacked=True,
                ),
                Panel(
                    title="Attempts that ended, by result",
                    asks=((f"sum by (result) (rate(hal_attempts_ended_total[{RATE}]))", "{{result}}"),),
                    unit="ops",
                    stacked=True,
                ),
                Panel(
                    title="Jobs submitted and tasks started",
                    asks=(
                        (f"sum(rate(hal_jobs_submitted_total[{RATE}]))", "jobs submitted"),
                        (f"sum(rate(hal_tasks_started_total[{RATE}]))", "tasks started"),
                    ),
                    unit="ops",
                ),
            ),
        ),
        Row(
            title="Waiting",
            panels=(
                Panel(
                    title="How long tasks waited, by queue",
                    asks=quantiles("hal_queue_wait_seconds", by="queue", legend="{{queue}}"),
                    unit="s",
                    text="From when a task could have begun until it was given nodes.",
                ),
                Panel(
                    title="The oldest that waits, by queue",
                    asks=(("max by (queue) (hal_queue_oldest_wait_seconds)", "{{queue}}"),),
                    unit="s",
                    text="Of jobs of which nothing runs, since they could have started.",
                ),
                Panel(
                    title="From submission to the start of processes",
                    asks=quantiles("hal_submit_to_start_seconds"),
                    unit="s",
                ),
            ),
        ),
        Row(
            title="Resources",
            panels=(
                Panel(
                    title="Part in use",
                    asks=(
                        (
                            "sum by (resource) (hal_resource_allocated) / sum by (resource) (hal_resource_capacity)",
                            "{{resource}}",
                        ),
                    ),
                    unit="percentunit",
                    highest=1,
                ),
                Panel(
                    title="Nodes by state",
                    asks=(("sum by (state) (hal_nodes)", "{{state}}"),),
                    stacked=True,
                ),
                Panel(
                    title="Limits in use",
                    asks=(("max by (limit) (hal_limit_used_ratio)", "{{limit}}"),),
                    unit="percentunit",
                ),
            ),
        ),
    ),
)
SCHEDULER: Final = Board(
    uid="hal-controller",
    title="HAL: controller",
    text="How the controller fares: its loop, its store, REST, readers of its feeds.",
    rows=(
        Row(
            title="Health",
            panels=(
                _number("Leads", "sum(hal_leader)", text="Controllers that lead: one, or none during a change."),
                _number("Commits succeed", "min(hal_store_writable)"),
                _number("Agents connected", "sum(hal_agents_connected)"),
                _number("First certificate ends in", "min(hal_certificate_expiry_timestamp_seconds) - time()", "s"),
                _number("Free disk of HAL_HOME", "min(hal_home_free_ratio)", "percentunit"),
                _number("Planes out of service", "count(hal_plane_in_service == 0) or vector(0)"),
            ),
        ),
        Row(
            title="Control loop",
            panels=(
                Panel(title="Turn of the loop", asks=quantiles("hal_cycle_seconds"), unit="s"),
                Panel(title="Slice of the engine", asks=quantiles("hal_slice_seconds"), unit="s"),
                Panel(title="Lateness of timers", asks=quantiles("hal_event_loop_lag_seconds"), unit="s"),
                Panel(title="Requests and reports in a group", asks=quantiles("hal_group_items")),
                Panel(title="Requests that wait for the loop", asks=(("sum(hal_calls_waiting)", "waiting"),)),
            ),
        ),
        Row(
            title="Store",
            panels=(
                Panel(title="Commit", asks=quantiles("hal_commit_seconds"), unit="s"),
                Panel(title="Flush", asks=quantiles("hal_flush_seconds"), unit="s"),
                Panel(
                    title="Commits that failed",
                    asks=((f"sum(rate(hal_commit_failures_total[{RATE}]))", "failed"),),
                    unit="ops",
                ),
                Panel(title="Size", asks=(("max(hal_store_size_bytes)", "database"),), unit="bytes"),
            ),
        ),
        Row(
            title="REST",
            panels=(
                Panel(
                    title="Requests by operation",
                    asks=((f"topk(10, sum by (operation) (rate(hal_rest_requests_total[{RATE}])))", "{{operation}}"),),
                    unit="reqps",
                ),
                Panel(
                    title="Refused and failed, by status",
                    asks=(
                        (f'sum by (status) (rate(hal_rest_requests_total{{status=~"4..|5.."}}[{RATE}]))', "{{status}}"),
                    ),
                    unit="reqps",
                ),
                Panel(
                    title="Time to answer, by operation",
                    asks=quantiles("hal_rest_request_seconds", by="operation", legend="{{operation}}")[1:],
                    unit="s",
                    text="Operations that wait for something, as `waitForJob`, are among them.",
                ),
            ),
        ),
        Row(
            title="Feeds, planes, advice",
            panels=(
                Panel(
                    title="What registered readers have not read",
                    asks=(("max by (reader, feed) (hal_feed_reader_lag)", "{{reader}}: {{feed}}"),),
                ),
                Panel(
                    title="Age of advice",
                    asks=(("max by (kind) (hal_advice_age_seconds)", "{{kind}}"),),
                    unit="s",
                ),
                Panel(title="Followers of events", asks=(("sum(hal_feed_watchers)", "connections"),)),
            ),
        ),
        Row(
            title="Process",
            panels=(
                Panel(
                    title="CPU",
                    asks=((f'rate(process_cpu_seconds_total{{job="hal"}}[{RATE}])', "{{instance}}"),),
                    text="In cores.",
                ),
                Panel(
                    title="Memory",
                    asks=(('process_resident_memory_bytes{job="hal"}', "{{instance}}"),),
                    unit="bytes",
                ),
            ),
        ),
    ),
)
NODES: Final = Board(
    uid="hal-nodes",
    title="HAL: nodes",
    text="What nodes and their GPUs use, and what sessions do, as agents and brokers send it to the collector.",
    rows=(
        Row(
            title="Nodes",
            panels=(
                Panel(
                    title="CPU in use",
                    asks=(
                        (
                            f'sum by (node) (rate(hal_node_cpu_seconds_total{{mode!~"idle|iowait"}}[{RATE}])) '
                            "/ sum by (node) (hal_node_cpus)",
                            "{{node}}",
                        ),
                    ),
                    unit="percentunit",
                    highest=1,
                ),
                Panel(
                    title="Memory in use",
                    asks=(("hal_node_memory_used_bytes / hal_node_memory_total_bytes", "{{node}}"),),
                    unit="percentunit",
                    highest=1,
                ),
                Panel(
                    title="Stalled for want of a resource",
                    asks=(
                        (
                            f'rate(hal_node_pressure_seconds_total{{stalled="some"}}[{RATE}])',
                            "{{node}}: {{resource}}",
                        ),
                    ),
                    unit="percentunit",
                    text="Part of the time in which some work waited for it (PSI).",
                ),
                Panel(
                    title="Disks",
                    asks=(
                        (f"sum by (node) (rate(hal_node_disk_read_bytes_total[{RATE}]))", "{{node}} read"),
                        (f"sum by (node) (rate(hal_node_disk_written_bytes_total[{RATE}]))", "{{node}} written"),
                    ),
                    unit="Bps",
                ),
                Panel(
                    title="Network",
                    asks=(
                        (f"sum by (node) (rate(hal_node_network_received_bytes_total[{RATE}]))", "{{node}} received"),
                        (f"sum by (node) (rate(hal_node_network_sent_bytes_total[{RATE}]))", "{{node}} sent"),
                    ),
                    unit="Bps",
                ),
                Panel(
                    title="Free disk of HAL_HOME",
                    asks=(("hal_node_home_free_bytes / hal_node_home_size_bytes", "{{node}}"),),
                    unit="percentunit",
                ),
            ),
        ),
        Row(
            title="GPUs",
            panels=(
                _number("GPUs held", "sum(hal_node_gpu_held) or vector(0)"),
                _number(
                    "GPUs held but idle",
                    f"sum(rate(hal_node_gpu_held_idle_seconds_total[{RATE}])) or vector(0)",
                    text="Held by a step, and used less than 1 %.",
                ),
                Panel(
                    title="Use",
                    asks=(("hal_node_gpu_utilisation_ratio", "{{node}}: {{gpu}}"),),
                    unit="percentunit",
                    highest=1,
                ),
                Panel(
                    title="Memory",
                    asks=(("hal_node_gpu_memory_used_bytes / hal_node_gpu_memory_total_bytes", "{{node}}: {{gpu}}"),),
                    unit="percentunit",
                    highest=1,
                ),
                Panel(title="Power", asks=(("hal_node_gpu_power_watts", "{{node}}: {{gpu}}"),), unit="watt"),
                Panel(
                    title="Temperature",
                    asks=(("hal_node_gpu_temperature_celsius", "{{node}}: {{gpu}}"),),
                    unit="celsius",
                ),
            ),
        ),
        Row(
            title="Sessions",
            panels=(
                Panel(
                    title="Tasks of sessions that ended",
                    asks=((f"sum by (status) (rate(hal_sessions_tasks_total[{RATE}]))", "{{status}}"),),
                    unit="ops",
                    stacked=True,
                ),
                Panel(
                    title="Slots",
                    asks=(("sum(hal_sessions_slots)", "there"), ("sum(hal_sessions_slots_busy)", "busy")),
                ),
                Panel(
                    title="From a task's coming to its report",
                    asks=quantiles("hal_sessions_task_latency_seconds"),
                    unit="s",
                ),
            ),
        ),
    ),
)
BOARDS: Final = (OVERVIEW, SCHEDULER, NODES)
