"""The jobs that a job waits for, and those that wait for it, as two trees of text."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hal.cli.kit.trees import Branch

if TYPE_CHECKING:
    from hal.client.rest.views import JobInfo
    from hal.client.sync_client import Client
    from hal.core.model import Dependency

MAX_DRAWN = 100
"""Jobs in each of the two trees."""
MAX_DEPTH = 8


class Drawing:
    """Reads each job once, the nearest first, and no more than `MAX_DRAWN` for a tree."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._left = 0
        self._drawn: set[str] = set()

    def before(self, info: JobInfo) -> tuple[Branch, ...]:
        """The jobs that it waits for according to its spec, those that they wait for, and so on."""
        return self._tree(info, self._entries)

    def after(self, info: JobInfo) -> tuple[Branch, ...]:
        """The jobs that wait for it now, those that wait for them, and so on."""
        return self._tree(info, self._dependants)

    def _tree(self, info: JobInfo, below: Callable[[JobInfo, int], tuple[Branch, ...]]) -> tuple[Branch, ...]:
        self._left, self._drawn = MAX_DRAWN, {info.id}
        return below(info, 1)

    def _entries(self, info: JobInfo, depth: int) -> tuple[Branch, ...]:
        out = []
        for entry in dependencies_of(info):
            if not entry.any_of:
                out.append(self._named(entry, depth))
            else:
                members = tuple(self._named(one, depth + 1) for one in entry.any_of)
                out.append(Branch("one of", "", members))
        return tuple(out)

    def _named(self, one: Dependency, depth: int) -> Branch:
        if not one.job:
            return Branch("singleton: all earlier jobs with its name and user")
        return self._job(one.job, f"{one.kind} ", self._entries, depth)

    def _dependants(self, info: JobInfo, depth: int) -> tuple[Branch, ...]:
        return tuple(self._job(job, "", self._dependants, depth) for job in info.dependants)

    def _job(self, job: str, before: str, below: Callable[[JobInfo, int], tuple[Branch, ...]], depth: int) -> Branch:
        if job in self._drawn:
            return Branch(f"{before}{job} (drawn above)", job)
        if not self._left:
            return Branch(f"{before}{job} …", job)
        self._left -= 1
        self._drawn.add(job)
        info = with_dependants(self._client, job)
        text = f"{before}{title(info)}"
        return Branch(
            text if depth < MAX_DEPTH else f"{text} …", job, below(info, depth + 1) if depth < MAX_DEPTH else ()
        )


def title(info: JobInfo) -> str:
    """`14 report: pending`"""
    return f"{info.id} {info.name}: {info.state.value}"


def with_dependants(client: Client, job: str) -> JobInfo:
    """A job, with the jobs of its user that depend on it, also those that have ended."""
    from hal.client.rest import calls

    return client.call(calls.job(job, all_dependants=True))


def dependencies_of(info: JobInfo) -> tuple[Dependency, ...]:
    """The dependencies in its spec."""
    from hal.core.model import Dependency, convert

    plain: Any = (info.spec or {}).get("dependencies", ())
    return convert(plain, tuple[Dependency, ...])
