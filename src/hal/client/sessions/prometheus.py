"""The numbers of sessions in Prometheus' text format. Pure.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/, version 0.0.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from hal.client.sessions.listing import SessionView
from hal.core.model.printable import printable
from hal.runtime.metrics.declaration import Kind, Label, Metric
from hal.runtime.metrics.text import head_lines, labels_text, number
from hal.wire.frames.sessions import LATENCY_STEPS

Labels = tuple[tuple[str, str], ...]
Samples = Iterable[tuple[str, Labels, float]]
"""What the metric's name is followed by, labels, value."""

MS: Final = 1_000
US: Final = 1_000_000


def metrics_of(sessions: Sequence[SessionView]) -> str:
    """All metrics of these sessions, each with the labels `session` and `user`; '' if there is none."""
    lines: list[str] = []
    for metric, samples in _METRICS:
        found = [
            f"{metric.name}{after}{_labels((('session', one.session.name), ('user', one.session.user), *labels))} "
            f"{number(value)}"
            for one in sessions
            for after, labels, value in samples(one)
        ]
        if found:
            lines += [*head_lines(metric), *found]
    return "".join(f"{line}\n" for line in lines)


def _labels(labels: Labels) -> str:
    """What acts on terminals is an escape in a value already, and its backslashes are the value's own."""
    return labels_text([(name, printable(value)) for name, value in labels])


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
        yield "_bucket", (("le", number((1 << step) / MS)),), total
    total = sum(one.within_ms.values())
    yield "_bucket", (("le", "+Inf"),), total
    yield "_sum", (), one.latency_ms / MS
    yield "_count", (), total


_SESSION: Final = (Label("session", "name of a session", 1_000), Label("user", "whose it is", 1_000))
_STATUS: Final = Label("status", "`done`, `failed`, or another end of tasks", 8)
_FUNCTION: Final = Label("function", "a function of the session's tasks; the rarest are one", 1_000)
_TAG: Final = Label("tag", "a tag that tasks were given", 1_000)
_SLOT: Final = (
    Label("slot", "task number of the slot", 2_000),
    Label("worker", "node and process of its worker", 2_000),
)


def _metric(kind: Kind, name: str, text: str, *labels: Label, unit: str = "") -> Metric:
    first, last = 0, LATENCY_STEPS - 2
    named = f"hal_session_{name}"
    return Metric(name=named, kind=kind, text=text, unit=unit, labels=(*_SESSION, *labels), classic=(first, last))


_GAUGE: Final = partial(_metric, Kind.GAUGE)
_COUNTER: Final = partial(_metric, Kind.COUNTER)
_S: Final = "seconds"
_METRICS: Final = (
    (
        _GAUGE("uptime_seconds", "For how long the broker has served the session.", unit=_S),
        lambda one: _one(one.uptime_s),
    ),
    (_GAUGE("clients", "Clients that are connected."), lambda one: _one(one.clients)),
    (_GAUGE("slots", "Slots whose worker is connected."), lambda one: _one(len(one.slots))),
    (_GAUGE("slots_most", "Slots at most."), lambda one: _one(one.session.most)),
    (_GAUGE("slots_busy", "Slots that have a task."), lambda one: _one(sum(slot.held > 0 for slot in one.slots))),
    (_GAUGE("tasks_waiting", "Tasks that no slot has."), lambda one: _one(one.waiting)),
    (_GAUGE("tasks_unanswered", "Tasks that have not ended."), lambda one: _one(one.unanswered)),
    (_COUNTER("tasks_total", "Tasks that have ended, by how.", _STATUS), _ended),
    (_COUNTER("task_retries_total", "How often a task failed that ran again."), lambda one: _one(one.retried)),
    (_COUNTER("lost_workers_total", "How often a worker ended with tasks."), lambda one: _one(one.lost_workers)),
    (
        _metric(
            Kind.HISTOGRAM,
            "task_latency_seconds",
            "From when a task's block came until its worker reported it; buckets in milliseconds.",
            unit=_S,
        ),
        _latencies,
    ),
    (_COUNTER("function_tasks_total", "Tasks that have ended, by function.", _FUNCTION, _STATUS), _functions),
    (
        _COUNTER("function_busy_seconds_total", "How long the tasks of a function ran.", _FUNCTION, unit=_S),
        _function_seconds,
    ),
    (_COUNTER("tag_tasks_total", "Tasks that have ended, by tag.", _TAG, _STATUS), _tags),
    (_COUNTER("slot_tasks_total", "Tasks that a slot's worker has reported.", *_SLOT), _slot_tasks),
    (_COUNTER("slot_busy_seconds_total", "How long these tasks ran.", *_SLOT, unit=_S), _slot_seconds),
)
SESSIONS: Final = tuple(metric for metric, _ in _METRICS)
"""Their declarations, for the reference page."""
