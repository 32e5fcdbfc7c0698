"""`hal security check`: each weakness that is planted in a home is found, with what mends it; a sound home has none."""

from __future__ import annotations

import json
import os
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hal.cli.local.site_security import Severity, check_certificates, check_listeners
from hal.runtime.authority import open_authority
from hal.runtime.home import Home
from hal.runtime.listening import listening_at
from tests.cli.conftest import Ran, Serve
from tests.client.scripted_server import as_json

Hal = Callable[..., Ran]
NOBODY = 65_534
DAY_MS = 86_400_000
NOW_MS = 1_700_000_000_000

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")


@pytest.fixture
def home(hal_home: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A sound home, as a HAL that was stopped leaves it."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(hal_home / "config"))
    monkeypatch.delenv("HAL_RUN_AS_OWNER", raising=False)
    made = Home(hal_home)
    made.create()
    made.token_text()
    os.close(os.open(made.database, os.O_CREAT, 0o600))
    (made.log_dir / "audit").mkdir(mode=0o700)
    made.config.write_text("[audit]\nsyslog = true\n")
    made.config.chmod(0o644)
    return made


def found(hal: Hal) -> dict[str, Any]:
    """What is reported, for programs."""
    report: dict[str, Any] = json.loads(hal("security", "check", "--json").out)
    return report


def test_a_sound_home_has_no_findings(home: Home, hal: Hal) -> None:
    """Exit code 0; that tokens were not looked at is said."""
    ran = hal("security", "check")
    assert (ran.code, ran.out.splitlines()[0]) == (0, f"{home.root}: nothing found")
    assert "not seen: API tokens: HAL does not run" in ran.out


def open_up(path: Path) -> None:
    """Let others read it."""
    path.chmod(path.stat().st_mode | 0o044)


def link_in_place(path: Path) -> None:
    """Somebody's link in place of the file."""
    path.unlink()
    path.symlink_to("/dev/null")


def settings(text: str) -> Callable[[Home], object]:
    """Write hal.toml."""
    return lambda home: home.config.write_text("[audit]\nsyslog = true\n" + text)


@pytest.mark.parametrize(
    ("plant", "severity", "words"),
    [
        (lambda home: open_up(home.token), "serious", "token is open to others: mode 0644"),
        (lambda home: open_up(home.database), "serious", "hal.sqlite is open to others"),
        (lambda home: open_up(home.root), "serious", "is open to others: mode 0744"),
        (lambda home: open_up(home.log_dir), "serious", "log is open to others"),
        (lambda home: link_in_place(home.token), "serious", "token is a symbolic link"),
        (lambda home: home.config.chmod(0o666), "serious", "others may write to"),
        (settings("[access]\nrun_as_owner = true\n"), "serious", "run_as_owner is on"),
        (settings('[server]\ntcp = "0.0.0.0:4250"\nplain_tcp = true\n'), "serious", "REST at 0.0.0.0:4250 is not"),
        (settings('[server]\ntcp = "127.0.0.1:4250"\nplain_tcp = true\n'), "note", "REST at 127.0.0.1:4250 is not"),
        (settings('[store]\nurl = "postgresql://hal:hunter2@db/hal"\n'), "serious", "has the password of the database"),
        (settings("[access]\nmax_token_days = 3000\n"), "note", "valid for 3000 days"),
        (
            settings('[access]\nsocket = "/run/hal-x/api.sock"\nadmins = ["nobody-of-that-name"]\n'),
            "warning",
            "access.admins names nobody-of-that-name",
        ),
        (lambda home: home.config.write_text(""), "note", "audit.syslog is off"),
    ],
)
def test_a_weakness_is_found_with_what_could_happen_and_what_mends_it(
    home: Home, hal: Hal, plant: Callable[[Home], object], severity: str, words: str
) -> None:
    """One each; nothing secret is printed; exit code 1 where it is serious."""
    plant(home)
    secret = home.token.read_text().strip() or "x" * 64
    ran = hal("security", "check", "--json")
    (finding,) = [one for one in json.loads(ran.out)["findings"] if words in one["what"]]
    assert finding["severity"] == severity
    assert finding["risk"]
    assert finding["mend"]
    assert ran.code == (1 if severity == "serious" else 0)
    assert "hunter2" not in ran.out + ran.err
    assert secret not in ran.out


def test_the_command_that_mends_a_mode_mends_it(home: Home, hal: Hal) -> None:
    """It is run as it is printed; afterwards there is no finding."""
    home.token.chmod(0o666)
    (finding,) = found(hal)["findings"]
    assert os.system(finding["mend"]) == 0
    assert stat.S_IMODE(home.token.stat().st_mode) == 0o600
    assert found(hal)["findings"] == []


def test_nothing_is_changed_by_looking(home: Home, hal: Hal) -> None:
    """Modes, times of change and contents of everything are as before."""
    open_up(home.token)

    def state() -> list[tuple[str, int, int]]:
        paths = sorted(home.root.rglob("*"))
        return [(str(path), path.lstat().st_mode, path.lstat().st_mtime_ns) for path in paths]

    before = state()
    hal("security", "check")
    assert state() == before


@as_root
@pytest.mark.parametrize("name", ["token", "db", "authority"])
def test_what_belongs_to_another_user_is_found(home: Home, hal: Hal, name: str) -> None:
    """A file, a directory."""
    home.authority.mkdir(mode=0o700)
    os.chown(home.root / name, NOBODY, NOBODY)
    ran = hal("security", "check", "--json")
    assert any(f"{name} belongs to nobody" in one["what"] for one in json.loads(ran.out)["findings"])
    assert ran.code == 1


@as_root
def test_a_directory_of_somebody_else_above_the_home_is_found(
    home: Home, hal: Hal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may rename what is in it."""
    above = tmp_path / "theirs"
    above.mkdir()
    home.root.rename(above / "home")
    os.chown(above, NOBODY, NOBODY)
    monkeypatch.setenv("HAL_HOME", str(above / "home"))
    assert any("above HAL_HOME, belongs to nobody" in one["what"] for one in found(hal)["findings"])
    (above / "home").rename(home.root)


@contextmanager
def somebody_else() -> Iterator[None]:
    """This process without root's rights."""
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


@as_root
def test_a_stranger_on_the_machine_is_told_what_cannot_be_seen(home: Home, hal: Hal) -> None:
    """No findings, no contents, no traceback: each place that may not be looked at, and exit code 4."""
    home.token.chmod(0o666)
    hal("security", "check")  # modules are loaded while they can be
    with somebody_else():
        ran = hal("security", "check")
    assert ran.code == 4
    assert f"not seen: {home.token}: you may not look there" in ran.out
    assert "open to others" not in ran.out
    assert "run this as the user who started HAL, or as root" in ran.err


def test_tokens_and_people_of_a_running_hal_are_looked_at(home: Home, serve: Serve, hal: Hal) -> None:
    """An admin's token that was never used, one that was not used for long; who has which role, by which rule."""
    token = {
        "id": "a1",
        "user": "eve",
        "role": "admin",
        "state": "live",
        "created_ms": NOW_MS,
        "expires_ms": NOW_MS + 30 * DAY_MS,
        "used_ms": None,
        "accounts": [],
        "queues": [],
    }
    idle = token | {"id": "b2", "role": "operator", "used_ms": NOW_MS}
    gone = token | {"id": "c3", "state": "revoked"}
    serve(lambda asked: as_json({"tokens": [token, idle, gone]}))
    home.controller_pid.write_text(json.dumps(identity()))
    home.config.write_text('[audit]\nsyslog = true\n[access]\nsocket = "/run/hal/api.sock"\nusers = ["*"]\n')
    report = found(hal)
    mend = {one["what"].split(" was ")[0]: one["mend"] for one in report["findings"] if one["what"].startswith("token")}
    assert mend == {
        "token a1 of eve (role admin)": "hal api-token revoke a1",
        "token b2 of eve (role operator)": "hal api-token revoke b2",
    }
    people = [(one["who"], one["role"], one["rule"]) for one in report["people"]]
    assert ("everybody on this machine", "user", "hal.toml: access.users") in people
    assert ("eve", "admin", "token a1") in people
    assert not any("c3" in rule for _, _, rule in people)


def identity() -> dict[str, Any]:
    """This process, as a pid file names it."""
    from hal.runtime.identity import identify

    return identify()._asdict()


def test_a_listener_beyond_loopback_that_is_not_encrypted_is_found() -> None:
    """This process listens on all addresses and on loopback: the first is found, unless hal.toml encrypts its port."""
    with socket.socket() as beyond, socket.socket() as inside:
        beyond.bind(("0.0.0.0", 0))
        inside.bind(("127.0.0.1", 0))
        beyond.listen()
        inside.listen()
        ports = beyond.getsockname()[1], inside.getsockname()[1]
        assert [("0.0.0.0", ports[0]), ("127.0.0.1", ports[1])] == [
            one for one in listening_at(os.getpid()) or [] if one[1] in ports
        ]
        unseen: list[str] = []
        pids = {"controller": os.getpid()}
        plain = list(check_listeners(pids, {}, unseen))
        assert any(f"0.0.0.0 port {ports[0]}, beyond this machine" in one.what for one in plain)
        assert not any(str(ports[1]) in one.what for one in plain)
        encrypted = {("server", "wire"): f"0.0.0.0:{ports[0]}"}
        assert not any(str(ports[0]) in one.what for one in check_listeners(pids, encrypted, unseen))
    assert unseen == []


def test_a_certificate_near_its_end_is_found(tmp_path: Path) -> None:
    """A warning two weeks before, serious when it has ended, nothing before; a missing one is none."""
    authority = open_authority(tmp_path / "authority", NOW_MS)
    authority.certify_rest(["localhost"], NOW_MS)
    ends_ms = NOW_MS + 90 * DAY_MS
    places = [authority.rest_file, tmp_path / "missing.pem"]

    def severities(at_ms: int) -> list[Severity]:
        unseen: list[str] = []
        return [one.severity for one in check_certificates(places, at_ms, unseen)]

    assert severities(NOW_MS) == []
    assert severities(ends_ms - 13 * DAY_MS) == [Severity.WARNING]
    assert severities(ends_ms + DAY_MS) == [Severity.SERIOUS]
