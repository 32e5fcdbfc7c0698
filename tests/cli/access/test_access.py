"""`hal access show`, and the commands of delegates: what is asked for, and what is shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.conftest import Ran, Serve
from tests.client.scripted_server import as_json

Hal = Callable[..., Ran]

ANN: dict[str, Any] = {
    "user": "ann",
    "role": None,
    "grants": [
        {"right": "coordinator of physics", "source": "delegation", "rule": "policy: accounts.physics.coordinators"}
    ],
    "queues": [{"name": "default", "may_submit": True, "why": "open to all users", "operator": False}],
    "accounts": [{"name": "physics", "may_submit": False, "why": "x", "coordinator_through": "physics"}],
    "limits": [{"name": "few", "scope": {"user": "*"}, "bounds": {"resources": {"cpu": 4}}, "set_by": "administrator"}],
    "more": 3,
}


def test_rights_are_shown_with_their_rules(serve: Serve, hal: Hal) -> None:
    """A table each for rights, queues, accounts and limits; what is left out is said."""
    server = serve(lambda asked: as_json(ANN))
    ran = hal("access", "show", "--user", "ann")
    assert server.asked[0].query == {"user": "ann"}
    for words in (
        ["coordinator", "of", "physics", "delegation", "policy:", "accounts.physics.coordinators"],
        ["default", "yes", "open", "to", "all", "users"],
        ["physics", "no", "x", "physics"],
        ["few", "user", "*", "resources", "cpu=4", "administrator"],
    ):
        assert words in [line.split() for line in ran.out.splitlines()]
    assert ran.err == "3 queues, accounts and limits are not listed\n"


def test_rights_are_one_value_for_programs(serve: Serve, hal: Hal) -> None:
    """As REST returns them."""
    serve(lambda asked: as_json(ANN))
    assert json.loads(hal("access", "show", "--json").out)["grants"][0]["source"] == "delegation"


@pytest.mark.parametrize(("word", "state"), [("open", "open"), ("drain", "drained"), ("close", "closed")])
def test_a_queue_is_opened_drained_and_closed(word: str, state: str, serve: Serve, hal: Hal) -> None:
    """The state is what REST is asked for; what has changed is printed."""
    change = {"entry": "queues.short", "field": "open", "before": None, "after": False}
    server = serve(lambda asked: as_json({"version": 2, "changes": [change], "dry_run": False}))
    ran = hal("queue", word, "short", "--note", "disks")
    assert json.loads(server.asked[0].body) == {"queue": "short", "state": state}
    assert server.asked[0].query == {"note": "disks"}
    assert ran.out.startswith("queues.short open: ")


def test_a_user_of_an_account_is_limited_and_not_limited_any_more(serve: Serve, hal: Hal) -> None:
    """Bounds as those of `hal limit`."""
    server = serve(lambda asked: as_json({"version": 2, "changes": [], "dry_run": False}))
    hal("account", "limit", "physics", "ada", "--running", "2", "--max-walltime", "1h")
    hal("account", "limit", "physics", "*", "--remove")
    limit, removal = server.asked
    body = json.loads(limit.body)
    assert (body["account"], body["user"], body["running"]) == ("physics", "ada", 2)
    assert (removal.method, removal.query) == ("DELETE", {"account": "physics", "user": "*"})


@pytest.mark.parametrize("words", [(), ("--remove", "--running", "2")])
def test_a_limit_needs_bounds_or_goes(words: tuple[str, ...], hal: Hal) -> None:
    """Neither or both is a mistake."""
    assert hal("account", "limit", "physics", "ada", *words).code == 2
