"""Bodies that no client would send: each gets a problem document, never a fault, and nothing is kept."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from hal.daemons.controller.api.table import RIGHTS
from tests.daemons.controller.running import running

PARTS = {"{job}": "1", "{name}": "n1"}
"""Parts of paths that name what is there; of others nothing is."""
CHANGING = sorted(operation for operation in RIGHTS if not operation.startswith("GET "))
FIELDS = st.sampled_from(
    [
        *(
            "command",
            "script",
            "array",
            "request",
            "walltime",
            "labels",
            "env",
            "dependencies",
            "jobs",
            "ids",
            "filter",
        ),
        *("operations", "queues", "limits", "bookings", "accounts", "user", "role", "expires_in", "nodes", "reason"),
        *("priority", "max_running", "begin_at_ms", "op", "kind", "name", "entry", "expires_in", "hold"),
    ]
)
NUMBERS = st.sampled_from(
    [
        *("NaN", "Infinity", "-Infinity", "-0", "1e400", "-1e400", "1e-400", "0.1e1", "1" * 5_000, "-" + "9" * 400),
        *("9223372036854775807", "9223372036854775808", "-9223372036854775809", "1.7976931348623157e309", "01", "+1"),
    ]
)
TEXTS = st.sampled_from(
    [
        *(
            '"\\ud800"',
            '"\\udfff\\ud800"',
            '"\\u0000"',
            '"\\uD83D"',
            '"a\\u0000b"',
            '""',
            '"\\x"',
            '"' + "x" * 70_000 + '"',
        ),
        *('"../../etc"', '"%00"', '"0-999999999999"', '"0x10"', '"1" ', '"\ufeff"', '"\u202e"'),
    ]
) | st.text(max_size=20).map(json.dumps)
SCALARS = NUMBERS | TEXTS | st.sampled_from(["true", "false", "null", "nul", "{}", "[]", "[", "}", ""])


def objects(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Objects and lists as text, so that a key may stand in them twice."""
    members = st.tuples(FIELDS.map(json.dumps), inner).map(":".join)
    return st.lists(members, max_size=5).map(lambda parts: "{" + ",".join(parts) + "}") | st.lists(
        inner, max_size=4
    ).map(lambda parts: "[" + ",".join(parts) + "]")


VALUES = st.recursive(SCALARS, objects, max_leaves=12)
DEEP = st.tuples(FIELDS, st.sampled_from(["[", '{"a":', '{"any_of":[']), st.sampled_from([10, 17, 900, 5_000])).map(
    lambda parts: f'{{"{parts[0]}":' + parts[1] * parts[2]
)
CLOSED = st.tuples(FIELDS, st.sampled_from([17, 200, 990, 3_000])).map(
    lambda parts: f'{{"command":["x"],"{parts[0]}":' + "[" * parts[1] + "]" * parts[1] + "}"
)
BODIES = (objects(VALUES) | VALUES | DEEP | CLOSED).map(lambda text: text.encode("utf-8", "surrogatepass")) | st.binary(
    max_size=200
)


def test_no_body_is_answered_with_a_fault(hal_home: Path) -> None:
    """Numbers beyond bounds, no numbers, lone surrogates, doubled keys, deep nesting, bytes that are no text."""
    with asyncio.Runner() as loop:
        context = running(hal_home)
        hal = loop.run(context.__aenter__())

        @settings(max_examples=120)
        @given(st.sampled_from(CHANGING), BODIES)
        def send(operation: str, body: bytes) -> None:
            method, _, path = operation.partition(" ")
            path = re.sub(r"\{.*?\}", lambda part: PARTS.get(part[0], "x"), path)
            answer = loop.run(hal.http.request(method, path, content=body, headers={"If-Match": '"1"'}))
            assert answer.status_code < 500, (operation, body[:200], answer.text)
            if answer.status_code >= 400:
                assert answer.headers["content-type"] == "application/problem+json", (operation, body[:200])
                assert answer.json()["detail"]

        send()
        assert loop.run(hal.http.get("/v1/health")).json()["status"] == "ok"
        loop.run(context.__aexit__(None, None, None))
