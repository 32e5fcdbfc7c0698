"""What a HAL believes of an OpenID Connect provider: its tokens, its keys, and when it asks for them."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hal.core.model import HALError, SpecError, UnreachableError
from hal.daemons.controller.access import oidc_provider
from hal.daemons.controller.access.oidc_provider import OidcProvider
from hal.daemons.controller.access.oidc_settings import OidcSection
from hal.daemons.controller.access.oidc_tokens import Person
from hal.daemons.controller.config import read_config
from hal.rest.identity import UnauthorizedError
from hal.runtime.real_runtime import RealRuntime
from tests.oidc.running import Provider, running_provider
from tests.runtime.real_runtime import run_real


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


def settings_of(provider: Provider, **more: Any) -> OidcSection:
    """How a site believes it."""
    return OidcSection(issuer=provider.url, client_id="hal-cli", **more)


def believed(tmp_path: Path, provider: Provider, *tokens: str, **more: Any) -> Person:
    """Who the last of these tokens is about."""

    async def body(runtime: RealRuntime) -> Person:
        keys = OidcProvider(runtime, settings_of(provider, **more))
        people = [await keys.person(token) for token in tokens]
        return people[-1]

    return run_real(tmp_path, body)


@pytest.mark.parametrize("alg", ["RS256", "ES256", "EdDSA"])
def test_each_accepted_signature_is_verified(tmp_path: Path, provider: Provider, alg: str) -> None:
    assert believed(tmp_path, provider, provider.token(alg=alg)) == ("carol", {"lab"})


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("none", "is signed with 'none'"),
        ("hs256", "is signed with 'HS256'"),
        ("forged", "is not signed by the provider"),
        ("own-key", "has no key"),
        ("changed", "is not signed by the provider"),
        ("swapped-alg", "has no key"),
    ],
)
def test_a_forged_token_is_not_believed(tmp_path: Path, provider: Provider, kind: str, why: str) -> None:
    """No signature; the public key as a shared secret; another key under its id, or in the token; changed claims."""
    with pytest.raises(UnauthorizedError, match=why):
        believed(tmp_path, provider, provider.hostile(kind))


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"aud": "somebody-else"}, "is not for 'hal-cli'"),
        ({"aud": None}, "is not"),
        ({"aud": ["hal-cli", "other"], "azp": "other"}, "was issued to another client"),
        ({"iss": "https://evil.example"}, "is not of"),
        ({"exp": int(time.time()) - 3_600}, "has expired"),
        ({"exp": None}, "exp"),
        ({"exp": "tomorrow"}, "is not a time"),
        ({"nbf": int(time.time()) + 3_600}, "holds only later (nbf)"),
        ({"iat": int(time.time()) + 3_600}, "holds only later (iat)"),
        ({"preferred_username": None}, "no claim 'preferred_username'"),
        ({"preferred_username": "two words"}, "not a user's name"),
        ({"preferred_username": ["carol"]}, "no claim 'preferred_username'"),
        ({"groups": {"lab": True}}, "not a list"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_signed_token_that_is_not_for_this_hal_now_is_not_believed(
    tmp_path: Path, provider: Provider, claims: dict[str, Any], why: str
) -> None:
    with pytest.raises(UnauthorizedError, match=re.escape(why)):
        believed(tmp_path, provider, provider.token(**claims))


@pytest.mark.parametrize("shift", [{"iat": 30, "exp": 600}, {"exp": -30}])
def test_clocks_may_differ_a_little(tmp_path: Path, provider: Provider, shift: dict[str, int]) -> None:
    claims = {name: int(time.time()) + seconds for name, seconds in shift.items()}
    assert believed(tmp_path, provider, provider.token(**claims)).user == "carol"


def test_an_address_counts_only_if_the_provider_has_verified_it(tmp_path: Path, provider: Provider) -> None:
    token = provider.token(email="carol@lab.example")
    with pytest.raises(UnauthorizedError, match="has not verified"):
        believed(tmp_path, provider, token, user_claim="email")
    token = provider.token(email="carol@lab.example", email_verified=True)
    assert believed(tmp_path, provider, token, user_claim="email").user == "carol@lab.example"


@pytest.mark.parametrize("text", ["", "a.b", "a.b.c", "....", "e30.e30.", "é.é.é", "x" * (17 << 10)])
def test_what_is_no_token_is_not_believed(tmp_path: Path, provider: Provider, text: str) -> None:
    with pytest.raises(UnauthorizedError):
        believed(tmp_path, provider, text)


# ── keys ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_key_that_comes_late_is_found(tmp_path: Path, provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens of a new key are refused until the provider publishes it, and believed then."""
    monkeypatch.setattr(oidc_provider, "AGAIN_MS", 0)

    async def body(runtime: RealRuntime) -> None:
        keys = OidcProvider(runtime, settings_of(provider))
        await keys.person(provider.token())
        provider.control(rotate="ES256", hide=True)
        with pytest.raises(UnauthorizedError, match="has no key"):
            await keys.person(provider.token())
        provider.control(publish=True)
        assert (await keys.person(provider.token())).user == "carol"

    run_real(tmp_path, body)


