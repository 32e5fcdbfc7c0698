"""Who a step is at each socket: its user where the kernel says so, else its token speaks for its job alone."""

from __future__ import annotations

import pytest

from hal.core.model import DeniedError
from hal.daemons.controller.access.authentication import Authenticator
from hal.daemons.controller.access.settings import AccessSection
from hal.daemons.controller.access.tokens import TokenBook
from hal.rest.callers import LocalPeer
from hal.rest.rights import Role
from tests.daemons.controller.access.test_step_credentials import ALICE, ATTEMPT, GOOD, credentials

OWNER = LocalPeer(1_000, "hal", True)
SHOWN = {b"authorization": f"Bearer {GOOD}".encode()}


def authenticator(**access: tuple[str, ...]) -> Authenticator:
    """One of a HAL of `hal`, at which a step of job 12 of alice's lives."""
    return Authenticator(
        AccessSection(**access),
        TokenBook(),
        owner=OWNER,
        home_token="",
        now_ms=lambda: 0,
        used=lambda token: None,
        steps=credentials(ALICE),
    )


@pytest.mark.parametrize(
    ("peer", "headers", "only_job"),
    [
        (LocalPeer(1_000, "hal", True), SHOWN, 0),
        (LocalPeer(1_000, "hal", True, ATTEMPT), {}, 0),
        (LocalPeer(0, "root", True, ATTEMPT), {}, 0),
        (LocalPeer(1_001, "alice", False, "", True), SHOWN, 0),
        (LocalPeer(1_002, "bob", False, "", True), SHOWN, 12),
        (LocalPeer(1_002, "bob", False), SHOWN, 12),
    ],
)
def test_a_step_speaks_for_its_user_only_if_the_kernel_says_who_that_is(
    peer: LocalPeer, headers: dict[bytes, bytes], only_job: int
) -> None:
    """The owner's process is trusted to be a step's that runs as the owner; another user's only with the token."""
    who = authenticator().local(peer, headers)
    assert (who.user, who.role, who.only_job) == ("alice", Role.USER, only_job)


def test_over_tcp_it_speaks_for_its_job_alone() -> None:
    """Nobody says whose process has sent it."""
    who = authenticator().remote(SHOWN, "192.0.2.7")
    assert (who.user, who.only_job) == ("alice", 12)


def test_at_the_socket_for_steps_nobody_else_has_a_role() -> None:
    """Not even whom hal.toml names."""
    with pytest.raises(DeniedError, match="has no role"):
        authenticator(users=("*",), admins=("bob",)).local(LocalPeer(1_002, "bob", False, "", True), {})
