"""What a job asked for, read from the few fields of its stored spec that say so. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Raw, Struct
from msgspec.json import Decoder

from hal.core.model import Resources

PARENT_SPAN: Final = slice(36, 52)
"""Of a traceparent."""
MAX_JOBS: Final = 32
"""That are named of those for which a job waited."""
_NO_ARRAY: Final = Raw(b"null")
_DEFAULT: Final[Mapping[str, int]] = {"cpu": 1000}


class NodesAsked(Struct, frozen=True, gc=False):
    """What is asked for on each of some nodes, which follow one another in rank order."""

    nodes: int
    amounts: dict[str, int]
    """By resource, in base units: millicores, bytes, thousandths of a GPU."""


class Asked(Struct, frozen=True, gc=False, omit_defaults=True):
    """What a job asked for. Times are milliseconds since 1970."""

    submit_ms: int
    eligible_ms: int
    """When it could have started first; 0: when it was submitted."""
    walltime_ms: int | None
    """None: no limit."""
    nodes: list[NodesAsked]
    """Of one task."""
    span: str = ""
    """Of the trace with which it was submitted: the span below which it is; empty: it began the trace."""
    jobs: list[str] = []
    """Jobs for which it waited."""
    gated: bool = False
    """Its attempts wait at gates."""


class _Group(Struct):
    request: dict[str, Any] | None = None
    nodes: int = 1


class _Dependency(Struct):
    job: str | int = ""
    any_of: list[_Dependency] = []


class SpecPart(Struct):
    """The part of a spec that names a job without a name, and says how much of what it asks for."""

    command: list[str] = []
    request: dict[str, Any] | None = None
    nodes: int = 1
    groups: list[_Group] = []
    extensions: int = 0
    array: Raw = _NO_ARRAY
    traceparent: str = ""
    dependencies: list[_Dependency] = []
    gates: list[Raw] = []

    @property
    def span(self) -> str:
        """Below which it was submitted."""
        return self.traceparent[PARENT_SPAN]

    def jobs(self) -> list[str]:
        """For which it waited, some of them."""
        named = [one for each in self.dependencies[:MAX_JOBS] for one in (each.any_of or [each])]
        return [job for one in named[:MAX_JOBS] if (job := str(one.job)).isascii() and job.isdigit()]

    def amounts(self, task: int) -> list[NodesAsked]:
        """Of one of its tasks; an extension is one node of the job's kind."""
        if self.groups:
            return [NodesAsked(group.nodes, _amounts(group.request)) for group in self.groups]
        base = not self.extensions or task == 0 or self.array != _NO_ARRAY
        return [NodesAsked(self.nodes if base else 1, _amounts(self.request))]


def _amounts(request: dict[str, Any] | None) -> dict[str, int]:
    return dict(_DEFAULT if request is None else Resources.parse(request))


SPEC_PART: Final = Decoder(SpecPart)