def test_unknown_keys_do_not_have_the_provider_asked_again_and_again(tmp_path: Path, provider: Provider) -> None:
    async def body(runtime: RealRuntime) -> None:
        keys = OidcProvider(runtime, settings_of(provider))
        for _ in range(5):
            with pytest.raises(UnauthorizedError):
                await keys.person(provider.hostile("own-key"))
        assert provider.fetches == 1

    run_real(tmp_path, body)


@pytest.mark.parametrize(
    ("jwks", "why"),
    [
        ("huge", "is longer than"),
        pytest.param("slow", "did not answer within", marks=pytest.mark.slow),
        ("broken", "status 500"),
        ("redirect", "status 302"),
    ],
)
def test_a_provider_that_does_not_answer_as_it_should_is_said_to(
    tmp_path: Path, provider: Provider, monkeypatch: pytest.MonkeyPatch, jwks: str, why: str
) -> None:
    monkeypatch.setattr(oidc_provider, "FETCH_TIMEOUT_S", 1.0 if jwks == "slow" else 30.0)
    provider.control(set={"jwks": jwks})
    with pytest.raises(UnreachableError, match=why):
        believed(tmp_path, provider, provider.token())


@pytest.mark.slow
def test_a_provider_that_is_slow_holds_up_nobody_else(
    tmp_path: Path, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a login waits for it, the loop turns; many logins wait for one answer, and no more than a bound."""
    monkeypatch.setattr(oidc_provider, "FETCH_TIMEOUT_S", 2.0)
    monkeypatch.setattr(oidc_provider, "MAX_WAITING", 3)
    provider.control(set={"jwks": "slow"})

    async def body(runtime: RealRuntime) -> None:
        keys, token = OidcProvider(runtime, settings_of(provider)), provider.token()
        logins = [asyncio.ensure_future(keys.person(token)) for _ in range(5)]
        while not await asyncio.to_thread(lambda: provider.fetches):
            await runtime.sleep(1)
        answers = await asyncio.gather(*logins, return_exceptions=True)
        assert (
            sorted(one.code for one in answers if isinstance(one, HALError)) == ["overloaded"] * 2 + ["unreachable"] * 3
        )
        assert await asyncio.to_thread(lambda: provider.fetches) == 1

    run_real(tmp_path, body)


def test_known_keys_are_relied_on_while_the_provider_is_away(
    tmp_path: Path, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oidc_provider, "FRESH_MS", 0)
    monkeypatch.setattr(oidc_provider, "AGAIN_MS", 0)

    async def body(runtime: RealRuntime) -> None:
        keys = OidcProvider(runtime, settings_of(provider))
        await keys.person(provider.token())
        provider.control(set={"jwks": "broken"})
        assert (await keys.person(provider.token())).user == "carol"

    run_real(tmp_path, body)


@pytest.mark.parametrize(
    ("toml", "why"),
    [
        ('client_id = "hal"', "issuer: is missing"),
        ('issuer = "http://login.example.org"\nclient_id = "hal"', "not an https"),
        ('issuer = "https://user:pw@login.example.org"\nclient_id = "hal"', "not an https"),
        ('issuer = "https://login.example.org"', "client_id: is empty"),
        ('issuer = "https://login.example.org"\nclient_id = "hal"\nskew = "1h"', "skew: out of range"),
        ('issuer = "https://login.example.org"\nclient_id = "hal"\ntoken_life = "1s"', "token_life: out of range"),
        ('issuer = "https://login.example.org"\nclient_id = "hal"\nadmins = ["*"]', "stands for nobody"),
    ],
)
def test_settings_that_make_no_sense_are_named(toml: str, why: str) -> None:
    with pytest.raises(SpecError, match=re.escape(why)):
        read_config(f"[access.oidc]\n{toml}\n")
