"""Parameters of requests: each mistake is refused with the parameter's name and a hint."""

from __future__ import annotations

from typing import Any

import pytest
from litestar import Request

from hal.core.model import SpecError, TaskState
from hal.daemons.controller.api.requests import parameters as bounds
from hal.daemons.controller.api.requests.parameters import Params, integer, job_filter, job_id, key_of, states_of
from hal.rest.identity import Identity
from hal.rest.rights import Role

ALICE = Identity(user="alice", role=Role.USER)


def request(query: str = "", *, method: str = "GET", headers: dict[str, str] | None = None) -> Request[Any, Any, Any]:
    scope: Any = {
        "type": "http",
        "method": method,
        "path": "/v1/jobs",
        "query_string": query.encode(),
        "root_path": "",
        "server": ("hal", 80),
        "scheme": "http",
        "headers": [(name.encode(), value.encode()) for name, value in (headers or {}).items()],
    }
    return Request(scope)


def params(query: str, *known: str) -> Params:
    return Params(request(query), known)


def test_an_unknown_parameter_is_refused_with_the_nearest_one() -> None:
    """And with all there are where none is near."""
    with pytest.raises(SpecError, match="'limt' is not a query parameter") as caught:
        params("limt=1", "limit", "cursor")
    assert caught.value.hint == "did you mean 'limit'?"
    with pytest.raises(SpecError) as caught:
        params("zzz=1", "limit", "cursor")
    assert caught.value.hint == "known: limit, cursor"
    with pytest.raises(SpecError) as caught:
        params("zzz=1")
    assert caught.value.hint == "known: none"


def test_only_state_and_label_may_be_given_twice() -> None:
    """They become one comma list."""
    assert params("state=held&state=pending", "state").states() == (TaskState.HELD, TaskState.PENDING)
    with pytest.raises(SpecError, match="user: given twice"):
        params("user=a&user=b", "user")


def test_a_value_has_1000_characters_and_no_more() -> None:
    """Also where several values were joined."""
    assert params(f"user={'a' * bounds.MAX_TEXT}", "user").text("user") == "a" * 1_000
    with pytest.raises(SpecError, match="longer than 1000"):
        params(f"user={'a' * (bounds.MAX_TEXT + 1)}", "user")
    with pytest.raises(SpecError, match="longer than 1000"):
        params(f"state={'a' * 600}&state={'a' * 600}", "state")


@pytest.mark.parametrize("text", ["", "1.0", "+1", " 1", "-01", "٣", "1" * 20, "1_000", "0x1"])
def test_what_is_no_whole_number_is_refused(text: str) -> None:
    """ASCII digits, at most 19 of them, a minus in front."""
    with pytest.raises(SpecError, match="limit: "):
        integer(text, "limit", low=-(1 << 62), high=1 << 62)


def test_a_number_lies_within_its_bounds_both_included() -> None:
    """1 and 1,000 are entries of a page; 0 and 1,001 are not, and the hint says so."""
    for text in ("1", "1000"):
        assert params(f"limit={text}", "limit").limit() == int(text)
    for text in ("0", "1001"):
        with pytest.raises(SpecError, match=f"limit: {text} is out of range") as caught:
            params(f"limit={text}", "limit").limit()
        assert caught.value.hint == "between 1 and 1000"
    assert params("", "limit").limit() == bounds.DEFAULT_PAGE


@pytest.mark.parametrize("text", ["nan", "inf", "1e9", "-1", "1s", "1,5", "1" * 20])
def test_seconds_are_a_number_from_0_to_below_a_billion(text: str) -> None:
    """Nothing that Python's float would take beside that."""
    with pytest.raises(SpecError, match="timeout_s: "):
        params(f"timeout_s={text}", "timeout_s").seconds("timeout_s", 1.0)


@pytest.mark.parametrize(("text", "seconds"), [("0", 0.0), ("1.5", 1.5), (".5", 0.5), ("1e2", 100.0), ("2.", 2.0)])
def test_seconds_may_have_a_fraction_or_an_exponent(text: str, seconds: float) -> None:
    """As people write them."""
    assert params(f"timeout_s={text}", "timeout_s").seconds("timeout_s", 9.0) == seconds


@pytest.mark.parametrize(
    ("query", "value"),
    [
        ("", False),
        ("follow", True),
        ("follow=1", True),
        ("follow=TRUE", True),
        ("follow=yes", True),
        ("follow=0", False),
    ],
)
def test_a_flag_is_true_when_it_stands_there(query: str, value: bool) -> None:
    """The bare name, 1, true, yes; 0, false, no; left out: false."""
    assert params(query, "follow").flag("follow") is value


def test_a_flag_that_is_neither_is_refused() -> None:
    """It is not taken for true."""
    with pytest.raises(SpecError, match="follow: 'maybe' is neither true nor false"):
        params("follow=maybe", "follow").flag("follow")


def test_groups_of_states_stand_for_their_members_once() -> None:
    """`ended,failed` has `failed` once; ends and live states are all there are."""
    ended = states_of("ended,failed")
    assert len(ended) == len(set(ended)) == 4
    assert set(states_of("live")) | set(ended) == set(TaskState)
    with pytest.raises(SpecError, match="state: 'done' is not a state"):
        states_of("running,done")


def test_a_filter_has_labels_with_and_without_a_value() -> None:
    """`key` matches any value; spaces around do not count."""
    assert job_filter({"label": "team=blue, night"}).labels == {"team": "blue", "night": ""}


def test_a_path_about_a_job_takes_no_task() -> None:
    """The hint names the job."""
    assert job_id("42") == 42
    with pytest.raises(SpecError, match=r"'42\.7' names a task") as caught:
        job_id("42.7")
    assert caught.value.hint == "write 42"


def test_a_key_says_for_which_request_it_is() -> None:
    """Another body or parameter is another request; equal ones have equal fingerprints; users have their own."""

    def key(body: bytes = b"{}", query: str = "", who: Identity = ALICE) -> Any:
        return key_of(request(query, method="POST", headers={"idempotency-key": "k"}), body, who)

    assert key() == key()
    assert len({key().fingerprint, key(b"[]").fingerprint, key(query="dry_run=1").fingerprint}) == 3
    assert key().name != key(who=Identity(user="bob", role=Role.USER)).name
    assert key(who=Identity(user="root", role=Role.ADMIN, inside=True)).name == "k"
    assert key_of(request(), b"", ALICE) is None


@pytest.mark.parametrize("text", ["", "a" * (bounds.MAX_KEY_CHARS + 1), "a\tb", "é"])
def test_a_key_is_printable_ascii_and_not_too_long(text: str) -> None:
    """1 to 200 characters."""
    with pytest.raises(SpecError, match="Idempotency-Key"):
        key_of(request(headers={"idempotency-key": text}), b"", ALICE)
