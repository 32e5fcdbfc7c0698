"""What agents measure and send, declared once: spec/metrics.md and the help of the collector's exposition follow.

Each has the label `node`, too, where it is shown. Series of attempts are not shown to Prometheus: they are in HAL's own
store (`GET /v1/series`).
"""

from __future__ import annotations

from typing import Final

from hal.runtime.metrics.declaration import Kind, Label, Metric

NODE: Final = Label("node", "the name of a node", 10_000)
_DEVICE: Final = Label("device", "a disk or network interface of the node", 64)
_GPU: Final = Label("gpu", "index of a GPU of the node", 64)
_ATTEMPT: Final = Label("attempt", "job, task, attempt and rank; not shown to Prometheus", 256)


def _metric(kind: Kind, name: str, text: str, *labels: Label, unit: str = "") -> Metric:
    return Metric(name=name, kind=kind, text=text, unit=unit, labels=(NODE, *labels))


_G, _C = Kind.GAUGE, Kind.COUNTER
OF_NODES: Final = (
    _metric(_C, "hal_node_cpu_seconds_total", "CPU time since the machine began.",
            Label("mode", "as in /proc/stat", 16), unit="seconds"),
    _metric(_G, "hal_node_cpus", "CPUs."),
    _metric(_G, "hal_node_load", "Load average.", Label("window", "`1m`, `5m`, `15m`", 3)),
    _metric(_G, "hal_node_memory_total_bytes", "Memory.", unit="bytes"),
    _metric(_G, "hal_node_memory_available_bytes", "Memory that can be given without swapping.", unit="bytes"),
    _metric(_G, "hal_node_memory_used_bytes", "Memory that cannot.", unit="bytes"),
    _metric(_G, "hal_node_swap_total_bytes", "Swap space.", unit="bytes"),
    _metric(_G, "hal_node_swap_used_bytes", "Swap space in use.", unit="bytes"),
    _metric(_C, "hal_node_pressure_seconds_total", "Time for which work waited for a resource (PSI).",
            Label("resource", "`cpu`, `memory`, `io`", 8), Label("stalled", "`some` or all (`full`) of the work", 2),
            unit="seconds"),
    _metric(_C, "hal_node_disk_read_bytes_total", "Bytes read of a disk.", _DEVICE, unit="bytes"),
    _metric(_C, "hal_node_disk_written_bytes_total", "Bytes written to a disk.", _DEVICE, unit="bytes"),
    _metric(_C, "hal_node_disk_busy_seconds_total", "Time in which a disk worked.", _DEVICE, unit="seconds"),
    _metric(_C, "hal_node_network_received_bytes_total", "Bytes received by an interface.", _DEVICE, unit="bytes"),
    _metric(_C, "hal_node_network_sent_bytes_total", "Bytes sent by an interface.", _DEVICE, unit="bytes"),
    _metric(_C, "hal_node_network_errors_total", "Packets with errors, and dropped ones.", _DEVICE),
    _metric(_G, "hal_node_home_size_bytes", "Size of the file system of HAL_HOME.", unit="bytes"),
    _metric(_G, "hal_node_home_free_bytes", "What is free of it.", unit="bytes"),
    _metric(_G, "hal_node_gpu_utilisation_ratio", "Part of the time in which a GPU worked.", _GPU, unit="ratio"),
    _metric(_G, "hal_node_gpu_memory_used_bytes", "Memory of a GPU in use.", _GPU, unit="bytes"),
    _metric(_G, "hal_node_gpu_memory_total_bytes", "Memory of a GPU.", _GPU, unit="bytes"),
    _metric(_G, "hal_node_gpu_power_watts", "Power that a GPU takes.", _GPU, unit="watts"),
    _metric(_G, "hal_node_gpu_temperature_celsius", "Temperature of a GPU.", _GPU, unit="celsius"),
    _metric(_G, "hal_node_gpu_held", "1 while a measured step holds a GPU.", _GPU),
    _metric(_C, "hal_node_gpu_held_idle_seconds_total", "How long a GPU was held and used less than 1 %.", _GPU,
            unit="seconds"),
)  # fmt: skip
OF_ATTEMPTS: Final = (
    _metric(_C, "hal_attempt_cpu_seconds_total", "CPU time of an attempt's step.", _ATTEMPT, unit="seconds"),
    _metric(_G, "hal_attempt_memory_bytes", "Memory of a step now.", _ATTEMPT, unit="bytes"),
    _metric(_G, "hal_attempt_memory_peak_bytes", "The most so far.", _ATTEMPT, unit="bytes"),
    _metric(_G, "hal_attempt_processes", "Processes of a step.", _ATTEMPT),
    _metric(_C, "hal_attempt_read_bytes_total", "Bytes that a step read.", _ATTEMPT, unit="bytes"),
    _metric(_C, "hal_attempt_written_bytes_total", "Bytes that a step wrote.", _ATTEMPT, unit="bytes"),
    _metric(_G, "hal_attempt_gpu_utilisation_ratio", "Mean use of the GPUs that a step holds.", _ATTEMPT, unit="ratio"),
    _metric(
        _C, "hal_attempt_gpu_measured_seconds_total", "How long a step's GPUs were measured.", _ATTEMPT, unit="seconds"
    ),
    _metric(
        _C,
        "hal_attempt_gpu_used_seconds_total",
        "The part of that time in which they worked, on average.",
        _ATTEMPT,
        unit="seconds",
    ),
    _metric(
        _C,
        "hal_attempt_gpu_energy_joules_total",
        "Energy that they took in that time; of a shared GPU a part.",
        _ATTEMPT,
        unit="joules",
    ),
)
_QUEUE: Final = Label("queue", "a queue", 1_000)
_STATUS: Final = Label("status", "`done`, `failed`, or another end of tasks", 8)


