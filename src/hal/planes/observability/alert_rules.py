"""What is an alert: one table, from which follow HAL's own evaluation and the rule file for Prometheus.

Pure. The collector works the conditions out over its own scrapes; `spec/prometheus-rules.yml` has the same rules with
the defaults of hal.toml. Burn rates: Google SRE Workbook, chapter 5, 'multiwindow, multi-burn-rate alerts'.
"""

from __future__ import annotations

import math
from typing import Final

from msgspec import Struct

from hal.core.model.alert_config import AlertsSection
from hal.core.model.units import format_duration
from hal.planes.observability.alerts.expressions import (
    Both,
    Condition,
    Either,
    Grown,
    Is,
    Last,
    Later,
    Least,
    Left,
    Part,
    Quantile,
    Selector,
    Silent,
    Without,
    span_text,
)
from hal.planes.observability.alerts.recording import Selected

PAGE: Final = "docs/alerts.md"
FAST: Final = (14.4, 3_600, 300)
"""A burn rate at which 2 % of a month's budget goes in an hour; its long and its short window, in seconds."""
SLOW: Final = (6.0, 21_600, 1_800)
"""5 % in six hours."""
LEAST_ATTEMPTS: Final = 20
"""Fewer that ended say nothing about what fails."""
FAILED: Final = ("failed", "timed-out", "refused", "lost", "out-of-memory")
NOT_STARTED: Final = ("refused", "lost")
LIMIT_USED: Final = "hal_limit_used_ratio"
HOME_FREE: Final = "hal_home_free_ratio"
NODE_DISK: Final = ("hal_node_home_free_bytes", "hal_node_home_size_bytes")
"""That nodes send, by node: what is free of the file system of HAL_HOME, and its size."""
MOST_NODES: Final = 50
"""Of which a rule for each node says something: those that are worst."""


class Rule(Struct, frozen=True, kw_only=True):
    """One thing that may be wrong."""

    name: str
    severity: str
    condition: Condition
    for_s: int
    """How long it must be so."""
    summary: str
    """One line; `{queue}` is a label, `{value}` the value."""
    description: str
    """What it means, and what to do first."""
    shown: str = "number"
    """How the value is shown: `number`, `part`, `duration`."""
    mutes: bool = False
    """While it fires, nobody is told of the others: they cannot be known."""

    @property
    def runbook(self) -> str:
        """Where it says what to do."""
        return f"{PAGE}#{self.name.lower()}"

    def text(self, template: str, labels: dict[str, str], value: float) -> str:
        """A template with its labels and value."""
        text = template.replace("{value}", shown_value(self.shown, value))
        for name, label in labels.items():
            text = text.replace("{" + name + "}", label)
        return text

    def prometheus(self) -> dict[str, object]:
        """As an entry of a rule file."""
        return {
            "alert": self.name,
            "expr": self.condition.promql(),
            "for": span_text(self.for_s),
            "labels": {"severity": self.severity},
            "annotations": {
                "summary": _annotation(self.summary, self.shown),
                "description": _annotation(self.description, self.shown),
                "runbook": self.runbook,
            },
        }


def rules_of(section: AlertsSection) -> tuple[Rule, ...]:
    """The rules that are on, with what hal.toml says of them."""
    every = (*_controller(section), *_nodes(section), *_work(section), *_objectives(section))
    return tuple(rule for rule in every if rule.name not in section.off)


def names() -> tuple[str, ...]:
    """Of all rules."""
    return tuple(rule.name for rule in rules_of(AlertsSection()))


def reads_of(rules: tuple[Rule, ...]) -> frozenset[Selected]:
    """The series that the rules look at."""
    return frozenset().union(*(rule.condition.reads() for rule in rules))


def rule_file(rules: tuple[Rule, ...]) -> dict[str, object]:
    """A rule file of Prometheus."""
    return {"groups": [{"name": "hal", "rules": [rule.prometheus() for rule in rules]}]}


