"""Pages of the controller's ended attempts (`GET /v1/attempts?asked=1`), as far as the history keeps them. Pure."""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.json import Decoder


class NodesAsked(Struct, frozen=True):
    """What was asked for on each of some nodes, which follow one another in rank order."""

    nodes: int
    amounts: dict[str, int] = {}
    """By resource, in base units: millicores, bytes, thousandths of a GPU."""


class AskedRow(Struct, frozen=True):
    """What a job asked for. Times are milliseconds since 1970."""

    submit_ms: int = 0
    eligible_ms: int = 0
    walltime_ms: int | None = None
    nodes: tuple[NodesAsked, ...] = ()
    span: str = ""
    """Below which it was submitted; empty: it began its trace."""
    jobs: tuple[str, ...] = ()
    """For which it waited."""
    gated: bool = False
    """Its attempts wait at gates."""


NOTHING_ASKED: Final = AskedRow()


class FeedRow(Struct, frozen=True, kw_only=True):
    """An attempt that has ended."""

    sequence: int
    job: str
    task: int
    attempt: int
    state: str
    name: str = ""
    queue: str = ""
    account: str = ""
    user: str = ""
    trace_id: str = ""
    nodes: tuple[str, ...] = ()
    retries: int = 0
    allocated_ms: int = 0
    start_ms: int | None = None
    end_ms: int = 0
    recorded_ms: int = 0
    cause: str = ""
    exit_code: int | None = None
    signal: int | None = None
    message: str = ""
    usage: dict[str, int] = {}
    asked: AskedRow | None = None


class FeedPage(Struct, frozen=True, kw_only=True):
    """Ended attempts in the order of their commits."""

    attempts: tuple[FeedRow, ...] = ()
    cursor: str
    more: bool = False
    lost: tuple[tuple[int, int], ...] = ()


PAGE: Final = Decoder(FeedPage)