def _of_sessions(kind: Kind, name: str, text: str, *labels: Label, unit: str = "") -> Metric:
    return Metric(
        name=f"hal_sessions_{name}", kind=kind, text=text, unit=unit, labels=(_QUEUE, *labels), classic=(0, LATENCIES)
    )


LATENCIES: Final = 22
"""Buckets of latencies end at 2 to this power, in milliseconds."""
OF_SESSIONS: Final = (
    _of_sessions(_G, "brokers", "Brokers of sessions that send numbers."),
    _of_sessions(_G, "clients", "Connections of clients to them."),
    _of_sessions(_G, "slots", "Slots whose worker is connected."),
    _of_sessions(_G, "slots_busy", "Slots that have a task."),
    _of_sessions(_G, "tasks_waiting", "Tasks that no slot has."),
    _of_sessions(_G, "tasks_unanswered", "Tasks that have not ended."),
    _of_sessions(_C, "tasks_total", "Tasks that have ended, by how.", _STATUS),
    _of_sessions(_C, "task_retries_total", "How often a task failed that ran again."),
    _of_sessions(_C, "lost_workers_total", "How often a worker ended with tasks."),
    _of_sessions(Kind.HISTOGRAM, "task_latency_seconds",
                 "From when a task's block came until its worker reported it.", unit="seconds"),
)  # fmt: skip
PART: Final = Metric(
    name="hal_collector_part",
    kind=Kind.GAUGE,
    text="What a part of the collector says of itself; see GET /v1/health.",
    labels=(Label("part", "a part of the collector", 32), Label("value", "its name in the part's health", 256)),
)
REFUSED: Final = Metric(
    name="hal_collector_refused_total",
    kind=Kind.COUNTER,
    text="Log lines and spans that a node sent about attempts of others, or in the name of processes that are not its "
    "own.",
    labels=(Label("kind", "`lines`, `spans`", 2),),
)
OF_COLLECTOR: Final = (PART, REFUSED)
TEXTS: Final = {metric.name: metric.text for metric in (*OF_NODES, *OF_SESSIONS, *OF_COLLECTOR)}
"""By name, of what the collector shows."""
