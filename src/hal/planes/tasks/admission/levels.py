"""The levels of the topology that jobs name in `within`: an undeclared one is refused, one that is gone is explained.

Pure. The topology is read when the controller starts, so a job that waits may name a level that there is no more. It
then waits until the level is declared again or it asks for another one; a job of one node asks for nothing.
"""

from __future__ import annotations

from msgspec.structs import replace

from hal.core.model import JobSpec, Never, Reason, SpecError
from hal.core.model.affinity import NODE_LEVEL, level_of
from hal.core.model.policy_check import near
from hal.core.model.topology.packing import packed_level
from hal.core.model.topology.tree import Topology

_NONE = "no topology is declared"


def check_level(spec: JobSpec, topology: Topology | None) -> None:
    """Whether the levels are declared that it names: where its nodes are to be within, are packed into or spread over,
    and those of its affinity.

    Raises:
        SpecError: it is not; names those that are.
    """
    terms = {
        "apart": spec.apart, "together": spec.together,
        "prefer_apart": spec.prefer_apart, "prefer_together": spec.prefer_together,
    }  # fmt: skip
    asked = {field: [level_of(text) for text in texts] for field, texts in terms.items()}
    asked["spread"] = [spec.spread] if spec.spread else []
    for field, named in asked.items():
        for level in named:
            if level != NODE_LEVEL and not _is_declared(level, topology):
                levels = topology.levels if topology is not None else ()
                raise SpecError(
                    f"{field}: no level '{level}'{near(level, (*levels, NODE_LEVEL))}",
                    hint=f"{_levels(topology)}; {NODE_LEVEL} is always there",
                )
    for field, level in (("within", spec.within), ("pack", packed_level(spec.pack))):
        if level and not _is_declared(level, topology):
            levels = topology.levels if topology is not None else ()
            raise SpecError(
                f"{field}: no level '{level}'{near(level, levels)}",
                hint=f"{_levels(topology)}; leave it out to let the job start anywhere",
            )


def unpacked(spec: JobSpec) -> JobSpec:
    """What a job asks for when it has waited long enough for one domain; it decides if the job could ever start."""
    return replace(spec, pack="") if spec.pack else spec


def never_within(spec: JobSpec, topology: Topology | None) -> Never | None:
    """Why a job of several nodes that names a level which is gone starts nowhere; None: its level is there."""
    if not spec.within or (spec.nodes == 1 and not spec.has_base) or _is_declared(spec.within, topology):
        return None
    return Never(
        reason=Reason.IMPOSSIBLE,
        because=f"its nodes are to be within one {spec.within} and there is no such level: {_levels(topology)}",
        until=f"[topology] of hal.toml declares a level '{spec.within}'",
        mend="ask for another level, or for none (`hal update JOB --within none`)",
    )


def _is_declared(level: str, topology: Topology | None) -> bool:
    return topology is not None and level in topology.levels


def _levels(topology: Topology | None) -> str:
    return f"levels are {', '.join(topology.levels)}" if topology is not None and topology.levels else _NONE
