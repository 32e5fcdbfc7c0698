"""Addresses of nodes: how they are written, and which ones a node may state."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest

from hal.core.model import node_address
from hal.core.model.errors import SpecError
from hal.core.model.node_address import check_node_address, check_patterns, is_node_address, may_state, same_address

WRONG_NAMES = ("n1,n2", "a b", "-n1", "n1.", ".n1", "é", "a" * 254, "$(id)", "\n", "n1:22")
WRONG_NUMBERS = ("10.1.2", "10.1.2.300", "10.1.2.3:80", "fe80::1%eth0")
PATTERNS = ("10.1.0.0/16", "fd00::/8", "*.ib.example.org", "gpu7-fast")


@pytest.mark.parametrize("text", ["10.1.2.3", "fd00::7", "n1", "n1.ib.example.org", "N-1", "1a"])
def test_an_address_is_an_ip_address_or_a_host_name(text: str) -> None:
    """Of either family; a name may begin with a digit."""
    assert check_node_address(text) == text


@pytest.mark.parametrize("text", WRONG_NAMES + WRONG_NUMBERS)
def test_what_could_be_read_otherwise_is_no_address(text: str) -> None:
    """Ports, lists, zones, numbers that are no IP address: the text goes into variables of steps."""
    assert not is_node_address(text)
    with pytest.raises(SpecError, match="is not an address"):
        check_node_address(text)


@pytest.mark.parametrize("text", ["10.1.255.1", "fd12::1", "n1.ib.example.org", "N1.IB.example.org", "gpu7-fast"])
def test_an_address_within_a_pattern_may_be_stated(text: str) -> None:
    """Networks, domains, single names."""
    assert may_state(text, PATTERNS)


@pytest.mark.parametrize(
    "text", ["10.2.0.1", "::1", "ib.example.org", "evilib.example.org", "n1.ib.example.org.evil", "gpu8-fast"]
)
def test_an_address_outside_of_all_patterns_may_not(text: str) -> None:
    """Neither the domain itself nor a name that only ends like it."""
    assert not may_state(text, PATTERNS)


@pytest.mark.parametrize("pattern", ["*", "10.1.0.0/33", "*.*.org", "a,b", "10.1.*.*", "", "n1:22"])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    """With the field's name."""
    with pytest.raises(SpecError, match=r"server\.node_addresses"):
        check_patterns([pattern], "server.node_addresses")


def test_addresses_are_compared_by_what_they_mean() -> None:
    """IPv6 has many spellings, names have two cases."""
    assert same_address("fd00::7", "fd00:0:0::0007")
    assert same_address("N1", "n1")
    assert not same_address("10.0.0.1", "10.0.0.2")


def test_an_address_that_is_compared_with_many_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of a thousand nodes that dial again is compared with all others, in the controller's loop."""
    read: list[str] = []

    def counted(text: str) -> IPv4Address | IPv6Address:
        read.append(text)
        return ip_address(text)

    monkeypatch.setattr(node_address, "ip_address", counted)
    for _ in range(100):
        assert not same_address("192.0.2.77", "192.0.2.78")
    assert {text: read.count(text) for text in set(read)} == {"192.0.2.77": 2, "192.0.2.78": 2}
