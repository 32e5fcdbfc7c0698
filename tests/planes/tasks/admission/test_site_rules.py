"""Rules of the site: asked in turn, between the queue's defaults and the limits; believed only as far as is checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from hal.core.interfaces import Admit, PolicyInfo, refusal
from hal.core.model import Duration, InternalError, JobSpec, Reason, SpecError, Verdict
from hal.core.model.policy import Policy
from hal.core.model.policy_text import policy_from_plain
from hal.planes.tasks import JobPatch
from tests.planes.tasks.small_plane import BY, SmallPlane

HOUR = Duration(3_600_000)


class Rule:
    """A rule from a function."""

    def __init__(self, check: Callable[[JobSpec], Any], name: str = "acme") -> None:
        self.info = PolicyInfo(name=name, interface="admit/1")
        self._check = check
        self.seen: list[JobSpec] = []

    def check(self, spec: JobSpec) -> JobSpec | Verdict:
        self.seen.append(spec)
        answer: JobSpec | Verdict = self._check(spec)
        return answer


def policy(**tables: Any) -> Policy:
    return policy_from_plain(tables)


def plane(*rules: Admit, **tables: Any) -> SmallPlane:
    return SmallPlane(policy(**tables) if tables else None, rules=rules)


def test_a_rule_sees_the_submitter_and_the_queues_defaults() -> None:
    """alice, one hour, low: what the queue gives is there before the rule is asked."""
    rule = Rule(lambda spec: spec)
    small = plane(rule, qos={"low": {}}, queues={"default": {"default_walltime": "1h", "default_qos": "low"}})
    (job,) = small.submit({})
    assert [(s.user, s.walltime, s.qos) for s in rule.seen] == [("alice", HOUR, "low")]
    assert (small.live(job).user, small.live(job).walltime_ms, small.live(job).spec.qos) == ("alice", 3_600_000, "low")


def test_what_a_rule_makes_of_a_job_is_judged_like_what_a_person_wrote() -> None:
    """The rule asks for two nodes; the limit allows one: the limit refuses, with its own words."""
    small = plane(Rule(lambda spec: replace(spec, nodes=2)), limits={"small": {"max_nodes": 1}})
    with pytest.raises(SpecError, match=r"nodes: 2 .*limit 'small'"):
        small.submit({})
    assert plane(Rule(lambda spec: replace(spec, nodes=1)), limits={"small": {"max_nodes": 1}}).submit({}) == [1]


def test_rules_are_asked_in_their_order_each_about_what_the_one_before_made() -> None:
    """'a' becomes 'ab', then 'abc'."""
    first, second = (Rule(lambda spec, to=to: replace(spec, name=spec.name + to)) for to in "bc")
    small = plane(first, second)
    (job,) = small.submit({"name": "a"})
    assert small.live(job).name == "abc"
    assert [spec.name for spec in second.seen] == ["ab"]


def test_a_job_that_is_moved_to_another_queue_gets_that_queues_defaults() -> None:
    """The hour that the rule was shown came from `default`; `gpu` gives two."""
    queues = {"default": {"default_walltime": "1h"}, "gpu": {"default_walltime": "2h"}}
    small = plane(Rule(lambda spec: replace(spec, queue="gpu")), queues=queues)
    (job,) = small.submit({})
    assert (small.live(job).queue, small.live(job).walltime_ms) == ("gpu", 7_200_000)


def test_a_refusal_carries_the_rules_name_its_message_and_its_advice() -> None:
    """All three reach whoever submits, and nothing was kept of the whole submission."""
    rule = Rule(lambda spec: spec if spec.account else refusal("name a project", "--account physics", "--account bio"))
    small = plane(rule)
    with pytest.raises(SpecError) as caught:
        small.submit({"account": "physics"}, {})
    assert caught.value.message == "job 2 of 2: refused by rule 'acme': name a project"
    assert caught.value.hint == "--account physics; --account bio"
    assert small.submit({"account": "physics"}) == [1]


def fails(spec: JobSpec) -> JobSpec:
    raise KeyError("gpu")


def in_place(spec: JobSpec) -> JobSpec:
    spec.env["SITE"] = "acme"
    return spec


@pytest.mark.parametrize(
    ("check", "says"),
    [
        (fails, r"failed \(KeyError: 'gpu', at .*test_site_rules\.py:\d+\)"),
        (in_place, "changed the job in place"),
        (lambda spec: None, "returned None; a JobSpec or a Verdict is needed"),
        (lambda spec: True, "returned True"),
        (lambda spec: replace(spec, nodes="two"), "not well formed: .*nodes"),
        (lambda spec: replace(spec, nodes=0), "not well formed: .*nodes"),
        (lambda spec: replace(spec, labels={"a b": "c"}), "not well formed: labels"),
        (lambda spec: replace(spec, env={"A": object()}), "not well formed"),
        (lambda spec: replace(spec, user="root"), "changed the user from 'alice' to 'root'"),
        (lambda spec: replace(spec, user=""), "changed the user from 'alice' to ''"),
        (lambda spec: Verdict(job=0, reason=Reason.ADMISSION, message=" "), "without a message"),
        (lambda spec: refusal("no", 5), "`helps`"),
    ],
)
def test_a_faulty_rule_is_one_error_that_names_it_and_the_job_is_refused(
    check: Callable[[JobSpec], Any], says: str
) -> None:
    """It is no fault of whoever submits, and nothing half done remains: the next job has the first id."""
    faulty = Rule(check)
    small = plane(faulty)
    with pytest.raises(InternalError, match=rf"^rule 'acme' of this site .*{says}"):
        small.submit({})
    small.plane._table.rules = ()
    assert small.submit({}) == [1]


def test_a_change_that_the_rules_would_not_leave_so_is_refused() -> None:
    """One hour at most, says the rule: shorter may be asked for; longer is refused instead of being cut."""
    capped = Rule(lambda s: s if s.walltime is not None and s.walltime <= HOUR else replace(s, walltime=HOUR))
    small = plane(capped)
    (job,) = small.submit({"walltime": "9h"})
    assert small.live(job).walltime_ms == 3_600_000
    small.plane.update(job, JobPatch(walltime=Duration(60_000)), BY, small.now_ms)
    with pytest.raises(SpecError, match=r"^walltime: the rules of this site \('acme'\) would change this job"):
        small.plane.update(job, JobPatch(walltime=Duration(7_200_000)), BY, small.now_ms)
    assert small.live(job).walltime_ms == 60_000


def test_a_change_that_concerns_no_rule_is_not_asked_about() -> None:
    """Another name for a job of a time before the rule."""
    small = plane()
    (job,) = small.submit({})
    small.plane._table.rules = (Rule(lambda spec: refusal("nothing more")),)
    small.plane.update(job, JobPatch(name="other"), BY, small.now_ms)
    with pytest.raises(SpecError, match="nothing more"):
        small.plane.update(job, JobPatch(priority=5), BY, small.now_ms)
