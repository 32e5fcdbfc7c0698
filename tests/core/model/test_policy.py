"""A policy is taken as people write it, or refused with the entry, the field and the nearest valid name."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from hal.core.engine.policies import PLACEMENT_KERNELS
from hal.core.model import ConflictError, NotFoundError, SpecError
from hal.core.model.policy import QUEUE_PLACEMENTS, Account, Policy, Queue
from hal.core.model.policy_change import Difference, Do, Kind, Operation, apply_operations, differences
from hal.core.model.policy_check import MAX_DEPTH, check_policy
from hal.core.model.policy_scope import Owner, is_within, ledger, lineage
from hal.core.model.policy_text import policy_from_plain, policy_schema, policy_to_plain

FULL: dict[str, Any] = {
    "accounts": {"org": {"weight": 2}, "ml": {"parent": "org", "users": {"ann": 3.0}}, "bio": {"parent": "org"}},
    "users": ["ann", "bob"],
    "qos": {
        "low": {"preempt_mode": "requeue"},
        "high": {"priority": 10, "preempts": ["low"], "max_walltime": "1h", "accounts": ["ml"]},
    },
    "queues": {
        "night": {
            "hours": ["mon-fri 18:00-08:00", "sat,sun"],
            "nodes": ["gpu=a100|h100", "!spot"],
            "accounts": ["org"],
            "default_qos": "low",
            "default_walltime": "1h",
            "max_walltime": "8h",
            "order": "round-robin",
        }
    },
    "limits": {
        "each": {"user": "*", "running": 10, "pending": 100},
        "ml": {"account": "ml", "resources": {"gpu": 8}, "cohort": "gpus", "borrow": {"gpu": 4}, "reclaim": "preempt"},
        "big": {"queue": "night", "max_job": "cpu=64,memory=1TiB", "max_nodes": 4},
    },
    "licences": {"matlab": 10},
    "bookings": {
        "class": {
            "start": "2030-01-07T08:00",
            "duration": "2h",
            "repeat": "weekly",
            "until": "2030-06-30T00:00+02:00",
            "nodes": ["n1", "n2"],
            "accounts": ["ml"],
            "licences": {"matlab": 5},
        },
        "upkeep": {"start_ms": 1_900_000_000_000, "duration": "4h", "nodes": ["n1"], "maintenance": True},
        "any": {"start_ms": 5, "duration": "1h", "count": 3, "constraints": ["gpu"], "users": ["ann"]},
    },
    "weights": {"age": 2, "size": -0.5},
    "fairshare": {"half_life": "14d", "charge": {"cpu": 1, "gpu": 20}},
}


def test_what_people_write_becomes_a_policy_and_back() -> None:
    """The plain form of a policy is read to the same policy, and is valid by the JSON Schema."""
    policy = policy_from_plain(FULL)
    assert policy_from_plain(policy_to_plain(policy)) == policy
    validator = jsonschema.Draft202012Validator(policy_schema())
    validator.check_schema(policy_schema())
    validator.validate(FULL)
    validator.validate(policy_to_plain(policy))
    assert policy.bookings["class"].start_ms == 1_894_003_200_000
    assert policy.queues["night"].name == "night"
    assert set(policy.queues) == {"night", "default"}


def test_accounts_may_be_a_list_of_names() -> None:
    """As in a laptop's hal.toml."""
    assert policy_from_plain({"accounts": ["a", "b"]}).accounts == {"a": Account(name="a"), "b": Account(name="b")}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"queue": {}}, "did you mean 'queues'"),
        ({"queues": {"x": {"max_wall": 1}}}, "queues.x: unknown field 'max_wall'; did you mean 'max_walltime'"),
        ({"queues": {"a b": {}}}, "queues: 'a b' is not a name"),
        (
            {"queues": {"x": {"default_walltime": "2h", "max_walltime": "1h"}}},
            "queues.x: `default_walltime` 2h is longer",
        ),
        ({"queues": {"x": {"max_tasks": 0}}}, "queues.x.max_tasks: 0 is out of range"),
        ({"queues": {"x": {"hours": ["noon"]}}}, "queues.x.hours: 'noon'"),
        ({"queues": {"x": {"default_qos": "hihg"}}}, "queues.x.default_qos: 'hihg' is not a QOS; did you mean 'high'"),
        ({"queues": {"x": {"qos": ["low"], "default_qos": "high"}}}, "may not be used in it"),
        ({"queues": {"x": {"accounts": ["mll"]}}}, "queues.x.accounts: 'mll' is not an account; did you mean 'ml'"),
        ({"queues": {"x": {"users": ["eve"]}}}, "queues.x.users: 'eve' is not a user"),
        ({"queues": {"x": {"nodes": ["="]}}}, "queues.x"),
        ({"queues": {"x": {"on_node_lost": "explode"}}}, "on_node_lost"),
        ({"queues": {"x": {"name": "y"}}}, "queues.x.name"),
        ({"accounts": {"a": {"parent": "b"}, "b": {"parent": "a"}}}, "its own ancestor: a > b > a"),
        ({"accounts": {"a": {"parent": "x"}}}, "accounts.a.parent: 'x' is not an account"),
        ({"accounts": ["a", "a"]}, "named twice"),
        ({"accounts": {"a": {"weight": -1}}}, "accounts.a.weight"),
        ({"qos": {"a": {"preempts": ["b"]}, "b": {"preempts": ["a"]}}}, "may not preempt itself: a > b > a"),
        ({"qos": {"a": {"preempts": ["a"]}}}, "may not preempt itself: a > a"),
        ({"qos": {"a": {"grace": "2d"}}}, "qos.a.grace"),
        ({"limits": {"l": {}}}, "limits.l: has no limit"),
        ({"limits": {"l": {"queue": "defualt", "running": 1}}}, "did you mean 'default'"),
        ({"limits": {"l": {"running": -1}}}, "limits.l.running"),
        ({"limits": {"l": {"running": 1, "cohort": "c"}}}, "limits.l.cohort"),
        ({"limits": {"l": {"running": 1, "borrow": {"cpu": 1}}}}, "limits.l.borrow"),
        ({"limits": {"l": {"running": 1, "reclaim": "preempt"}}}, "limits.l.reclaim: has no `cohort`"),
        ({"limits": {"l": {"resources": {"cpu": 1}, "cohort": "c", "reclaim": "soon"}}}, "reclaim"),
        ({"licences": {"m": -1}}, "licences.m"),
        ({"licences": {"m m": 1}}, "not a licence name"),
        ({"bookings": {"b": {"users": ["ann"]}}}, "reserves nothing"),
        ({"bookings": {"b": {"nodes": ["n1"]}}}, "nobody may use it"),
        ({"bookings": {"b": {"nodes": ["n1"], "count": 1, "users": ["ann"]}}}, "both `nodes` and `count`"),
        ({"bookings": {"b": {"nodes": ["n1", "n1"], "users": ["ann"]}}}, "named twice"),
        ({"bookings": {"b": {"count": 1, "users": ["ann"], "duration": 0}}}, "bookings.b.duration"),
        ({"bookings": {"b": {"count": 1, "users": ["ann"], "duration": "25h", "repeat": "daily"}}}, "at most 1d"),
        ({"bookings": {"b": {"count": 1, "users": ["ann"], "until_ms": 9}}}, "does not repeat"),
        (
            {"bookings": {"b": {"count": 1, "users": ["ann"], "start_ms": 9, "until_ms": 8, "repeat": "daily"}}},
            "bookings.b.until_ms: 1970-01-01 00:00 UTC is before it begins",
        ),
        ({"bookings": {"b": {"count": 1, "users": ["ann"], "maintenance": True}}}, "maintenance has no users"),
        ({"bookings": {"b": {"licences": {"matlab": 11}, "users": ["ann"]}}}, "bookings.b.licences.matlab: 11"),
        ({"bookings": {"b": {"licences": {"matlap": 1}, "users": ["ann"]}}}, "did you mean 'matlab'"),
        ({"bookings": {"b": {"start": "tomorrow"}}}, "bookings.b.start: is not an instant"),
        ({"bookings": {"b": {"start": "2030-01-01", "start_ms": 1}}}, "also given as start_ms"),
        ({"weights": {"age": float("nan")}}, "weights.age: nan"),
        ({"weights": {"age": -1}}, "weights.age"),
        ({"fairshare": {"half_life": 0}}, "fairshare.half_life"),
        ({"fairshare": {"charge": {"cores": 1}}}, "must be written 'cpu'"),
    ],
)
def test_a_mistake_is_named(change: dict[str, Any], says: str) -> None:
    """One error, of the person's, that says where; the rest of the policy is valid."""
    with pytest.raises(SpecError) as caught:
        policy_from_plain({**FULL, "bookings": {}, "queues": {}, "limits": {}, "qos": FULL["qos"], **change})
    assert says in str(caught.value)