def _controller(section: AlertsSection) -> tuple[Rule, ...]:
    return (
        Rule(
            name="ControllerDown",
            severity="critical",
            condition=Silent(),
            for_s=60,
            summary="The controller does not answer",
            description="Running work goes on; nothing new starts. `hal status` and the controller's log say why; "
            "`hal up` starts it.",
            mutes=True,
        ),
        Rule(
            name="StoreNotWritable",
            severity="critical",
            condition=Is(Last(Selector("hal_store_writable"), "min"), "==", 0),
            for_s=60,
            summary="Nothing can be made durable",
            description="Commits fail, so nothing is accepted and nothing starts. Usually the disk is full, or the "
            "database is away: `hal status`.",
        ),
        Rule(
            name="CycleOverBudget",
            severity="warning",
            condition=Is(Quantile(Selector("hal_cycle_seconds"), 0.99, 300), ">", section.cycle / 1_000),
            for_s=600,
            summary="Turns of the control loop take {value}",
            description="99 of 100 turns took up to that in the last five minutes. Look at commits, the load of the "
            "machine and hal_slice_seconds.",
            shown="duration",
        ),
        Rule(
            name="CommitSlow",
            severity="warning",
            condition=Is(Quantile(Selector("hal_commit_seconds"), 0.99, 300), ">", section.commit / 1_000),
            for_s=600,
            summary="Commits take {value}",
            description="99 of 100 commits took up to that in the last five minutes. The disk of the database is slow "
            "or shared.",
            shown="duration",
        ),
        Rule(
            name="CertificateEnds",
            severity="warning",
            condition=Is(
                Left(Last(Selector("hal_certificate_expiry_timestamp_seconds", ("certificate",)), "min")),
                "<",
                section.certificate / 1_000,
            ),
            for_s=60,
            summary="The certificate '{certificate}' ends in {value}",
            description="HAL renews its own; one of the site (`server.tls_cert`) is replaced by whoever gave it.",
            shown="duration",
        ),
        Rule(
            name="DiskNearlyFull",
            severity="critical",
            condition=Is(Last(Selector(HOME_FREE), "min"), "<", section.disk_free),
            for_s=300,
            summary="{value} of the controller's disk is free",
            description="On the disk of HAL_HOME. When it is full nothing is accepted. Make room, or shorten "
            "[retention].",
            shown="part",
        ),
        Rule(
            name="PlaneDead",
            severity="critical",
            condition=Either(
                (
                    Is(Last(Selector("hal_plane_in_service", ("plane",)), "min"), "==", 0),
                    Is(Last(Selector("hal_announced_plane_up", ("plane",)), "min"), "==", 0),
                )
            ),
            for_s=120,
            summary="The plane '{plane}' is out of service",
            description="The rest of HAL goes on. Of a process of its own `hal status` on its machine and its log say "
            "why; of a plane of the controller the controller's log says what failed.",
        ),
    )


def _nodes(section: AlertsSection) -> tuple[Rule, ...]:
    free, size = (Last(Selector(name, ("node",)), "min") for name in NODE_DISK)
    return (
        Rule(
            name="NodeDiskNearlyFull",
            severity="warning",
            condition=Least(Is(Part(free, size), "<", section.disk_free), MOST_NODES),
            for_s=300,
            summary="{value} of the disk of node {node} is free",
            description="On the file system of HAL_HOME there, where jobs have their output. When it is full their "
            "output is lost. Make room, or drain the node: `hal node drain`.",
            shown="part",
        ),
    )


def _work(section: AlertsSection) -> tuple[Rule, ...]:
    starving_s = section.queue_starving // 1_000
    ended = Selector("hal_attempts_ended_total", ("queue",))
    failed = Grown(Selector("hal_attempts_ended_total", ("queue",), (("result", FAILED),)), 1_800)
    return (
        Rule(
            name="NodesDown",
            severity="critical",
            condition=Is(Last(Selector("hal_nodes", ("state",), (("state", ("unreachable", "down")),))), ">", 0),
            for_s=section.node_down // 1_000,
            summary="Nodes that are {state}: {value}",
            description="Their agents are not heard, or checks failed. `hal nodes` says which and why; a node that is "
            "gone for good: `hal node fence`.",
        ),
        Rule(
            name="QueueStarving",
            severity="warning",
            condition=Without(
                Is(Last(Selector("hal_queue_oldest_wait_seconds", ("queue",)), "max"), ">", starving_s),
                Is(Grown(Selector("hal_tasks_started_total", ("queue",)), starving_s), ">", 0),
            ),
            for_s=300,
            summary="A job of queue {queue} waits for {value}, and none starts",
            description="`hal why JOB` of its first job says what it waits for; `hal wants` shows the rest.",
            shown="duration",
        ),
        Rule(
            name="LimitNearEnd",
            severity="warning",
            condition=Is(Last(Selector(LIMIT_USED, ("limit",)), "max"), ">", section.limit_used),
            for_s=300,
            summary="{value} of the limit '{limit}' is used",
            description="Of one of those that it counts for. `hal limit list` and `GET /v1/ledgers` show whose.",
            shown="part",
        ),
        Rule(
            name="AttemptsFailing",
            severity="warning",
            condition=Both(
                (
                    Is(Part(failed, Grown(ended, 1_800)), ">", section.failing),
                    Is(Grown(ended, 1_800), ">", LEAST_ATTEMPTS),
                )
            ),
            for_s=300,
            summary="{value} of the attempts of queue {queue} fail",
            description="In the last half hour, timed out, refused, lost and out of memory included. `hal attempts "
            "--since 30m` shows them; look whether one node or one program is behind it.",
            shown="part",
        ),
    )


