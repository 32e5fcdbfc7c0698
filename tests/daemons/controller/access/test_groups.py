"""Groups of this machine's users: what they give, and that a slow name service holds up nobody."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from hal.core.model import DeniedError, UnreachableError
from hal.daemons.controller.access import group_cache
from hal.daemons.controller.access.authentication import Authenticator
from hal.daemons.controller.access.group_cache import GroupCache
from hal.daemons.controller.access.oidc_settings import GroupsSection
from hal.daemons.controller.access.settings import AccessSection
from hal.daemons.controller.access.step_credentials import StepCredentials
from hal.daemons.controller.access.tokens import TokenBook
from hal.rest.callers import LocalPeer
from hal.runtime.real_runtime import RealRuntime
from hal.runtime.system_groups import groups_of
from tests.runtime.real_runtime import run_real

GROUPS = GroupsSection(users=("lab",), operators=("ops",), admins=("domain admins",))


class Names:
    """A name service that the test controls."""

    def __init__(self) -> None:
        self.groups = frozenset({"lab"})
        self.asked = 0
        self.fails = False
        self.answers = threading.Event()
        self.answers.set()

    def __call__(self, user: str) -> frozenset[str]:
        self.asked += 1
        self.answers.wait(30)
        if self.fails:
            raise OSError("no answer")
        return self.groups


@pytest.mark.parametrize(
    ("user", "groups", "role"),
    [
        ("bob", {"lab"}, "user"),
        ("bob", {"lab", "domain admins"}, "admin"),
        ("bob", {"others"}, None),
        ("olga", {"lab"}, "operator"),
        ("olga", {"domain admins"}, "admin"),
    ],
)
def test_the_highest_role_of_a_name_and_its_groups_counts(user: str, groups: set[str], role: str | None) -> None:
    assert AccessSection(operators=("olga",), groups=GROUPS).role_of(user, groups) == role


def test_the_machine_knows_the_groups_of_its_users() -> None:
    assert "root" in groups_of("root")
    assert groups_of("no-such-user-here") == frozenset()


def test_a_user_is_asked_about_once_in_a_while(tmp_path: Path) -> None:
    async def body(runtime: RealRuntime) -> None:
        names = Names()
        cache = GroupCache(runtime, names)
        assert [await cache.of("bob") for _ in range(3)] == [{"lab"}] * 3
        assert names.asked == 1

    run_real(tmp_path, body)


def test_many_requests_of_one_user_ask_once(tmp_path: Path) -> None:
    async def body(runtime: RealRuntime) -> None:
        names = Names()
        cache = GroupCache(runtime, names)
        await asyncio.gather(*(cache.of("bob") for _ in range(100)))
        assert names.asked == 1

    run_real(tmp_path, body)


def test_the_last_answer_holds_while_the_name_service_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_cache, "KEEP_MS", 0)

    async def body(runtime: RealRuntime) -> None:
        names = Names()
        cache = GroupCache(runtime, names)
        await cache.of("bob")
        names.fails = True
        assert await cache.of("bob") == {"lab"}
        with pytest.raises(UnreachableError, match="'eve' cannot be looked up"):
            await cache.of("eve")

    run_real(tmp_path, body)


def test_a_slow_name_service_holds_up_those_alone_who_need_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop turns, other lanes work, and whoever waits gives up in time."""
    monkeypatch.setattr(group_cache, "ANSWER_TIMEOUT_S", 0.2)

    async def body(runtime: RealRuntime) -> None:
        names = Names()
        names.answers.clear()
        cache = GroupCache(runtime, names)
        waiting = asyncio.ensure_future(cache.of("bob"))
        assert await runtime.run_blocking(lambda: "another lane") == "another lane"
        with pytest.raises(UnreachableError, match="does not answer"):
            await waiting
        names.answers.set()

    run_real(tmp_path, body)


def at_socket(runtime: RealRuntime, names: Names, **more: bool) -> tuple[Authenticator, LocalPeer]:
    """A controller's callers, and bob at a socket for everybody."""
    made = Authenticator(
        AccessSection(groups=GROUPS),
        TokenBook(),
        owner=LocalPeer(1000, "ada", True),
        home_token="",
        now_ms=runtime.now_ms,
        used=lambda token: None,
        steps=StepCredentials(lambda: "", lambda: "", None),
        groups=GroupCache(runtime, names),
    )
    return made, LocalPeer(4711, "bob", False, **more)


def test_a_user_at_the_socket_has_the_role_of_their_groups(tmp_path: Path) -> None:
    async def body(runtime: RealRuntime) -> None:
        callers, bob = at_socket(runtime, Names())
        assert (await callers.identify({"peer": bob}, {}, None)).role == "user"

    run_real(tmp_path, body)


def test_nobody_has_a_role_by_their_groups_at_a_socket_of_steps(tmp_path: Path) -> None:
    async def body(runtime: RealRuntime) -> None:
        names = Names()
        callers, bob = at_socket(runtime, names, for_steps=True)
        with pytest.raises(DeniedError):
            await callers.identify({"peer": bob}, {}, None)
        assert names.asked == 0

    run_real(tmp_path, body)


def test_whoever_has_no_role_may_ask_for_what_is_open_to_strangers(tmp_path: Path) -> None:
    """How people log in, for example."""

    async def body(runtime: RealRuntime) -> None:
        callers, bob = at_socket(runtime, Names())
        assert callers.stranger({"peer": bob}, None).user == ""

    run_real(tmp_path, body)
