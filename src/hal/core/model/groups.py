"""Groups of nodes of one job: what a job with several asks for in all, and which rules they must meet.

Pure. The nodes of a job with groups are those of the first group, then of the second, and so on; its `nodes` are all of
them, and its `request` is that of the first group.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from hal.core.model.errors import SpecError, shown
from hal.core.model.resources import Resources
from hal.core.model.units import plural

if TYPE_CHECKING:
    from hal.core.model.job import Group, JobSpec

MAX_GROUPS: Final = 8
"""Groups of one job."""
GROUP: Final = "HAL_GROUP"
"""The variable that names the group of a step's node."""
GROUPS: Final = "HAL_GROUPS"
"""The variable with all groups of a job and how many nodes each has: `driver:1,gpu:4`."""
GROUP_CPUS: Final = "HAL_GROUP_CPUS"
"""The variable with the cores that each group has on one of its nodes: `1,8`."""
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,31}")
_WITHOUT: Final = ("array", "extensions", "service", "exclusive", "workers", "movable")


def with_groups(spec: JobSpec, most_nodes: int) -> JobSpec:
    """The spec with the nodes of all its groups, and the request of the first one.

    Raises:
        SpecError: a group contradicts another one, or the job.
    """
    groups = spec.groups
    if len(groups) < 2:
        raise SpecError("groups: there is only one", hint="write its nodes and request as those of the job")
    if len(groups) > MAX_GROUPS:
        raise SpecError(f"groups: {len(groups)}; at most {MAX_GROUPS} are allowed")
    for field in _WITHOUT:
        if getattr(spec, field):
            raise SpecError(f"groups: a job with `{field}` cannot have any", hint=f"leave out groups, or {field}")
    names: set[str] = set()
    for group in groups:
        if not _NAME.fullmatch(group.name):
            raise SpecError(f"groups: '{shown(group.name)}' is not a name", hint="letters, digits, _ and -, at most 32")
        if group.name in names:
            raise SpecError(f"groups: '{group.name}' is there twice", hint="give each group a name of its own")
        names.add(group.name)
        if not group.request:
            raise SpecError(
                f"groups.{group.name}.request: no resource is given", hint="at least some cpu, as cpu = 0.1"
            )
        if group.command and spec.first_node:
            raise SpecError(
                f"groups.{group.name}.command: the job's command runs on the first node alone",
                hint="leave out first_node, or begin it with `hal launch --group`",
            )
    total = sum(group.nodes for group in groups)
    if total > most_nodes:
        raise SpecError(f"groups: {total} nodes in all; at most {most_nodes} are allowed")
    if spec.nodes not in (1, total):
        raise SpecError(
            f"nodes: {spec.nodes} beside groups, which have {total}", hint="leave out nodes; each group says its own"
        )
    if spec.request.says_cpu is not False and spec.request != groups[0].request:
        raise SpecError("request: beside groups", hint="leave it out; each group says its own")
    return replace(spec, nodes=total, request=groups[0].request)


def group_of(groups: Sequence[Group], rank: int) -> int:
    """The index of the group whose node is the `rank`-th of a job."""
    place = 0
    while place < len(groups) - 1 and rank >= groups[place].nodes:
        rank -= groups[place].nodes
        place += 1
    return place


def total_request(spec: JobSpec) -> Resources:
    """What one task holds of all its nodes together."""
    if not spec.groups:
        return Resources({name: amount * spec.nodes for name, amount in spec.request.items()})
    total: dict[str, int] = {}
    for group in spec.groups:
        for name, amount in group.request.items():
            total[name] = total.get(name, 0) + amount * group.nodes
    return Resources(total)


def groups_text(groups: Sequence[Group]) -> str:
    """All groups with the number of their nodes, as `HAL_GROUPS` has them."""
    return ",".join(f"{group.name}:{group.nodes}" for group in groups)


def described(groups: Sequence[tuple[str, int, str]]) -> str:
    """Groups for people: their names, nodes and amounts on each."""
    return "; ".join(f"{name}: {amounts} on {plural(nodes, 'node')}" for name, nodes, amounts in groups)


def nodes_of_group(name: str, text: str) -> range:
    """Which nodes of a job a group has, by the value of `HAL_GROUPS`.

    Raises:
        SpecError: there is no group of that name.
    """
    first = 0
    known = []
    for part in text.split(",") if text else ():
        group, _, nodes = part.rpartition(":")
        count = int(nodes) if nodes.isdecimal() else 0
        if group == name:
            return range(first, first + count)
        known.append(group)
        first += count
    raise SpecError(
        f"--group: the job has no group '{shown(name)}'",
        hint=f"it has {', '.join(known)}" if known else "it has no groups",
    )
