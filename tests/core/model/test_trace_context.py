"""W3C Trace Context: what is a traceparent, by the rules of its section 3.2."""

from __future__ import annotations

import pytest

from hal.core.model.trace_context import trace_id_of

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize("text", [f"00-{TRACE}-{PARENT}-01", f"00-{TRACE}-{PARENT}-00", f"cc-{TRACE}-{PARENT}-01-more"])
def test_a_valid_traceparent_gives_its_trace(text: str) -> None:
    """Also of a later version, which may add fields."""
    assert trace_id_of(text) == TRACE


@pytest.mark.parametrize(
    "text",
    [
        "",
        TRACE,
        f"00-{TRACE}-{PARENT}",
        f"00-{TRACE}-{PARENT}-1",
        f"00-{TRACE.upper()}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-01-more",
        f"00-{TRACE}-{PARENT}-01\n",
        f"00-{TRACE}-{PARENT}-01-{'x' * 300}",
    ],
)
def test_what_is_none_gives_nothing(text: str) -> None:
    """Ids of zeros, capital letters, version ff, fields that version 00 does not have."""
    assert trace_id_of(text) == ""
