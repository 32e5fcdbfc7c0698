"""Who may dial whom: every pair of roles, as the table says it and as nothing else does."""

from __future__ import annotations

import pytest

from hal.wire.roles import Role, dialler_refusal, dials, host_name, is_stranger, listener_refusal, listens

ALLOWED = {
    ("agent", "controller"),
    ("broker", "controller"),
    ("client", "controller"),
    ("service", "controller"),
    ("worker", "controller"),
    ("agent", "keeper"),
    ("client", "broker"),
    ("worker", "broker"),
    ("agent", "service"),
    ("broker", "service"),
    ("client", "service"),
    ("service", "service"),
    ("worker", "service"),
}
"""Dialler and listener."""


@pytest.mark.parametrize("dialler", Role)
@pytest.mark.parametrize("listener", Role)
def test_a_pair_of_roles_may_connect_only_if_it_is_listed(dialler: Role, listener: Role) -> None:
    """49 pairs, of which 13 may, 4 of them only to renew a certificate."""
    refusal = dialler_refusal(listener, dialler, joins=True)
    assert (refusal == "") is ((dialler, listener) in ALLOWED)
    assert refusal == "" or str(dialler) in refusal


@pytest.mark.parametrize("found", [*Role, None])
@pytest.mark.parametrize("expected", Role)
def test_a_dialler_accepts_exactly_the_role_that_it_expects(expected: Role, found: Role | None) -> None:
    """Neither another role nor none."""
    assert (listener_refusal(expected, found) == "") is (expected is found)


@pytest.mark.parametrize("listener", Role)
def test_only_a_controller_serves_strangers(listener: Role) -> None:
    """So that machines can join."""
    assert (dialler_refusal(listener, None, joins=True) == "") is (listener is Role.CONTROLLER)
    assert dialler_refusal(listener, None, joins=False)


@pytest.mark.parametrize("dialler", [*Role, None])
@pytest.mark.parametrize("listener", Role)
def test_a_controller_serves_all_but_agents_briefly(listener: Role, dialler: Role | None) -> None:
    """Those that may join, or renew a certificate."""
    brief = dialler in (None, Role.BROKER, Role.CLIENT, Role.SERVICE, Role.WORKER)
    assert is_stranger(listener, dialler) is (listener is Role.CONTROLLER and brief)


@pytest.mark.parametrize("word", ["", "Agent", "root", "agent "])
def test_a_role_that_is_none_is_refused_everywhere(word: str) -> None:
    """A certificate of a newer HAL may have one."""
    assert all(dialler_refusal(listener, word, joins=True) for listener in Role)


def test_what_a_certificate_is_good_for_follows_from_the_table() -> None:
    """To serve, to dial, or both."""
    assert [role for role in Role if listens(role)] == ["controller", "keeper", "broker", "service"]
    assert [role for role in Role if dials(role)] == ["agent", "broker", "worker", "client", "service"]
    assert host_name(Role.BROKER) == "broker.hal"
