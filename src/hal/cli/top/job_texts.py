"""What `hal top` shows of one row in a window of its own, as lines of text. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from hal.cli.jobs.job_cells import done, ran_ms
from hal.cli.jobs.job_columns import reason
from hal.cli.kit.formats import amounts, instant, limit, span
from hal.cli.nodes.node_details import details
from hal.client.rest.views import JobInfo, NodeInfo, WhyInfo
from hal.core.model import format_distinctly
from hal.core.model.topology.node_lists import fold_names


def job_lines(job: JobInfo, now_ms: int) -> list[str]:
    """A job with its spec."""
    spec = job.spec or {}
    command = spec.get("command") or spec.get("script") or ""
    where = job.placement
    fields = {
        "job": job.id,
        "name": job.name,
        "state": job.state.value,
        "reason": reason(job, now_ms),
        "user": job.user,
        "account": job.account,
        "queue": job.queue,
        "priority": str(job.priority),
        "tasks": f"{done(job)} ended" + "".join(f", {count:,} {state}" for state, count in job.counts.items()),
        "request": amounts(job.request) + (f" on each of {job.nodes} nodes" if job.nodes > 1 else ""),
        "walltime": limit(job.walltime),
        "nodes": fold_names(where.nodes) if where is not None and where.nodes else "",
        "submitted": instant(job.submit_ms),
        "started": instant(job.start_ms),
        "ran": span(ran_ms(job, now_ms)),
        "ended": instant(job.end_ms),
        "exit code": "" if job.exit_code is None else str(job.exit_code),
        "restarts": str(job.restarts or ""),
        "labels": ", ".join(f"{key}={value}" for key, value in sorted(job.labels.items())),
        "command": command if isinstance(command, str) else " ".join(map(str, command)),
    }
    return field_lines(fields)


def node_lines(node: NodeInfo) -> list[str]:
    """A node with its hardware, and why it is closed."""
    return field_lines({"node": node.name, "state": node.state.value, "reason": node.reason, **details(node)})


def why_lines(answer: WhyInfo) -> list[str]:
    """Why a job waits, and what would help."""
    wanted, free = format_distinctly(answer.resource, answer.asked, answer.available)
    counted = bool(answer.resource and answer.asked)
    forecast = instant(answer.starts_at_ms)
    lines = [answer.message, ""]
    lines += field_lines(
        {
            "reason": answer.reason if answer.reason != "none" else "",
            "requested": f"{answer.resource} {wanted}" if counted else "",
            "free now": f"{free}{f' on {answer.node}' if answer.node else ''}" if counted else "",
            "jobs ahead": "" if answer.position is None else str(answer.position) if answer.position else "none",
            "start": f"{forecast}{f' ({answer.basis})' if answer.basis else ''}" if forecast else "",
        }
    )
    return lines + [f"would help: {change}" for change in answer.helps]


def field_lines(fields: Mapping[str, str]) -> list[str]:
    """Names and values; what is empty is left out."""
    width = max((len(name) for name, text in fields.items() if text), default=0)
    return [f"{name.ljust(width)}  {text}" for name, text in fields.items() if text]
