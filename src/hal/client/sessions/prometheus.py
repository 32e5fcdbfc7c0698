"""The numbers of sessions in Prometheus' text format. Pure.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/, version 0.0.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from hal.client.sessions.listing import SessionView
from hal.core.model.printable import printable
from hal.wire.frames.sessions import LATENCY_STEPS

Labels = tuple[tuple[str, str], ...]
Samples = Iterable[tuple[str, Labels, float]]
"""What the metric's name is followed by, labels, value."""

GAUGE: Final = "gauge"
COUNTER: Final = "counter"
HISTOGRAM: Final = "histogram"
MS: Final = 1_000
US: Final = 1_000_000


def metrics_of(sessions: Sequence[SessionView]) -> str:
    """All metrics of these sessions, each with the label `session`; '' if there is none."""
    lines: list[str] = []
    for name, kind, text, samples in _METRICS:
        found = [
            f"hal_session_{name}{after}{_labels((('session', one.session.name), ('user', one.session.user), *labels))} "
            f"{value:.12g}"
            for one in sessions
            for after, labels, value in samples(one)
        ]
        if found:
            lines += [f"# HELP hal_session_{name} {text}", f"# TYPE hal_session_{name} {kind}", *found]
    return "".join(f"{line}\n" for line in lines)


def _labels(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(value: str) -> str:
    """A label's value: what acts on terminals is an escape already, and its backslashes are the value's own."""
    return printable(value).replace("\\", r"\\").replace('"', r"\"")


def _one(value: float) -> Samples:
    return [("", (), value)]


def _ended(one: SessionView) -> Samples:
    return [("", (("status", status),), tasks) for status, tasks in one.ended.items()]


def _functions(one: SessionView) -> Samples:
    for group in one.functions:
        yield "", (("function", group.name), ("status", "done")), group.done
        yield "", (("function", group.name), ("status", "failed")), group.failed


def _tags(one: SessionView) -> Samples:
    for group in one.tags:
        yield "", (("tag", group.name), ("status", "done")), group.done
        yield "", (("tag", group.name), ("status", "failed")), group.failed


def _function_seconds(one: SessionView) -> Samples:
    return [("", (("function", group.name),), group.busy_us / US) for group in one.functions]


def _slot_tasks(one: SessionView) -> Samples:
    return [("", labels, done) for labels, (done, _) in _by_slot(one).items()]


def _slot_seconds(one: SessionView) -> Samples:
    return [("", labels, busy_s) for labels, (_, busy_s) in _by_slot(one).items()]


def _by_slot(one: SessionView) -> dict[Labels, tuple[int, float]]:
    """Tasks and seconds of each worker; two processes of one, of which one is about to be gone, count together."""
    found: dict[Labels, tuple[int, float]] = {}
    for slot in one.slots:
        labels = (("slot", str(slot.task)), ("worker", slot.worker))
        done, busy_s = found.get(labels, (0, 0.0))
        found[labels] = (done + slot.done, busy_s + slot.done * slot.mean_us / US)
    return found


def _latencies(one: SessionView) -> Samples:
    total = 0
    for step in range(LATENCY_STEPS - 1):
        total += one.within_ms.get(str(1 << step), 0)
        yield "_bucket", (("le", f"{(1 << step) / MS:.12g}"),), total
    total = sum(one.within_ms.values())
    yield "_bucket", (("le", "+Inf"),), total
    yield "_sum", (), one.latency_ms / MS
    yield "_count", (), total


_METRICS: Final = (
    ("uptime_seconds", GAUGE, "For how long the broker has served the session.", lambda one: _one(one.uptime_s)),
    ("clients", GAUGE, "Clients that are connected.", lambda one: _one(one.clients)),
    ("slots", GAUGE, "Slots whose worker is connected.", lambda one: _one(len(one.slots))),
    ("slots_most", GAUGE, "Slots at most.", lambda one: _one(one.session.most)),
    ("slots_busy", GAUGE, "Slots that have a task.", lambda one: _one(sum(slot.held > 0 for slot in one.slots))),
    ("tasks_waiting", GAUGE, "Tasks that no slot has.", lambda one: _one(one.waiting)),
    ("tasks_unanswered", GAUGE, "Tasks that have not ended.", lambda one: _one(one.unanswered)),
    ("tasks_total", COUNTER, "Tasks that have ended, by how.", _ended),
    ("task_retries_total", COUNTER, "How often a task failed that ran again.", lambda one: _one(one.retried)),
    ("lost_workers_total", COUNTER, "How often a worker ended with tasks.", lambda one: _one(one.lost_workers)),
    ("task_latency_seconds", HISTOGRAM, "From when a task's block came until its worker reported it.", _latencies),
    ("function_tasks_total", COUNTER, "Tasks that have ended, by function.", _functions),
    ("function_busy_seconds_total", COUNTER, "How long the tasks of a function ran.", _function_seconds),
    ("tag_tasks_total", COUNTER, "Tasks that have ended, by tag.", _tags),
    ("slot_tasks_total", COUNTER, "Tasks that a slot's worker has reported.", _slot_tasks),
    ("slot_busy_seconds_total", COUNTER, "How long these tasks ran.", _slot_seconds),
)
