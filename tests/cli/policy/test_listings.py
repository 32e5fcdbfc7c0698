"""Queues, shares, limits, licences and the policy as the command line shows and changes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Ran, Serve
from tests.client.scripted_server import Asked, Reply, ScriptedServer, as_json

Hal = Callable[..., Ran]

POLICY = {
    "queues": {"short": {"max_walltime": "15m", "priority": 10}, "idle": {"open": False}},
    "accounts": {"physics": {"weight": 2.0, "users": {"alice": 3.0}}},
    "qos": {"low": {"preempt_mode": "requeue", "grace": "5m"}},
    "limits": {"each": {"user": "*", "running": 100}},
    "bookings": {},
}


def rows(ran: Ran) -> list[list[str]]:
    """The cells of a table."""
    assert (ran.code, ran.err) == (0, "")
    return [line.split() for line in ran.out.splitlines()]


def test_queues_show_their_load(serve: Serve, hal: Hal) -> None:
    """Jobs and tasks, and walltimes."""
    queue = {"name": "short", "open": False, "jobs": 3, "pending": 5, "held": 1, "running": 2, "max_walltime": "15m"}
    serve(lambda asked: as_json({"queues": [queue]}))
    assert rows(hal("queues"))[1] == ["short", "drained", "3", "5", "1", "2", "unlimited", "15m"]


def test_shares_are_a_tree_with_shares_in_percent(serve: Serve, hal: Hal) -> None:
    """Accounts are indented, users carry a factor; use is in hours: 12.4, 3 and 3."""
    tree = [
        {"path": [], "weight": 1.0, "target": 1.0, "used": 1.0, "units": 44_640.0, "factor": 1.0},
        {"path": ["physics"], "weight": 2.0, "target": 0.5, "used": 0.25, "units": 10_800.0, "factor": 1.0},
        {
            "path": ["physics"], "user": "alice", "weight": 3.0, "target": 0.5, "used": 0.25, "units": 10_800.0,
            "factor": 0.7,
        },
    ]  # fmt: skip
    serve(lambda asked: as_json({"shares": tree}))
    assert hal("shares").out.splitlines()[1:] == [
        "(all)           1       100.0%  100.0%  12.4",
        "physics         2       50.0%   25.0%   3",
        "physics  alice  3       50.0%   25.0%   3           0.700",
    ]


def test_limits_in_use_are_written_in_their_units(serve: Serve, hal: Hal) -> None:
    """Tasks as they are, memory as bytes, hours by 3,600 s, and what has no bound."""
    entry = {"limit": "each", "scope": "user alice", "limit_amount": 4, "own": 4, "used": 3}
    hours = 3_600
    ledgers = [
        entry | {"what": "running"},
        entry | {"what": "resources", "resource": "memory", "used": 1 << 30, "limit_amount": 4 << 30, "own": 2 << 30},
        entry | {"what": "hours", "resource": "cpu", "used": 1_500 * hours, "limit_amount": 1 << 60, "own": 1 << 60},
        entry | {"limit": "", "cohort": "gpus", "what": "resources", "resource": "gpu", "used": 1_000, "own": 4},
    ]
    serve(lambda asked: as_json({"ledgers": ledgers}))
    lines = hal("shares", "--limits").out.splitlines()[1:]
    assert [line.split() for line in lines] == [
        ["each", "user", "alice", "tasks", "at", "once", "3", "4"],
        ["each", "user", "alice", "memory", "1GiB", "4GiB", "2GiB"],
        ["each", "user", "alice", "cpu-hours", "1.5", "unlimited"],
        ["(gpus)", "user", "alice", "gpu", "1", "0.004"],
    ]


@pytest.mark.parametrize(
    ("command", "answer", "note"),
    [
        (("shares", "--limits"), {"ledgers": []}, "no running job counts towards a limit"),
        (("licences",), {"licences": []}, "hal policy set licences.NAME=N"),
        (("token", "list"), {"tokens": []}, "hal token create"),
        (("api-token", "list"), {"tokens": []}, "hal api-token create USER"),
        (("booking", "list"), {"version": 1, "at_ms": 1, "policy": POLICY}, "hal booking add NAME"),
    ],
)
def test_an_empty_list_says_what_to_do(
    command: tuple[str, ...], answer: dict[str, Any], note: str, serve: Serve, hal: Hal
) -> None:
    """On stderr, so that a program gets nothing."""
    serve(lambda asked: as_json(answer))
    ran = hal(*command)
    assert (ran.code, ran.out, note in ran.err) == (0, "", True)


def test_licences_show_their_use(serve: Serve, hal: Hal) -> None:
    """Total, used, booked, free."""
    serve(lambda asked: as_json({"licences": [{"name": "matlab", "total": 10, "used": 3, "booked": 2, "free": 5}]}))
    assert rows(hal("licences")) == [["NAME", "TOTAL", "USED", "BOOKED", "FREE"], ["matlab", "10", "3", "2", "5"]]


def active(asked: Asked) -> Reply:
    """The policy, whatever is asked; a change changes one setting."""
    if asked.method in ("PATCH", "PUT"):
        change = {"entry": "queues.short", "field": "max_walltime", "before": "15m", "after": "30m"}
        dry = asked.query.get("dry_run") == "1"
        return as_json(
            {"version": 4 if dry else 5, "changes": [change], "dry_run": dry, "effects": EFFECTS if dry else None}
        )
    version = int(asked.path.rpartition("/")[2]) if "/versions/" in asked.path else 4
    return as_json({"version": version, "at_ms": 1_700_000_000_000, "user": "root", "note": "spring", "policy": POLICY})


EFFECTS = {
    "examined": 7,
    "refused_jobs": 1,
    "refused": [{"job": "12", "reason": "queue short allows 30m"}],
    "over_limits": 1,
    "over": [{"limit": "each", "whose": "user bob", "what": "tasks", "now": "7", "allowed": "5"}],
}


def test_a_list_leaves_columns_without_any_value_out(serve: Serve, hal: Hal) -> None:
    """By name."""
    serve(active)
    table = rows(hal("queue", "list"))
    assert table[0] == ["NAME", "STATE", "PRIORITY", "ORDER", "MAX"]
    assert [line[:3] + line[4:] for line in table[1:]] == [
        ["default", "open", "-", "-"],
        ["idle", "drained", "-", "-"],
        ["short", "open", "10", "15m"],
    ]
    assert rows(hal("account", "list"))[1] == ["physics", "2", "alice=3"]
    assert rows(hal("qos", "list"))[1][:4] == ["low", "0", "requeue", "5m"]
    assert rows(hal("limit", "list"))[1][:3] == ["each", "*", "100"]


def test_one_entry_is_shown_by_what_differs_from_the_defaults(serve: Serve, hal: Hal) -> None:
    """One that does not exist is exit code 3, with the nearest name."""
    serve(active)
    assert rows(hal("queue", "show", "short")) == [["name", "short"], ["priority", "10"], ["max_walltime", "15m"]]
    missing = hal("queue", "show", "shrt")
    assert (missing.code, "there is no queue 'shrt'; did you mean 'short'?" in missing.err) == (3, True)


def sent(server: ScriptedServer) -> list[dict[str, Any]]:
    """The operations of the last change."""
    operations: list[dict[str, Any]] = [one for one in server.asked if one.method == "PATCH"][-1].json["operations"]
    return operations


def test_add_set_and_remove_are_operations(serve: Serve, hal: Hal) -> None:
    """Several names are one change; a name that is given twice is removed once."""
    server = serve(active)
    hal("queue", "add", "long", "--max-walltime", "2d", "--note", "asked for")
    assert sent(server) == [{"op": "add", "kind": "queue", "name": "long", "entry": {"max_walltime": "2d"}}]
    assert server.asked[-1].query == {"note": "asked for"}
    hal("qos", "set", "low", "--grace", "none")
    assert sent(server) == [{"op": "set", "kind": "qos", "name": "low", "entry": {"grace": None}}]
    hal("limit", "remove", "a", "b", "a")
    assert [(one["op"], one["name"]) for one in sent(server)] == [("delete", "a"), ("delete", "b")]
    nothing = hal("queue", "set", "short")
    assert (nothing.code, "there is nothing to set; name a setting, such as --description" in nothing.err) == (2, True)


def test_a_change_is_shown_with_what_it_means(serve: Serve, hal: Hal) -> None:
    """In a dry run what would be refused, and which limits are exceeded already."""
    serve(active)
    done = hal("queue", "set", "short", "--max-walltime", "30m")
    assert done.out == "queues.short max_walltime: 15m > 30m\n"
    assert "version 5 of the policy is active\n" in done.err
    dry = hal("queue", "set", "short", "--max-walltime", "30m", "--dry-run")
    assert dry.out.splitlines() == [
        "queues.short max_walltime: 15m > 30m",
        "pending jobs that would be refused if submitted now (they stay): 1",
        "  12: queue short allows 30m",
        "limits that are exceeded already (nothing more is started or accepted until usage falls):",
        "  each (user bob): 7 tasks of 5",
    ]
    assert "dry run: nothing was changed, version 4 of the policy is still active" in dry.err


def test_the_policy_is_shown_as_yaml_with_its_version(serve: Serve, hal: Hal) -> None:
    """Another version by number."""
    server = serve(active)
    ran = hal("policy", "show")
    assert "version 4, " in ran.err
    assert "by root: spring" in ran.err
    assert "short:" in ran.out
    hal("policy", "show", "3")
    assert server.asked[-1].path == "/v1/policy/versions/3"


def test_versions_are_listed_newest_first_up_to_a_limit(serve: Serve, hal: Hal) -> None:
    """As the controller has them."""
    versions = [{"version": 5, "at_ms": 1_700_000_000_000, "user": "root", "note": "x"}, {"version": 4, "at_ms": 1}]
    server = serve(lambda asked: as_json({"versions": versions}))
    table = rows(hal("policy", "history", "--limit", "1"))
    assert (len(table), table[1][0], table[1][-2:]) == (2, "5", ["root", "x"])
    assert server.asked[0].query["limit"] == "1"


def test_differences_between_versions_and_files(serve: Serve, hal: Hal, tmp_path: Path) -> None:
    """From an old version to the active one, from the active one to a file; both the same here but for one queue."""
    serve(active)
    assert hal("policy", "diff", "3").err == "there is no difference\n"
    file = tmp_path / "hal.toml"
    file.write_text('[queues.short]\nmax_walltime = "30m"\npriority = 10\n[server]\ntcp = "1"\n')
    out = hal("policy", "diff", file).out.splitlines()
    assert "queues.short max_walltime: 15m > 30m" in out
    assert any(line.startswith("- queues.idle") for line in out)
    assert not any("server" in line for line in out)
    assert hal("policy", "diff", "1", "2", "3").code == 2


def test_apply_and_rollback_replace_the_version_that_was_read(serve: Serve, hal: Hal, tmp_path: Path) -> None:
    """Whoever changed it in between is not overwritten; the note says what was done."""
    server = serve(active)
    file = tmp_path / "policy.json"
    file.write_text(json.dumps({"queues": {"short": {}}}))
    hal("policy", "apply", file, "--yes")
    put = server.asked[1]
    assert (put.method, put.headers["if-match"], put.query["note"]) == ("PUT", '"4"', f"applied {file}")
    assert set(put.json["queues"]) == {"default", "short"}
    hal("policy", "rollback", "2", "--dry-run")
    put = [one for one in server.asked if one.method == "PUT"][-1]
    assert put.query == {"dry_run": "1", "note": "rolled back to version 2"}


def test_a_file_that_removes_entries_is_not_applied_without_a_word(serve: Serve, hal: Hal, tmp_path: Path) -> None:
    """It lacks the queue `idle`: without a terminal to ask at, nothing is done, and the error names it."""
    server = serve(active)
    file = tmp_path / "policy.json"
    file.write_text(json.dumps({"queues": {"short": {}}}))
    ran = hal("policy", "apply", file)
    assert (ran.code, [one.method for one in server.asked]) == (2, ["GET"])
    assert "policy.json would remove queues.idle, " in ran.err
    assert "; add --yes to remove that" in ran.err


def test_single_settings_are_operations_by_their_path(serve: Serve, hal: Hal) -> None:
    """Weights, fair share, licences and fields of entries; what is no path is refused with examples."""
    server = serve(active)
    hal("policy", "set", "weights.age=2", "licences.matlab=10", "queues.short.priority=3", "fairshare.charge.gpu=2")
    assert [(one["op"], one["kind"], one.get("name", ""), one["entry"]) for one in sent(server)] == [
        ("set", "weights", "", {"age": 2}),
        ("put", "licence", "matlab", {"total": 10}),
        ("set", "queue", "short", {"priority": 3}),
        ("set", "fairshare", "", {"charge": {"cpu": 1.0, "gpu": 2, "memory": 0.0625}}),
    ]
    for wrong in ("age=2", "queues.short=1", "weights.age=nan"):
        ran = hal("policy", "set", wrong)
        assert ran.code == 2, ran
