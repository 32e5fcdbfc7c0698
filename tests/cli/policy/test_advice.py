"""`hal advice`: tables of numbers from files, and what is shown of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Ran, Serve
from tests.client.scripted_server import Asked, Reply, as_json

Hal = Callable[..., Ran]
HELD = {
    "kind": "price", "space": "nodes", "version": 7, "count": 2, "known": 1, "user": "ada", "updated_ms": 1_000,
    "age_ms": 90_000, "expires_ms": 691_000, "read_by": ["cheapest"],
}  # fmt: skip
PUT = ("advice", "put", "price")


def put_answer(**more: Any) -> Callable[[Asked], Reply]:
    return lambda asked: as_json({"applied": True, "advice": HELD} | more)


def test_kinds_are_listed_with_age_and_expiry(serve: Serve, hal: Hal) -> None:
    """Put 1:30 ago for 10 minutes more."""
    serve(lambda asked: as_json({"advice": [HELD]}))
    assert [line.split() for line in hal("advice", "list").out.splitlines()] == [
        ["KIND", "SPACE", "KEYS", "KNOWN", "VERSION", "AGE", "EXPIRES", "IN", "USER", "READ", "BY"],
        ["price", "nodes", "2", "1", "7", "1:30", "10:00", "ada", "cheapest"],
    ]


def test_no_advice_says_what_to_do(serve: Serve, hal: Hal) -> None:
    """On stderr."""
    serve(lambda asked: as_json({"advice": []}))
    ran = hal("advice", "list")
    assert (ran.out, "hal advice put KIND FILE" in ran.err) == ("", True)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "node,price\nn1,0.5\nn2,\n"),
        ("a.csv", "n1, 0.5\n\nn2,\n"),
        ("a.json", '{"n1": 0.5, "n2": null}'),
        ("a.json", '{"advice": {}, "keys": ["n1", "n2"], "values": [0.5, null]}'),
    ],
)
def test_a_table_is_read_from_a_file(name: str, text: str, tmp_path: Path, serve: Serve, hal: Hal) -> None:
    """CSV with and without a heading, an object, and what `hal advice show --json` printed."""
    file = tmp_path / name
    file.write_text(text)
    server = serve(put_answer())
    options = ("--space", "nodes", "--delta", "--version", "7", "--base", "6", "--expires-in", "10m")
    ran = hal(*PUT, str(file), *options)
    assert (ran.code, ran.out) == (0, "price version 7: 2 keys\n")
    (asked,) = server.asked
    assert (asked.method, asked.path) == ("PUT", "/v1/advice/price")
    assert json.loads(asked.body) == {
        "space": "nodes", "keys": ["n1", "n2"], "values": [0.5, None], "delta": True, "version": 7, "base": 6,
        "expires_in": "10m",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("n1,0.5\nn2,cheap\n", "line 2: 'cheap' is not a number"),
        ("n1,0.5,EUR\n", "line 1: 3 columns"),
        ("n1,0.5\nn1,0.6\n", "key 'n1' is there twice"),
        ('{"n1": "cheap"}', "the value of 'n1' is not a number"),
        ('{"n1": true}', "the value of 'n1' is not a number"),
        ("[1, 2]", "an object of keys and numbers is expected"),
        ('{"n1": ', "is not JSON"),
        ('{"keys": ["n1"], "values": []}', "1 keys, but 0 values"),
    ],
)
def test_a_file_that_is_no_table_is_refused(text: str, says: str, tmp_path: Path, serve: Serve, hal: Hal) -> None:
    """Before anything is sent."""
    file = tmp_path / "table"
    file.write_text(text)
    server = serve(put_answer())
    ran = hal(*PUT, str(file), "--space", "nodes")
    assert (ran.code, says in ran.err, list(server.asked)) == (2, True, [])


def test_a_version_that_was_held_already_is_no_error(tmp_path: Path, serve: Serve, hal: Hal) -> None:
    """It says so."""
    (tmp_path / "a.csv").write_text("n1,0.5\n")
    serve(put_answer(applied=False))
    ran = hal(*PUT, str(tmp_path / "a.csv"), "--space", "nodes", "--version", "7")
    assert (ran.code, "was held already" in ran.err) == (0, True)


def test_all_pages_are_shown(serve: Serve, hal: Hal) -> None:
    """Two pages of one key each."""

    def answer(asked: Asked) -> Reply:
        last = "cursor" in asked.query
        page = {"keys": ["n2"], "values": [0.25]} if last else {"keys": ["n1"], "values": [0.5], "cursor": "1"}
        return as_json({"advice": HELD, **page})

    serve(answer)
    assert hal("advice", "show", "price").out.split() == ["NODE", "VALUE", "n1", "0.5", "n2", "0.25"]
    shown = json.loads(hal("advice", "show", "price", "--json").out)
    assert (shown["keys"], shown["values"]) == (["n1", "n2"], [0.5, 0.25])


def test_kinds_are_removed(serve: Serve, hal: Hal) -> None:
    """Each once."""
    server = serve(lambda asked: as_json(HELD))
    assert hal("advice", "rm", "price", "price").out == "price removed\n"
    assert [(asked.method, asked.path) for asked in server.asked] == [("DELETE", "/v1/advice/price")]