def test_two_bookings_may_not_hold_a_node_at_once_unless_one_says_so() -> None:
    """A daily and a weekly one meet on the weekly's day; overlap, maintenance or other nodes allow it."""
    daily = {"start": "2030-01-01T09:00", "duration": "1h", "repeat": "daily", "nodes": ["n1"], "users": ["u"]}
    weekly = {**daily, "start": "2031-01-01T09:30", "repeat": "weekly"}
    with pytest.raises(SpecError, match=r"bookings\.w: .* node n1 together with booking 'd' at 2031-01-01 09:30 UTC"):
        policy_from_plain({"bookings": {"d": daily, "w": weekly}})
    for allowed in ({"overlap": True}, {"nodes": ["n2"]}, {"start": "2031-01-01T10:00"}):
        policy_from_plain({"bookings": {"d": daily, "w": {**weekly, **allowed}}})
    policy_from_plain({"bookings": {"d": {**daily, "until": "2030-12-01T00:00"}, "w": weekly}})
    maintenance = {**weekly, "maintenance": True, "users": []}
    policy_from_plain({"bookings": {"d": daily, "w": maintenance}})


def test_a_tree_of_accounts_has_a_deepest_level() -> None:
    """Deeper than `MAX_DEPTH` is refused, however the accounts are ordered."""
    chain = {f"a{n}": Account(parent=f"a{n - 1}" if n else "") for n in range(MAX_DEPTH)}
    check_policy(Policy(accounts=chain))
    for order in (1, -1):
        with pytest.raises(SpecError, match="deeper than"):
            check_policy(Policy(accounts=dict([*chain.items(), ("x", Account(parent=f"a{MAX_DEPTH - 1}"))][::order])))


