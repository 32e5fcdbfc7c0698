"""hal.conformance: each clause of the contract is broken once, and the check says which and where."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from hal.conformance import INTERFACES, NonConformance, check
from hal.conformance.__main__ import main
from hal.core.engine import policies
from hal.core.interfaces import PolicyInfo, refusal
from hal.core.model import JobSpec, Reason, Verdict

Answer = Callable[..., Any]
turn = count()
"""Something that policies must not have: a memory."""


class Policy:
    """A policy of one interface whose methods are these functions."""

    def __init__(self, interface: str, **methods: Any) -> None:
        reads = {
            name: methods.pop(name) for name in ("reads_free", "reads_advice", "reads_preference") if name in methods
        }
        self.info = PolicyInfo(name="acme", interface=interface, **reads)
        for name, method in methods.items():
            setattr(self, name, method)


def zeros(buckets: Any, view: Any, now_ms: int) -> Any:
    return np.zeros(len(buckets.class_id), np.int64)


def sort_in_place(jobs: Any, view: Any) -> Any:
    jobs.submit_ms.sort()
    return jobs.submit_ms


def order(key: Answer = lambda jobs, view: jobs.submit_ms, offset: Answer = zeros) -> Policy:
    return Policy("order/2", key=key, offset=offset)


def score(answer: Answer, *, reads_free: bool = False) -> Policy:
    return Policy("score/1", score=answer, reads_free=reads_free)


def score_by_price(answer: Answer) -> Policy:
    return Policy("score/2", score=lambda asked, view: answer(view.advice["price"]), reads_advice=("price",))


def order_by_advice(key: Answer, offset: Answer = zeros) -> Policy:
    return Policy("order/3", key=key, offset=offset, reads_advice=("urgency", "favour"))


def rounded(column: Any) -> Any:
    return np.nan_to_num(np.clip(column, -1e6, 1e6)).astype(np.int64)


def mask(answer: Answer) -> Policy:
    return Policy("filter/1", mask=answer)


def by_taste(asked: Any, view: Any) -> Any:
    """Nodes with a label for who would be away from other work."""
    return np.where(view.labels.has("ssd") & (sum(one.weight for one in asked.near) < 0), 1.0, 0.5)


def domain_score(answer: Answer) -> Policy:
    return Policy("domain-score/1", score=answer)


def busiest(gang: Any, view: Any, domains: Any) -> Any:
    """The part of the domain's cores that is in use, by sums over its nodes."""
    return 1.0 - domains.total(view.free[0]) / np.maximum(domains.total(view.capacity[0]), 1.0)


def preempt(answer: Answer) -> Policy:
    return Policy("preempt/1", price=answer)


def admit(answer: Answer) -> Policy:
    return Policy("admit/1", check=answer)


def in_place(spec: JobSpec) -> JobSpec:
    spec.env["SITE"] = "acme"
    return spec


def emptiest(asked: Any, view: Any) -> Any:
    return view.free[0] / np.maximum(view.capacity[0], 1)


