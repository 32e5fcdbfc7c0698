"""What `hal login` keeps: for later commands, for its owner's eyes only, and never before what is said explicitly."""

from __future__ import annotations

from pathlib import Path

import pytest

from hal.client.address_lookup import find_address
from hal.client.addresses.login import Login, forget_login, keep_login, login_file, read_login
from hal.core.model import ConflictError, DeniedError

THERE = Login(url="http://192.0.2.1:4250", token="hal_a_b")


@pytest.fixture(autouse=True)
def nothing_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration directory of its own, and nothing in the environment that says which HAL."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("HAL_HOME", "HAL_URL", "HAL_TOKEN"):
        monkeypatch.delenv(name, raising=False)


def test_what_was_kept_is_used_until_it_is_forgotten() -> None:
    """Address and token; the file is private; after `forget_login` it is this machine's own HAL again."""
    file = keep_login(THERE)
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    address = find_address()
    assert (address.named, address.token) == ("http://192.0.2.1:4250", "hal_a_b")
    assert forget_login()
    assert find_address().home is not None
    assert not forget_login()


def test_what_is_said_explicitly_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home, a URL, and both variables; the kept token goes with the kept URL only."""
    keep_login(THERE)
    assert find_address(home=tmp_path).home is not None
    assert find_address(url="http://192.0.2.2:1").token == ""
    assert find_address(url="http://192.0.2.1:4250/").token == "hal_a_b"
    monkeypatch.setenv("HAL_TOKEN", "other")
    assert find_address().token == "other"
    monkeypatch.setenv("HAL_URL", "unix:///x")
    assert find_address().socket_path == "/x"
    monkeypatch.delenv("HAL_URL")
    monkeypatch.setenv("HAL_HOME", str(tmp_path))
    assert find_address().home is not None


def test_a_file_that_others_can_read_is_not_trusted() -> None:
    """It is refused with what to do, and so is a damaged one."""
    keep_login(THERE).chmod(0o644)
    with pytest.raises(DeniedError, match="read by others"):
        read_login()
    keep_login(THERE)
    login_file().write_text("{}")
    with pytest.raises(ConflictError, match="damaged"):
        find_address()