# ── scope ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_job_falls_into_the_ledgers_of_all_scopes_that_match() -> None:
    """An account's scope holds all below it; `*` is one ledger for each name, and none for work without one."""
    policy = policy_from_plain(
        {
            "accounts": {"org": {}, "ml": {"parent": "org"}},
            "limits": {
                "any": {"running": 1},
                "org": {"account": "org", "running": 1},
                "users": {"account": "org", "user": "*", "running": 1},
                "accounts": {"account": "*", "running": 1},
                "queue": {"queue": "default", "running": 1},
            },
        }
    )

    def found(owner: Owner) -> dict[str, tuple[str, str, str, str]]:
        ledgers = {name: ledger(limit, owner, policy.accounts) for name, limit in policy.limits.items()}
        return {name: one for name, one in ledgers.items() if one is not None}

    assert found(Owner("default", "ml", "ann", "")) == {
        "any": ("", "", "", ""),
        "org": ("", "", "", ""),
        "users": ("", "", "ann", ""),
        "accounts": ("", "ml", "", ""),
        "queue": ("", "", "", ""),
    }
    assert set(found(Owner("other", "", "ann", ""))) == {"any"}
    assert list(lineage("ml", policy.accounts)) == ["ml", "org"]
    assert is_within("ml", ("org",), policy.accounts)
    assert not is_within("org", ("ml",), policy.accounts)


# ── changes ───────────────────────────────────────────────────────────────────────────────────────────────────────


def op(do: str, kind: str, name: str = "", **entry: Any) -> Operation:
    return Operation(op=Do(do), kind=Kind(kind), name=name, entry=entry)


def test_operations_change_one_entry_each() -> None:
    """Add, put, set (null is the default), delete; weights and licences too; the version is left alone."""
    policy = apply_operations(
        check_policy(Policy(version=7)),
        [
            op("add", "queue", "short", max_walltime="15m", priority=3),
            op("set", "queue", "short", priority=None, description="quick"),
            op("put", "licence", "matlab", total=4),
            op("set", "weights", age=5),
            op("add", "booking", "b", start="2030-01-01T00:00", duration="1h", count=1, users=["u"]),
            op("set", "booking", "b", start="2030-01-02T00:00"),
            op("add", "user", "u"),
        ],
    )
    assert (policy.version, policy.queues["short"]) == (
        7,
        Queue(name="short", max_walltime=policy.queues["short"].max_walltime, description="quick"),
    )
    assert (policy.licences, policy.weights.age, policy.users) == ({"matlab": 4}, 5.0, ("u",))
    assert policy.bookings["b"].start_ms == 1_893_542_400_000
    without = apply_operations(
        policy, [op("delete", "booking", "b"), op("delete", "licence", "matlab"), op("delete", "weights")]
    )
    assert (without.bookings, without.licences, without.weights.age) == ({}, {}, 1.0)