@pytest.mark.parametrize(
    "policy",
    [
        order(),
        order(offset=lambda buckets, view, now_ms: buckets.owner_id * 1_000 - now_ms),
        score(lambda asked, view: np.ones(view.rows, np.float32)),
        score(emptiest, reads_free=True),
        score_by_price(lambda price: np.clip(np.nan_to_num(price, nan=0.5), 0, 1)),
        order_by_advice(
            lambda jobs, view: rounded(jobs.advice["urgency"]),
            lambda buckets, view, now_ms: rounded(buckets.advice["favour"]),
        ),
        Policy("score/2", score=by_taste, reads_preference=True),
        domain_score(lambda gang, view, domains: np.ones(domains.domains, np.float32)),
        domain_score(lambda gang, view, domains: domains.gang_nodes / np.maximum(domains.nodes, 1)),
        domain_score(lambda gang, view, domains: np.where(domains.fits >= gang.nodes, 1.0, -1.0)),
        domain_score(busiest),
        mask(lambda asked, view: view.capacity[2] > 0),
        preempt(lambda runs, now_ms: np.where(runs.account == "physics", np.inf, runs.wasted)),
        preempt(lambda runs, now_ms: (now_ms - runs.start_ms) * runs.nodes * runs.amounts[0]),
        admit(lambda spec: spec),
        admit(lambda spec: replace(spec, account="physics")),
        admit(lambda spec: refusal("closed for the holidays")),
    ],
)
def test_a_policy_that_keeps_its_contract_passes(policy: Policy) -> None:
    """One and more of each kind, under two seeds."""
    check(policy)
    check(policy, seed=7)


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        (order(lambda jobs, view: jobs.submit_ms[:1]), r"key\(\), case 0 .*0 jobs|shape \(1,\); \(2,\) is needed"),
        (order(lambda jobs, view: list(jobs.job)), "returned list; a numpy array is needed"),
        (order(lambda jobs, view: jobs.job.astype(np.float64)), "dtype float64; whole numbers"),
        (
            order(lambda jobs, view: jobs.walltime_ms),
            r"returned 1152921504606846976 at index .*between -2\*\*60 and 2\*\*60",
        ),
        (order(lambda jobs, view: jobs.job + next(turn)), "called twice with the same"),
        (
            order(lambda jobs, view: np.argsort(jobs.job)),
            r"for the job at index \d+, .*must not depend on which others",
        ),
        (order(sort_in_place), "raised ValueError: .*read-only: copy what you change"),
        (
            order(lambda jobs, view: jobs.gpus),
            r"key\(\), case 0 of seed 0, 0 jobs: raised AttributeError: .*gpus.*\.py:\d+",
        ),
        (order(offset=lambda buckets, view, now_ms: np.zeros(3, np.int64)), r"offset\(\), case 0 .*shape \(3,\)"),
        (
            order(offset=lambda buckets, view, now_ms: np.arange(len(buckets.waiting))),
            r"the bucket at index \d+, .*must not depend",
        ),
        (order(offset=lambda buckets, view, now_ms: buckets.class_id + (1 << 60)), "offset.*between"),
        (
            score(lambda asked, view: np.where(view.capacity[2] > 0, 1.0, np.nan)),
            "the score nan .*every row",
        ),
        (score(lambda asked, view: np.full(view.rows, np.inf)), "the score inf"),
        (score(lambda asked, view: view.capacity[0]), r"the score \d+.*can hold the request; 0\.\.1 is needed"),
        (score(lambda asked, view: np.ones(view.rows, np.bool_)), "dtype bool; numbers"),
        (score(lambda asked, view: np.arange(view.rows) / max(view.rows, 1)), r"row \d+, .*must not depend"),
        (score(emptiest), r"when other amounts were free: declare PolicyInfo\(reads_free=True\)"),
        (score_by_price(lambda price: 1.0 - np.clip(price, 0, 1)), "the score nan .*every row"),
        (score_by_price(lambda price: np.clip(np.nan_to_num(price) / np.nanmax(price), 0, 1)), "must not depend|nan"),
        (order_by_advice(lambda jobs, view: jobs.advice["urgency"]), "dtype float64; whole numbers"),
        (order_by_advice(lambda jobs, view: jobs.advice["price"]), "raised KeyError: 'price'"),
        (Policy("score/1", score=zeros, reads_advice=("price",)), "score/1 has no reads_advice.*score/2"),
        (Policy("score/1", score=zeros, reads_preference=True), "score/1 has no reads_preference.*score/2"),
        (
            Policy("score/2", score=lambda asked, view: np.full(view.rows, len(asked.near)), reads_preference=True),
            r"the score 2 for row \d+, which can hold the request; 0..1",
        ),
        (Policy("score/2", score=zeros, reads_advice=("Price",)), "'Price' is not a name for a kind"),
        (Policy("score/2", score=zeros, reads_advice=["price"]), "must be a tuple of at most 16 kinds"),
        (domain_score(lambda gang, view, domains: np.ones(view.rows)), r"score\(\), case \d+ .*; \(\d+,\) is needed"),
        (domain_score(lambda gang, view, domains: domains.name), "dtype <U[0-9]+; numbers"),
        (
            domain_score(lambda gang, view, domains: domains.fits / domains.nodes * np.nan),
            r"the score nan for domain z\d.* nodes up, \d+ with room\); every domain",
        ),
        (
            domain_score(lambda gang, view, domains: domains.nodes),
            r"the score \d+ for domain z.*can hold the gang; 0..1",
        ),
        (
            domain_score(lambda gang, view, domains: domains.nodes / max(domains.nodes.sum(), 1)),
            r"for domain \d+, .*must not depend on which others",
        ),
        (
            domain_score(lambda gang, view, domains: np.full(domains.domains, 1.0 / (1 + view.rows))),
            r"for domain \d+, .*must not depend on which others",
        ),
        (domain_score(lambda gang, view, domains: np.full(domains.domains, 0.1 * (next(turn) % 7))), "called twice"),
        (domain_score(lambda gang, view, domains: domains.fits.sort()), "read-only: copy what you change"),
        (Policy("domain-score/1"), r"domain-score/1 needs a method score\(\)"),
        (
            Policy("domain-score/1", score=zeros, reads_advice=("price",)),
            "domain-score/1 has no reads_advice",
        ),
        (mask(lambda asked, view: np.ones(view.rows)), "dtype float64; bool"),
        (
            mask(lambda asked, view: np.arange(view.rows) > 0),
            r"returned (True|False) for row \d+, and (True|False) when called",
        ),
        (mask(lambda asked, view: view.free[0] > 1_000), "when other amounts were free: a filter is called once"),
        (mask(lambda asked, view: np.full(view.rows, next(turn) % 2 == 0)), "called twice"),
        (preempt(lambda runs, now_ms: runs.wasted[1:]), r"price\(\), case 0|shape \(0,\); \(1,\) is needed"),
        (preempt(lambda runs, now_ms: runs.account), "dtype <U[0-9]+; numbers"),
        (preempt(lambda runs, now_ms: runs.wasted * np.nan), r"the price nan .*at index \d+; 0 or more"),
        (preempt(lambda runs, now_ms: runs.start_ms - now_ms), r"the price -\d+ .*; 0 or more is needed"),
        (preempt(lambda runs, now_ms: runs.wasted / max(runs.nodes.sum(), 1)), r"the attempt at index \d+, .*must not"),
        (preempt(lambda runs, now_ms: runs.wasted + next(turn)), "called twice with the same"),
        (Policy("preempt/1"), r"preempt/1 needs a method price\(\)"),
        (admit(lambda spec: None), "returned NoneType; a JobSpec or a Verdict is needed"),
        (admit(lambda spec: replace(spec, user="root")), "changed the user from 'alice' to 'root'"),
        (admit(lambda spec: replace(spec, nodes=0)), "not well formed: nodes"),
        (admit(in_place), "changed the job in place"),
        (admit(lambda spec: replace(spec, priority=next(turn) % 99)), "called twice with the same job"),
        (admit(lambda spec: replace(spec, name=f"{spec.name}x")), "must accept its own result unchanged"),
        (admit(lambda spec: spec.walltime / 2), r"check\(\), case 0 of seed 0: raised TypeError"),
        (admit(lambda spec: Verdict(job=0, reason=Reason.ADMISSION, message="")), "without a message"),
        (admit(lambda spec: refusal("no", 5)), r"helps=\(5,\)"),  # type: ignore[arg-type]
        (Policy("order/2", key=zeros), r"order/2 needs a method offset\(\)"),
        (Policy("score/9"), "written for 'score/9'; this HAL has .*score/1"),
        (object(), "`info` must be a PolicyInfo, and is None"),
    ],
)
def test_each_breach_is_named(policy: object, says: str) -> None:
    """Policy, method, case, and what is wrong."""
    with pytest.raises(NonConformance, match=says):
        check(policy)


