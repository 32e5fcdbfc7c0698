"""The reference page of all metrics, in Markdown, from their declarations. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from hal.runtime.metrics.declaration import Kind, Metric


class Section(Struct, frozen=True):
    """The metrics of one kind of process."""

    title: str
    text: str
    metrics: tuple[Metric, ...]


def reference(head: str, sections: Sequence[Section]) -> str:
    """The page: each metric with its type, unit and labels, by name; equal for equal code."""
    parts = [head]
    for section in sections:
        parts.append(f"\n## {section.title}\n\n{section.text}\n\n")
        parts.append("| metric | type | unit | labels | |\n|---|---|---|---|---|\n")
        for metric in sorted(section.metrics, key=lambda one: one.name):
            labels = ", ".join(f"`{label.name}`" for label in metric.labels)
            text = metric.text + (" For operators." if metric.for_operators else "")
            parts.append(f"| `{metric.name}` | {metric.kind} | {metric.unit} | {labels} | {text}{_bounds(metric)} |\n")
        found = {(label.name, label.text, label.most) for metric in section.metrics for label in metric.labels}
        if found:
            parts.append("\n| label | values | at most |\n|---|---|---|\n")
            parts += [f"| `{name}` | {text} | {most} |\n" for name, text, most in sorted(found)]
    return "".join(parts)


def _bounds(metric: Metric) -> str:
    if metric.kind is not Kind.HISTOGRAM:
        return ""
    first, last = metric.classic
    return f" Classic buckets: 2^{first} to 2^{last}."
