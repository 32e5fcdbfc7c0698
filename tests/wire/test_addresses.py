"""Addresses and join tokens as people write them: what is read of each, and what is refused."""

from __future__ import annotations

import pytest

from hal.core.model import SpecError
from hal.wire.address import format_address, is_loopback, parse_address, parse_controllers
from hal.wire.join_token import JoinToken, read_join_token

TOKEN = JoinToken("0123abcd", "f" * 32, "A" * 43)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("head", "head", 7_422),
        (" head \n", "head", 7_422),
        ("head:1", "head", 1),
        ("head:65535", "head", 65_535),
        ("10.0.0.1:80", "10.0.0.1", 80),
        ("[fd00::1]", "fd00::1", 7_422),
        ("[fd00::1]:99", "fd00::1", 99),
        ("a" * 253, "a" * 253, 7_422),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, host: str, port: int) -> None:
    """7422 where none is given."""
    assert parse_address(text) == (host, port)


@pytest.mark.parametrize("text", ["", "head:0", "head:65536", "head:", ":80", "-head", "fd00::1", "[fd00", "a" * 254])
def test_what_is_no_address_is_refused(text: str) -> None:
    """The option is named, and how to write one."""
    with pytest.raises(SpecError, match=r"^--controller: ") as refused:
        parse_address(text)
    assert refused.value.hint == "write head.example.org:7422"


def test_another_option_is_named_where_it_is_another() -> None:
    """`field` says which."""
    with pytest.raises(SpecError, match=r"^--listen: 'a b' is not"):
        parse_address("a b", field="--listen")


@pytest.mark.parametrize(("host", "text"), [("head", "head:80"), ("fd00::1", "[fd00::1]:80")])
def test_an_address_of_ipv6_is_written_in_brackets(host: str, text: str) -> None:
    """A colon would be read as that of the port."""
    assert format_address(host, 80) == text


def test_several_controllers_are_separated_by_commas() -> None:
    """In the order given, each with its port; doubles and empty parts count for nothing."""
    assert parse_controllers("b, a:1,,b:7422,") == ("b:7422", "a:1")


@pytest.mark.parametrize("count", [1, 16])
def test_up_to_sixteen_controllers_are_read(count: int) -> None:
    """A site has fewer."""
    assert len(parse_controllers(",".join(f"c{n}" for n in range(count)))) == count


@pytest.mark.parametrize("count", [0, 17])
def test_no_controller_or_too_many_are_refused(count: int) -> None:
    """Between 1 and 16."""
    with pytest.raises(SpecError, match=rf"^--controller: {count} addresses") as refused:
        parse_controllers(",".join(f"c{n}" for n in range(count)))
    assert refused.value.hint == "between 1 and 16"


def test_a_token_is_written_in_four_parts() -> None:
    """The kind, the id, the secret, the fingerprint."""
    assert TOKEN.text == f"hal1.0123abcd.{'f' * 32}.{'A' * 43}"


def test_the_proof_of_a_token_is_its_id_and_secret() -> None:
    """The fingerprint is for whoever dials."""
    assert TOKEN.proof == f"0123abcd.{'f' * 32}"


def test_the_parts_of_a_token_are_read_where_they_stand() -> None:
    """Spaces around it come from copying."""
    assert read_join_token(f" {TOKEN.text}\n") == TOKEN


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TOKEN.text[:-1], "--join: the join token is incomplete"),
        (f" {TOKEN.text[:20]}", "--join: the join token is incomplete"),
        (TOKEN.text + "A", "--join: the join token is incomplete"),
        (TOKEN.text.replace("0123abcd", "0123ABCD"), "--join: the join token is incomplete"),
        ("hal1", "--join: this is not a join token"),
        ("xhal1.0123abcd", "--join: this is not a join token"),
    ],
)
def test_a_part_of_a_token_is_told_from_what_is_none(text: str, message: str) -> None:
    """Neither error repeats what may be a secret."""
    with pytest.raises(SpecError) as refused:
        read_join_token(text)
    assert refused.value.message == message


@pytest.mark.parametrize(
    ("host", "own"),
    [("localhost", True), ("127.0.0.1", True), ("::1", True), ("10.0.0.1", False), ("example.org", False)],
)
def test_only_this_machine_is_reached_at_a_loopback(host: str, own: bool) -> None:
    assert is_loopback(host) is own