def test_conformance_knows_the_interfaces_that_the_engine_loads() -> None:
    """One list of versions in two places."""
    assert set(INTERFACES) == {version for versions in policies.VERSIONS.values() for version in versions}


class Good:
    """What the command line is pointed at."""

    info = PolicyInfo(name="good", interface="admit/1")

    def check(self, spec: JobSpec) -> JobSpec:
        return spec


class Bad(Good):
    def check(self, spec: JobSpec) -> JobSpec:
        raise RuntimeError("out of order")


def test_the_command_says_of_each_policy_whether_it_conforms(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """0 when all do, 1 when one does not, 2 when one is not there."""
    monkeypatch.setitem(sys.modules, "acme", sys.modules[__name__])
    assert main(["acme:Good"]) == 0
    assert "'good' conforms to admit/1 (60 cases)" in capsys.readouterr().out
    assert main(["acme:Bad", "acme:Good"]) == 1
    assert "raised RuntimeError: out of order" in capsys.readouterr().err
    assert main(["acme:Missing"]) == 2
    assert main(["no-such-entry-point"]) == 2
    assert "no entry point of that name in hal.policies" in capsys.readouterr().err


def test_importing_it_imports_no_compiler_and_no_engine() -> None:
    """An author's tests start fast."""
    program = "import sys, hal.conformance; sys.exit(any(m in sys.modules for m in ('numba', 'hal.core.engine')))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
