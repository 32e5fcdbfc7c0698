"""Who one is, tokens, and the audit log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.conftest import Ran, Serve
from tests.client.scripted_server import ScriptedServer, as_json

Hal = Callable[..., Ran]

TOKEN: dict[str, Any] = {
    "id": "0123456789ab",
    "user": "bob",
    "role": "user",
    "state": "valid",
    "created_ms": 1,
    "expires_ms": 1_700_000_000_000,
    "accounts": ["physics"],
    "queues": ["short"],
    "read_only": True,
    "note": "tests",
}


def test_whoami_shows_what_the_token_allows(serve: Serve, hal: Hal) -> None:
    """Fields that are empty are left out."""
    serve(lambda asked: as_json({"user": "bob", "role": "user", "peer": "127.0.0.1", "read_only": True}))
    assert hal("whoami").out.splitlines() == ["User    bob", "Role    user", "From    127.0.0.1", "Access  read-only"]


def test_whoami_lists_rights_where_they_are_asked_for(serve: Serve, hal: Hal) -> None:
    """Below the fields, as a table."""
    who = {"user": "bob", "role": "user", "rights": {"GET /v1/jobs": "own", "POST /v1/api-tokens": "none"}}
    server = serve(lambda asked: as_json(who))
    assert hal("whoami", "--rights").out.splitlines()[2:] == [
        "OPERATION            REACH",
        "GET /v1/jobs         own",
        "POST /v1/api-tokens  none",
    ]
    assert server.asked[0].query == {"rights": "1"}


def test_a_new_token_is_on_stdout_alone(serve: Serve, hal: Hal) -> None:
    """So that `hal api-token create bob > file` keeps it; what it is restricted to is sent."""
    server = serve(lambda asked: as_json({"token": TOKEN, "secret": "hal_secret"}, 201))
    ran = hal("api-token", "create", "bob", "--queue", "a", "--queue", "b", "--expires-in", "2h", "--read-only")
    assert ran.out == "hal_secret\n"
    assert "token 0123456789ab of bob is not shown again" in ran.err
    body = server.asked[0].json
    assert (body["user"], body["role"], body["queues"], body["read_only"]) == ("bob", "user", ["a", "b"], True)
    assert body["expires_in"] == "2h"


def test_tokens_are_listed_with_their_restrictions(serve: Serve, hal: Hal) -> None:
    """One that was never used says so."""
    serve(lambda asked: as_json({"tokens": [TOKEN]}))
    head, line = hal("api-token", "list").out.splitlines()
    assert head.split("  ")[0] == "ID"
    assert "never" in line
    assert "read-only, account physics, queue short" in line


@pytest.mark.parametrize(("group", "path"), [("api-token", "/v1/api-tokens/x"), ("token", "/v1/join-tokens/x")])
def test_a_token_is_revoked_by_its_id(group: str, path: str, serve: Serve, hal: Hal) -> None:
    """One line says what it is now."""
    revoked = TOKEN | {"id": "x", "state": "revoked", "node": "", "used_by": ""}
    server = serve(lambda asked: as_json(revoked))
    ran = hal(group, "revoke", "x")
    assert (ran.code, ran.out) == (0, "x revoked\n")
    assert "x" in server.asked[0].path


def audit_log(serve: Serve) -> ScriptedServer:
    """Two entries, the newest first."""
    entry = {"at_ms": 1_700_000_000_000, "peer": "10.0.0.1", "method": "POST", "path": "/v1/jobs/cancel"}
    entries = [
        entry
        | {"sequence": 2, "user": "", "role": "", "status": 403, "refused": "no token", "times": 3, "since_ms": 1_000},
        entry
        | {
            "sequence": 1,
            "user": "bob",
            "role": "user",
            "token": "t1",
            "status": 200,
            "targets": list("123456"),
            "more": 4,
        },
    ]
    return serve(lambda asked: as_json({"entries": entries}))


def test_the_audit_log_ends_with_the_newest(serve: Serve, hal: Hal) -> None:
    """Who, from where, what, and why it was refused; of many targets the first four."""
    audit_log(serve)
    first, last = hal("audit").out.splitlines()
    assert first.endswith("bob (user) from 10.0.0.1 token t1  POST /v1/jobs/cancel  200  1 2 3 4 and 6 more")
    assert "unknown from 10.0.0.1  POST /v1/jobs/cancel  403  refused: no token  (3 of these since 1970-01-01" in last


def test_the_audit_log_is_asked_for_as_much_as_is_shown(serve: Serve, hal: Hal) -> None:
    """By user, and how many."""
    server = audit_log(serve)
    hal("audit", "--user", "bob", "-n", "20", "--since", "1h")
    query = server.asked[0].query
    assert (query["user"], query["limit"]) == ("bob", "20")
    assert int(query["since_ms"]) > 0
