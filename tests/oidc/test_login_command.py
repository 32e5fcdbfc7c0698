"""`hal login` with the device flow, end to end: a real provider, a real HAL, the file that is kept."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hal.client.addresses.login import Login, keep_login, login_file, read_login
from hal.client.login_renewal import is_due, renewed
from hal.client.oidc import begin, find_provider, refresh, wait_for_consent
from hal.core.model import DeniedError, TimedOutError
from tests.e2e.conftest import LiveHal, Ran, new_home
from tests.oidc.running import Provider, running_provider

GROUPS = '[access.groups]\nusers = ["lab"]\n'


class Laptop:
    """Carol's machine: a directory of its own for what `hal login` keeps."""

    def __init__(self, live: LiveHal, url: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.url = url
        self._live = live
        self._config = directory
        monkeypatch.setenv("XDG_CONFIG_HOME", str(directory))  # for what this process reads of it

    def hal(self, *args: object) -> Ran:
        """`hal ARGS` there."""
        return self._live.run(*args, HAL_HOME="", XDG_CONFIG_HOME=str(self._config))

    def kept(self) -> Login:
        """What is kept there."""
        login = read_login()
        assert login is not None
        return login


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    """One for all tests here."""
    with running_provider() as one:
        yield one


@pytest.fixture(scope="module")
def site(provider: Provider) -> Iterator[tuple[LiveHal, str]]:
    """A HAL that believes it, and where it is."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    live = LiveHal(new_home())
    live.root.mkdir(exist_ok=True)
    (live.root / "hal.toml").write_text(provider.section() + GROUPS)
    try:
        yield live.up("--tcp", port), f"http://127.0.0.1:{port}"
    finally:
        live.remove()


@pytest.fixture
def laptop(site: tuple[LiveHal, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laptop:
    return Laptop(*site, tmp_path, monkeypatch)


@pytest.mark.slow
def test_a_person_logs_in_in_a_browser_and_out_again(laptop: Laptop, provider: Provider) -> None:
    provider.control(set={"agreed": None})
    done = laptop.hal("login", "--browser", laptop.url)
    assert done.code == 0, done.err
    assert "enter the code WDJB-MJHT" in done.err
    assert "as carol (user)" in done.err
    assert login_file().stat().st_mode & 0o777 == 0o600
    assert json.loads(laptop.hal("whoami", "--json").out)["user"] == "carol"
    token, revoked = laptop.kept().token, provider.control()["revoked"]
    assert laptop.hal("logout").code == 0
    assert not login_file().exists()
    assert provider.control()["revoked"] == revoked + 1
    gone = laptop.hal("whoami", "--url", laptop.url)
    assert gone.code == 4
    assert laptop._live.run("whoami", "--url", laptop.url, HAL_TOKEN=token).code == 4


@pytest.mark.slow
def test_a_login_is_renewed_before_its_end_while_the_provider_agrees(laptop: Laptop, provider: Provider) -> None:
    """By whichever command comes next; several at once renew it once."""
    assert laptop.hal("login", "--browser", laptop.url).code == 0
    first = laptop.kept()
    keep_login(replace(first, renew_ms=1))
    assert laptop.hal("whoami").code == 0
    second = laptop.kept()
    assert second.token != first.token
    assert second.refresh != first.refresh
    provider.control(forget=True)
    keep_login(replace(second, renew_ms=1))
    assert laptop.hal("whoami").code == 0, "the token lives on"
    keep_login(replace(second, renew_ms=1, expires_ms=1))
    ended = laptop.hal("whoami")
    assert ended.code == 4
    assert "log in again: hal login" in ended.err
    assert "the session has ended" in ended.err


@pytest.mark.slow
def test_who_refuses_or_has_no_role_is_not_logged_in(laptop: Laptop, provider: Provider) -> None:
    provider.control(set={"agreed": False})
    refused = laptop.hal("login", "--browser", laptop.url)
    assert (refused.code, "carol said no" in refused.err) == (4, True)
    provider.control(set={"agreed": True, "claims": {"preferred_username": "eve", "groups": ["others"]}})
    nobody = laptop.hal("login", "--browser", laptop.url)
    assert (nobody.code, "'eve' has no role" in nobody.err) == (4, True)
    provider.control(set={"claims": {"preferred_username": "carol", "groups": ["lab"]}})
    assert not login_file().exists()


# ── the client's side alone ───────────────────────────────────────────────────────────────────────────────────────


def test_the_client_waits_between_its_questions_and_slows_down(provider: Provider) -> None:
    waits: list[float] = []
    provider.control(set={"agreed": None})
    there = find_provider(provider.url, "hal-cli", "id_token")
    granted = wait_for_consent(there, begin(there, ("openid",)), sleep=waits.append)
    assert waits == [1, 1]
    assert granted.token.count(".") == 2


def test_nobody_answers_in_time(provider: Provider) -> None:
    there = find_provider(provider.url, "hal-cli", "id_token")
    asked = begin(there, ("openid",))
    with pytest.raises(TimedOutError, match="nobody confirmed"):
        wait_for_consent(there, replace(asked, expires_s=0), sleep=lambda _: None)


def test_a_refresh_token_is_good_once(provider: Provider) -> None:
    there = find_provider(provider.url, "hal-cli", "id_token")
    first = wait_for_consent(there, begin(there, ("openid",)), sleep=lambda _: None)
    second = refresh(there, first.refresh)
    assert second.refresh != first.refresh
    with pytest.raises(DeniedError, match="the session has ended"):
        refresh(there, first.refresh)


@pytest.mark.parametrize("issuer", ["http://login.example.org", "ftp://127.0.0.1/", "https://", "nonsense"])
def test_the_client_asks_nobody_whom_others_can_overhear(issuer: str) -> None:
    with pytest.raises(DeniedError, match="no safe URL"):
        find_provider(issuer, "hal-cli", "id_token")


def test_a_provider_of_another_name_is_not_believed(provider: Provider) -> None:
    with pytest.raises(DeniedError, match="does not say that it is"):
        find_provider(provider.url.replace("127.0.0.1", "localhost"), "hal-cli", "id_token")


def test_a_login_by_token_is_never_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    login = Login(url="http://127.0.0.1:1", token="hal_x_y")
    assert not is_due(login, 1 << 60)
    assert renewed(login) is login
    assert os.listdir(tmp_path) == []