def _objectives(section: AlertsSection) -> tuple[Rule, ...]:
    bound_s = 2 ** math.ceil(math.log2(section.queue_wait / 1_000))
    wait = Selector("hal_queue_wait_seconds", ("queue",))
    wait_budget, start_budget = 1 - section.queue_wait_share, 1 - section.start_share

    def burns_wait(rate: float, long_s: int, short_s: int) -> Both:
        bad = rate * wait_budget
        return Both((Is(Later(wait, bound_s, long_s), ">", bad), Is(Later(wait, bound_s, short_s), ">", bad)))

    def burns_starts(rate: float, long_s: int, short_s: int) -> Both:
        def lost(window_s: int) -> Is:
            bad = Grown(Selector("hal_attempts_ended_total", (), (("result", NOT_STARTED),)), window_s)
            return Is(Part(bad, Grown(Selector("hal_attempts_ended_total"), window_s)), ">", rate * start_budget)

        return Both((lost(long_s), lost(short_s)))

    bound = format_duration(bound_s * 1_000)
    # A rate at which more than everything would have to be late can never be seen: the budget is too large for it.
    waits = [burns_wait(*one) for one in (FAST, SLOW) if one[0] * wait_budget < 1]
    starts = [burns_starts(*one) for one in (FAST, SLOW) if one[0] * start_budget < 1]
    found = []
    if waits:
        found.append(
            Rule(
                name="QueueWaitBudgetBurns",
                severity="warning",
                condition=Either(tuple(waits)),
                for_s=120,
                summary=f"{{value}} of the tasks of queue {{queue}} wait longer than {bound}",
                description=f"The objective is that {section.queue_wait_share:.0%} do not; at this rate the month's "
                "budget is gone within days. More nodes, smaller requests, or another objective: `hal wants`.",
                shown="part",
            )
        )
    if starts:
        found.append(
            Rule(
                name="StartBudgetBurns",
                severity="critical",
                condition=Either(tuple(starts)),
                for_s=120,
                summary="{value} of the attempts are refused or lost by their nodes",
                description=f"The objective is that {section.start_share:.0%} are not. `hal attempts --since 1h` shows "
                "which nodes; drain the one that refuses.",
                shown="part",
            )
        )
    return tuple(found)


def shown_value(how: str, value: float) -> str:
    """For people."""
    if not math.isfinite(value):
        return str(value)
    if how == "part":
        return f"{value:.3g}" if value < 0 else f"{value * 100:.3g}%"
    if how == "duration":
        return format_duration(max(0, round(value * 1_000)))
    return f"{value:.4g}"


def _annotation(template: str, how: str) -> str:
    """A template of Prometheus."""
    humanized = {"part": "humanizePercentage", "duration": "humanizeDuration"}.get(how, "humanize")
    parts = template.replace("{value}", f"\0{{{{ $value | {humanized} }}}}\0").split("\0")
    return "".join(part if "$value" in part else _labelled(part) for part in parts)


def _labelled(text: str) -> str:
    for name in ("queue", "state", "limit", "certificate", "plane", "node"):
        text = text.replace("{" + name + "}", f"{{{{ $labels.{name} }}}}")
    return text