@pytest.mark.parametrize(
    ("operation", "error", "says"),
    [
        (op("add", "queue", "default"), ConflictError, "already exists"),
        (op("set", "queue", "defualt", priority=1), NotFoundError, "did you mean 'default'"),
        (op("delete", "qos", "x"), NotFoundError, "there is no qos 'x'"),
        (op("delete", "queue", "default"), ConflictError, "always exists"),
        (
            op("set", "account", "org", parent="mll"),
            SpecError,
            "'mll' is not an account; did you mean 'ml'? (declared: ml)",
        ),
        (op("put", "queue"), SpecError, "has no name"),
        (op("put", "weights", "x"), SpecError, "take no name"),
        (op("put", "licence", "m", total="x"), SpecError, "licences.m"),
        (op("set", "account", "org", wait=1), SpecError, "did you mean 'weight'"),
        (op("add", "user", "u", weight=1), SpecError, "no fields"),
    ],
)
def test_an_operation_that_cannot_be_done_changes_nothing(operation: Operation, error: type, says: str) -> None:
    """It names the entry, and the nearest one there is."""
    policy = policy_from_plain({"accounts": {"org": {}, "ml": {"parent": "org"}}})
    with pytest.raises(error) as caught:
        apply_operations(policy, [op("add", "queue", "new"), operation])
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("names", "error", "says"),
    [
        ("org", SpecError, "account 'org' cannot be removed: accounts.ml.parent: 'org' is not an account"),
        ("ml orgg", NotFoundError, "there is no account 'orgg'; did you mean 'org'? (declared: ml, org)"),
        ("ml ml", ConflictError, "account 'ml' is deleted by an earlier operation"),
    ],
)
def test_a_removal_that_is_refused_tells_what_is_there(names: str, error: type, says: str) -> None:
    """All of what was there still is, also what an operation before the refused one would have taken out."""
    policy = policy_from_plain({"accounts": {"org": {}, "ml": {"parent": "org"}}})
    with pytest.raises(error) as caught:
        apply_operations(policy, [op("delete", "account", name) for name in names.split()])
    assert says in str(caught.value)


@pytest.mark.parametrize(("more", "named"), [(4, ""), (5, " and 1 more"), (7, " and 3 more")])
def test_a_refused_removal_names_some_and_advises_no_other_name(more: int, named: str) -> None:
    """What was removed was there: a name like it is no advice. It says how many it does not name."""
    others = [f"p{k}" for k in range(more)]
    policy = policy_from_plain(
        {"accounts": {"phys": {}, "phys2": {}, "kid": {"parent": "phys"}, **{name: {} for name in others}}}
    )
    with pytest.raises(SpecError) as caught:
        apply_operations(policy, [op("delete", "account", name) for name in ("phys", *others)])
    removed = ", ".join(f"account '{name}'" for name in ("phys", *others[:4]))
    why = "accounts.kid.parent: 'phys' is not an account"
    assert caught.value.message == f"{removed}{named} cannot be removed: {why}"


def test_differences_say_what_came_went_and_changed() -> None:
    """By entry and field; an entry that came or went is told whole."""
    before = policy_from_plain({"queues": {"a": {"priority": 1}, "b": {}}, "licences": {"m": 1}})
    after = policy_from_plain({"queues": {"a": {"priority": 2}, "c": {"max_walltime": "1h"}}, "weights": {"age": 3}})
    assert differences(before, before) == []
    assert differences(before, after) == [
        Difference(entry="queues.a", field="priority", before=1, after=2),
        Difference(entry="queues.b", before={}),
        Difference(entry="queues.c", after={"max_walltime": "1h"}),
        Difference(entry="licences", field="m", before=1),
        Difference(entry="weights", field="age", after=3.0),
    ]


@pytest.mark.parametrize(
    ("queue", "says"),
    [
        (Queue(placement="best"), "queues.q.placement: 'best' is none of first-fit, best-fit"),
        (Queue(placement="auto"), "queues.q.placement: 'auto' is none of"),
        (Queue(preferences={"Price": 1.0}), "'Price' is not a name for a kind of advice"),
        (Queue(preferences={"price": float("nan")}), "queues.q.preferences.price"),
        (Queue(preferences={"price": 1e7}), "queues.q.preferences.price"),
        (Queue(preferences={"compactness": 0.5}), "neither 0 nor 1"),
        (Queue(preferences={f"kind{number}": 1.0 for number in range(17)}), "17 kinds; at most 16"),
    ],
)
def test_preferences_of_a_queue_that_mean_nothing_are_refused(queue: Queue, says: str) -> None:
    """With the queue and the field."""
    with pytest.raises(SpecError, match=says):
        check_policy(Policy(queues={"q": queue}))


def test_a_queue_may_have_every_placement_that_needs_no_site() -> None:
    """The engine has a kernel for each; all others are of the site."""
    assert set(PLACEMENT_KERNELS) - set(QUEUE_PLACEMENTS) == {"auto", "fgd"}
    for name in QUEUE_PLACEMENTS:
        check_policy(Policy(queues={"q": Queue(placement=name, preferences={"price": -1.0, "compactness": 0})}))
