"""Logins by an OpenID Connect provider, at a running controller: whom it believes, and what they get."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from hal.daemons.controller.config import read_config
from tests.daemons.controller.access.people import with_secret
from tests.daemons.controller.running import Running, on_controller
from tests.oidc.running import Provider, running_provider

LAB: str = '[access.groups]\nusers = ["lab"]\noperators = ["ops"]\nadmins = ["wheel"]\n'


@pytest.fixture(scope="module")
def process() -> Iterator[Provider]:
    """One for all tests here."""
    with running_provider() as one:
        yield one


@pytest.fixture
def provider(process: Provider) -> Provider:
    """As it should be, until the test says otherwise."""
    process.control(reset=True)
    return process


class Site:
    """A controller that believes the provider."""

    def __init__(self, hal: Running, provider: Provider) -> None:
        self.hal = hal
        self.provider = provider

    async def log_in(self, token: str) -> httpx.Response:
        """What a stranger gets for a token of the provider."""
        async with with_secret(self.hal, "") as http:
            return await http.post("/v1/login", json={"token": token})

    async def enter(self, **claims: Any) -> httpx.Response:
        """The same for a good token with these claims."""
        return await self.log_in(await asyncio.to_thread(lambda: self.provider.token(**claims)))

    async def role(self, **claims: Any) -> str:
        """The role that these claims give; '' for none."""
        answer = await self.enter(**claims)
        return str(answer.json()["token"]["role"]) if answer.status_code == 201 else ""


def at_site(
    root: Path, provider: Provider, test: Callable[[Site], Awaitable[None]], toml: str = "", groups: str = LAB
) -> None:
    """Run a test's body at a site of its own."""

    async def body(hal: Running) -> None:
        await test(Site(hal, provider))

    on_controller(root, body, read_config(provider.section(toml) + groups))


def test_a_person_gets_a_token_of_hal_for_one_of_the_provider(hal_home: Path, provider: Provider) -> None:
    async def body(site: Site) -> None:
        made = (await site.enter()).json()
        async with with_secret(site.hal, made["secret"]) as carol:
            who = (await carol.get("/v1/whoami")).json()
        assert (who["user"], who["role"], who["token"]) == ("carol", "user", made["token"]["id"])

    at_site(hal_home, provider, body)


# ── who they are ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("claims", "role"),
    [
        ({"groups": ["lab"]}, "user"),
        ({"groups": ["lab", "wheel", "ops"]}, "admin"),
        ({"groups": "ops"}, "operator"),
        ({"groups": ["others"]}, ""),
        ({"groups": None}, ""),
        ({"preferred_username": "dora", "groups": []}, "operator"),
        ({"preferred_username": "root", "groups": ["wheel"]}, ""),
    ],
)
def test_roles_follow_from_groups_and_names(
    hal_home: Path, provider: Provider, claims: dict[str, Any], role: str
) -> None:
    """The highest counts; the account that runs HAL is nobody's who comes from elsewhere."""

    async def body(site: Site) -> None:
        assert await site.role(**claims) == role

    at_site(hal_home, provider, body, 'operators = ["dora"]')


def test_prefixes_keep_people_apart_from_the_machines_users_and_groups(hal_home: Path, provider: Provider) -> None:
    async def body(site: Site) -> None:
        made = (await site.enter(preferred_username="root", groups=["lab"])).json()
        assert (made["token"]["user"], made["token"]["role"]) == ("oidc:root", "user")
        assert await site.role(groups=["wheel"]) == ""

    toml = 'user_prefix = "oidc:"\ngroups_prefix = "oidc:"'
    at_site(hal_home, provider, body, toml, '[access.groups]\nusers = ["oidc:lab"]\nadmins = ["wheel"]\n')


def test_without_a_claim_the_groups_of_the_system_count(hal_home: Path, provider: Provider) -> None:
    """`daemon` is a user of every machine, in a group of that name."""

    async def body(site: Site) -> None:
        assert await site.role(preferred_username="daemon", groups=["wheel"]) == "operator"
        assert await site.role(preferred_username="nobody-of-that-name", groups=["wheel"]) == ""

    at_site(
        hal_home, provider, body, 'groups_claim = ""', '[access.groups]\noperators = ["daemon"]\nadmins=["wheel"]\n'
    )


# ── the token ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_token_lives_as_long_as_the_site_says_and_ends_with_a_logout(hal_home: Path, provider: Provider) -> None:
    async def body(site: Site) -> None:
        made = (await site.enter()).json()
        assert made["token"]["expires_ms"] - made["token"]["created_ms"] == 600_000
        async with with_secret(site.hal, made["secret"]) as carol:
            assert (await carol.post("/v1/logout")).json()["state"] == "revoked"
            assert (await carol.get("/v1/whoami")).status_code == 401

    at_site(hal_home, provider, body, 'token_life = "10m"')


def test_a_person_has_a_bounded_number_of_logins(
    hal_home: Path, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest ends."""
    monkeypatch.setattr("hal.daemons.controller.service.access.tokens.MAX_LOGINS_OF_ONE", 2)

    async def body(site: Site) -> None:
        made = [(await site.enter()).json()["secret"] for _ in range(3)]
        statuses = []
        for secret in made:
            async with with_secret(site.hal, secret) as carol:
                statuses.append((await carol.get("/v1/whoami")).status_code)
        assert statuses == [401, 200, 200]

    at_site(hal_home, provider, body)


def test_an_api_token_is_not_ended_by_a_logout(hal_home: Path, provider: Provider) -> None:
    async def body(site: Site) -> None:
        assert (await site.hal.http.post("/v1/logout")).status_code == 409

    at_site(hal_home, provider, body)


def test_a_hal_without_a_provider_says_so(hal_home: Path) -> None:
    async def body(hal: Running) -> None:
        async with with_secret(hal, "") as http:
            assert (await http.get("/v1/login")).status_code == 404
            assert (await http.post("/v1/login", json={"token": "x"})).status_code == 404

    on_controller(hal_home, body)


def test_a_stranger_sends_no_long_body(hal_home: Path, provider: Provider) -> None:
    async def body(site: Site) -> None:
        assert (await site.log_in("x" * (40 << 10))).status_code == 413

    at_site(hal_home, provider, body)
