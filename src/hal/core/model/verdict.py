"""Verdict: why something did not start, how much is missing, when it is forecast to start, and what would help.

Pure. A refusal is a value with a named reason, never an exception.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Reason(StrEnum):
    """The first constraint that failed."""

    NONE = "none"
    RESOURCES = "resources"
    """No set of nodes has enough free now."""
    PRIORITY = "priority"
    """What it needs is reserved for jobs ahead of it."""
    DEPENDENCY = "dependency"
    HELD = "held"
    MAX_RUNNING = "max-running"
    """As many tasks of its array are running as may run at once."""
    BEGIN_AT = "begin-at"
    BACKOFF = "back-off"
    CONSTRAINTS = "constraints"
    """Nodes that match its constraints exist but are not up, or none matches now."""
    NODES_DOWN = "nodes-down"
    IMPOSSIBLE = "impossible"
    """No set of nodes could ever hold it."""
    OFFER = "offer"
    """No node could ever hold it; a machine that is offered could, if somebody rented it."""
    LIMIT = "limit"
    """A limit of its account, user, queue or QOS is used up."""
    BOOKING = "booking"
    """It would run into another booking, or its own booking has not begun."""
    AFFINITY = "affinity"
    """It is to be apart from, or together with, other work, and no node that is so has room."""
    LICENCE = "licence"
    """Too little of a licence is free."""
    HOURS = "hours"
    """Its queue starts nothing at this time of the week."""
    STRICT = "strict"
    """Its queue keeps a strict order, and a job ahead of it waits."""
    ADMISSION = "admission"
    """A rule of the site refuses the job. Only at submission, never for a waiting job."""
    NOT_CONSIDERED = "not-considered"
    """Submitted since the last pass."""


_SHORT: dict[Reason, str] = {
    Reason.NONE: "",
    Reason.MAX_RUNNING: "max running",
    Reason.BEGIN_AT: "begin",
    Reason.NODES_DOWN: "nodes down",
    Reason.HOURS: "queue closed",
    Reason.STRICT: "strict order",
    Reason.NOT_CONSIDERED: "next pass",
}


def short_reason(verdict: Verdict) -> str:
    """A few words for a column: what the verdict says itself, else what its reason is called."""
    return verdict.short or _SHORT.get(verdict.reason, verdict.reason.value)


class Sooner(Struct, frozen=True, kw_only=True):
    """A change of the job with which the engine, all else being equal, would start it at once."""

    field: str
    """`nodes`, `walltime` or `queue`."""
    value: str
    """As people write it: `3`, `1h30m`, `short`."""


class Outlook(Struct, frozen=True, kw_only=True):
    """The result of playing a copy of the engine forward for a waiting job: which changes start it now, and when it
    starts as it is.

    starts_at_ms: the instant at which it started in the copy; if `started` is False, the last instant that was played,
    before which it does not start.
    """

    sooner: tuple[Sooner, ...] = ()
    starts_at_ms: int
    started: bool


class Forecast(Struct, frozen=True, kw_only=True):
    """When a job would start that is not submitted yet."""

    starts_at_ms: int | None = None
    """When its first task would start, or the instant before which it does not; None: nothing that ends or opens as
    planned lets it start, or it was not tried."""
    basis: str = ""
    """What the instant rests on, or why there is none; the words of `hal why`."""
    now: bool = False
    """Whether it would start at once."""


class Findings(Struct, frozen=True, kw_only=True):
    """The answer to 'why is it not running?': produced by the engine, returned by REST, read by clients."""

    reason: str
    """A `Reason`; a newer HAL may use one that a client does not know."""
    message: str
    """One sentence for people, with the numbers."""
    short: str = ""
    """The reason in a few words, for a column of a table: `limit user cpu`."""
    resource: str = ""
    asked: int = 0
    """Per node, base units of `resource`."""
    available: int = 0
    """The most that one node (or the needed number of nodes) has free now, base units."""
    node: str = ""
    """The node with that amount."""
    starts_at_ms: int | None = None
    """Forecast start; None if nothing known will let it start."""
    basis: str = ""
    """What the forecast rests on: `reservation`, `walltimes of running jobs`, `back-off`."""
    forecast_at_ms: int | None = None
    """The time of the forecast; None if it is a fact rather than a forecast, or if there is none."""
    position: int | None = None
    """How many jobs ahead of it compete for the same resources."""
    helps: tuple[str, ...] = ()
    """What would make it start sooner, as sentences or commands."""
    sooner: tuple[Sooner, ...] = ()
    """The smallest change of each kind that would let it start now, tested on a copy of the engine."""
    never: bool = False
    """True: nothing that HAL knows of could let it start, whatever ends; `message` says what would have to change."""


class Verdict(Findings, frozen=True, kw_only=True, omit_defaults=True):
    """One job's answer."""

    job: int
    reason: Reason


class Never(Struct, frozen=True, kw_only=True):
    """Why a job could not start even if nothing else ran: under today's policy, on today's nodes and offers.

    A submission is refused with the same words with which a job that waits is explained.
    """

    reason: Reason
    because: str
    """A clause with the numbers: "limit 'small' (user bob) allows 1 cpu at once and this asks for 2"."""
    until: str
    """What would have to change, as a clause."""
    mend: str = ""
    """What its submitter could ask for instead, as a sentence without a full stop."""
    resource: str = ""
    asked: int = 0
    """Per node, base units of `resource`."""
    available: int = 0
    """The most there could be, base units."""
    node: str = ""

    @property
    def text(self) -> str:
        """One sentence."""
        return f"never starts, because {self.because}, until {self.until}"

    def verdict(self, job: int) -> Verdict:
        """The answer for a job that waits."""
        short = "" if self.reason is Reason.IMPOSSIBLE else f"never ({self.reason})"
        return Verdict(
            job=job, reason=self.reason, message=self.text, never=True, short=short,
            resource=self.resource, asked=self.asked, available=self.available, node=self.node,
            helps=(self.mend,) if self.mend else (),
        )  # fmt: skip
