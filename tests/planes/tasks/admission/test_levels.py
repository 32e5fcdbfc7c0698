"""`within`: the levels that jobs name are declared ones: at submission, at a change, and after a restart."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from hal.core.engine.events import ConfigChanged, NodesChanged
from hal.core.interfaces import PolicyInfo
from hal.core.model import InternalError, JobSpec, Reason, SpecError
from hal.core.model.topology.files import topology_from_text
from hal.core.model.topology.tree import topology_of_labels
from hal.planes.tasks import Arrival, Change, JobPatch
from tests.planes.tasks.small_plane import BY, TRUE, SmallPlane

SITE = topology_from_text(
    """
    levels = ["zone", "rack"]
    [nodes]
    n1 = "east/r1"
    n2 = "east/r2"
    """,
    "site.toml",
)
PAIR: dict[str, Any] = {"nodes": 2, "within": "rack"}


def refused(plane: SmallPlane, **job: Any) -> SpecError:
    with pytest.raises(SpecError) as found:
        plane.submit(job)
    return found.value


def domains(change: Change) -> dict[str, tuple[str, ...]]:
    """Of the nodes that the engine was told of."""
    events = [event for event in change.engine if isinstance(event, NodesChanged)]
    return {node.name: node.domains for event in events for node in event.nodes}


def test_a_level_that_nobody_declared_is_refused_with_those_there_are() -> None:
    """And with the one that was probably meant."""
    error = refused(SmallPlane(topology=SITE), nodes=2, within="rak")
    assert error.message == "within: no level 'rak'; did you mean 'rack'?"
    assert error.hint == "levels are zone, rack; leave it out to let the job start anywhere"


def test_without_a_topology_every_level_is_refused() -> None:
    """Also of one node: what is written is checked, whether it has an effect or not."""
    error = refused(SmallPlane(), within="rack")
    assert (error.message, error.hint[:22]) == ("within: no level 'rack'", "no topology is declare")


def test_what_could_not_be_the_name_of_a_level_is_refused_as_malformed() -> None:
    """Before anybody asks whether it is declared."""
    assert refused(SmallPlane(topology=SITE), within="my rack").message == "within: 'my rack' is not a name"


def test_a_dry_run_refuses_it_too() -> None:
    """With the same words."""
    plane = SmallPlane(topology=SITE)
    with pytest.raises(SpecError, match="no level 'pod'"):
        plane.plane.submit([JobSpec(command=("true",), nodes=2, within="pod")], BY, plane.now_ms, dry_run=True)


def test_jobs_that_differ_in_their_level_are_of_different_classes_and_one_node_is_of_none() -> None:
    """One node is within one rack wherever it is, so it waits with those that ask for nothing."""
    plane = SmallPlane(topology=SITE)
    rack, zone, anywhere, alone = plane.submit(PAIR, {**PAIR, "within": "zone"}, {"nodes": 2}, {"within": "rack"})
    assert [plane.live(job).request.within for job in (rack, zone, anywhere, alone)] == ["rack", "zone", "", ""]


def test_a_job_of_one_node_that_becomes_a_gang_is_within_its_level() -> None:
    """Nothing of what it asked for is lost."""
    plane = SmallPlane(topology=SITE)
    (job,) = plane.submit({"within": "rack"})
    plane.plane.update(job, JobPatch(nodes=2), BY, plane.now_ms)
    assert plane.live(job).request.within == "rack"


def test_a_change_asks_for_another_level_or_for_none() -> None:
    """Of a job that waits; one that is not declared changes nothing."""
    plane = SmallPlane(topology=SITE)
    (job,) = plane.submit(PAIR)
    with pytest.raises(SpecError, match="no level 'pod'"):
        plane.plane.update(job, JobPatch(within="pod"), BY, plane.now_ms)
    done = plane.plane.update(job, JobPatch(within="zone"), BY, plane.now_ms)
    assert [(one.field, one.before, one.after) for one in done.changes] == [("within", "rack", "zone")]
    plane.commit()
    plane.plane.update(job, JobPatch(within=""), BY, plane.now_ms)
    assert (plane.live(job).spec.within, plane.live(job).request.within) == ("", "")


class Within:
    """A rule of a site: gangs are within this level."""

    info = PolicyInfo(name="near", interface="admit/1")

    def __init__(self, level: str) -> None:
        self._level = level

    def check(self, spec: JobSpec) -> JobSpec:
        return spec if spec.within or spec.nodes == 1 else replace(spec, within=self._level)


def test_a_rule_of_the_site_may_ask_for_a_level() -> None:
    """Of every gang that says nothing itself."""
    plane = SmallPlane(topology=SITE, rules=[Within("rack")])
    ours, own, alone = plane.submit({"nodes": 2}, {"nodes": 2, "within": "zone"}, {})
    assert [plane.live(job).spec.within for job in (ours, own, alone)] == ["rack", "zone", ""]


def test_a_rule_that_asks_for_an_undeclared_level_is_refused_like_a_person() -> None:
    """It is judged by what it made."""
    assert refused(SmallPlane(topology=SITE, rules=[Within("pod")]), nodes=2).message == "within: no level 'pod'"
    with pytest.raises(InternalError, match="not well formed"):
        SmallPlane(topology=SITE, rules=[Within("no level")]).submit({"nodes": 2})


def test_the_engine_is_told_the_levels_and_where_each_node_is() -> None:
    """By the file; a node that it does not name is nowhere."""
    plane = SmallPlane(topology=SITE, nodes=0)
    for name in ("n1", "n2", "x"):
        plane.plane.record_arrival(Arrival(name=name, capacity={"cpu": 64_000}, boot_id="b1"), plane.now_ms)
    assert domains(plane.commit()) == {"n1": ("east", "east/r1"), "n2": ("east", "east/r2"), "x": ("", "")}
    configs = [one.config for one in plane.plane.engine_events() if isinstance(one, ConfigChanged)]
    assert [one.levels for one in configs] == [("zone", "rack")]


def test_a_node_whose_labels_change_is_in_another_domain() -> None:
    """It came back from the workshop into another rack; what stays as it was is not told again."""
    plane = SmallPlane(topology=topology_of_labels(["zone", "rack"], "levels"), nodes=0)
    for boot, rack in (("b1", "r1"), ("b2", "r1"), ("b3", "r2")):
        labels = {"zone": "east", "rack": rack}
        arrival = Arrival(name="n1", capacity={"cpu": 64_000}, boot_id=boot, labels=labels)
        plane.plane.record_arrival(arrival, plane.now_ms)
        assert domains(plane.commit()).get("n1", ("east", f"east/{rack}")) == ("east", f"east/{rack}")
    assert [one.domains for one in _nodes(plane)] == [("east", "east/r2")]


def _nodes(plane: SmallPlane) -> list[Any]:
    return [node for one in plane.plane.engine_events() if isinstance(one, NodesChanged) for node in one.nodes]


def test_a_job_whose_level_is_gone_waits_and_says_what_it_waits_for() -> None:
    """The controller was started again with a topology that has no racks. The job stays, in lists, too."""
    plane = SmallPlane(topology=SITE)
    (job,) = plane.submit(PAIR)
    plane.plane._table.topology = topology_of_labels(["zone"], "levels")
    verdict = plane.plane.why(plane.live(job), plane.now_ms)
    assert (verdict.reason, verdict.never) == (Reason.IMPOSSIBLE, True)
    assert verdict.message == (
        "never starts, because its nodes are to be within one rack and there is no such level: levels are zone, until "
        "[topology] of hal.toml declares a level 'rack'"
    )
    assert verdict.helps == ("ask for another level, or for none (`hal update JOB --within none`)",)
    plane.plane.update(job, JobPatch(within=""), BY, plane.now_ms)
    assert plane.plane.why(plane.live(job), plane.now_ms).never is False


def test_a_job_of_one_node_is_not_kept_by_a_level_that_is_gone() -> None:
    """It asks for nothing."""
    plane = SmallPlane(topology=SITE)
    (job,) = plane.submit({**TRUE, "within": "rack"})
    plane.plane._table.topology = None
    assert plane.plane.why(plane.live(job), plane.now_ms).never is False
