"""A policy as TOML reads back as the same policy, whatever its names and values are."""

from __future__ import annotations

import tomllib

from hypothesis import given, settings
from hypothesis import strategies as st

from hal.core.model import Constraint, Duration, Operator, Resources
from hal.core.model.policy import (
    Account,
    Booking,
    Discipline,
    FairShare,
    GateRule,
    Limit,
    Policy,
    PreemptMode,
    Qos,
    Queue,
    Repeat,
    Weights,
)
from hal.core.model.policy_check import check_policy
from hal.core.model.policy_text import policy_from_plain, policy_to_plain, policy_to_toml
from tests.core.model.specs import names
from tests.examples import examples

TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=30)
DURATIONS = st.builds(Duration, st.integers(1_000, 10**9))
AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory", "gpu", "fpga"]), st.integers(1, 10**12), min_size=1).map(
    Resources
)


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    """A policy with entries of every kind; names as people may give them."""
    users = tuple(draw(st.lists(names, max_size=2, unique=True)))
    queues = {
        name: Queue(
            name=name, description=draw(TEXTS), priority=draw(st.integers(-9, 9)),
            order=draw(st.sampled_from(Discipline)), strict=draw(st.booleans()),
            default_walltime=draw(st.none() | DURATIONS), users=users,
            nodes=draw(st.sampled_from([(), (Constraint("gpu", Operator.IN, ("a100", "h100")),)])),
            hours=draw(st.sampled_from([(), ("mon-fri 18:00-08:00",)])),
            weights=draw(st.none() | st.just(Weights(age=2.5))),
        )
        for name in ["default", *draw(st.lists(names.filter(lambda one: one != "default"), max_size=2, unique=True))]
    }  # fmt: skip
    limits = {
        name: Limit(
            name=name, user=draw(st.sampled_from(["", "*"])), running=draw(st.integers(0, 9)),
            resources=draw(st.none() | AMOUNTS), hours=draw(st.none() | AMOUNTS), period=draw(DURATIONS),
        )
        for name in draw(st.lists(names, max_size=2, unique=True))
    }  # fmt: skip
    return check_policy(
        Policy(
            queues=queues,
            limits=limits,
            accounts={one: Account(name=one, weight=draw(st.floats(0, 1e9)), users={"ann.b": 2.0}) for one in users},
            qos={"high": Qos(name="high", preempt_mode=draw(st.sampled_from(PreemptMode)))},
            bookings={
                "upkeep": Booking(
                    name="upkeep", start_ms=draw(st.integers(0, 10**13)), repeat=Repeat.DAILY, nodes=("n1",),
                    maintenance=True,
                )
            },
            licences=draw(st.dictionaries(st.sampled_from(["matlab", "a.b/c"]), st.integers(1, 99))),
            gates={"stage": GateRule(name="stage", description=draw(TEXTS))},
            weights=Weights(size=draw(st.floats(-1e6, 1e6))),
            fairshare=FairShare(half_life=draw(DURATIONS), charge={"cpu": draw(st.floats(0, 1e6))}),
        )
    )  # fmt: skip


@settings(max_examples=examples(150), deadline=None)
@given(policies())
def test_safety_a_policy_as_toml_applies_to_the_same_policy(policy: Policy) -> None:
    """Nothing is lost or altered by `hal policy show -o toml`, and the file is TOML."""
    text = policy_to_toml(policy)
    assert policy_from_plain(tomllib.loads(text)) == policy_from_plain(policy_to_plain(policy)) == policy


def test_entries_without_fields_and_odd_names_keep_their_tables() -> None:
    """An account with defaults alone is still declared; a name with a dot is one name."""
    policy = policy_from_plain({"accounts": {"a.b": {}, "plain": {}}, "users": ["x"]})
    assert policy_to_toml(policy) == 'users = ["x"]\n\n[queues.default]\n\n[accounts."a.b"]\n\n[accounts.plain]\n'
