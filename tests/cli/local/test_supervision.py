"""When what ended is started again, what a unit of systemd says, which planes may be named."""

from __future__ import annotations

import errno
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hal.cli.local.supervision import FIRST_DELAY_S, MOST_DELAY_S, SOUND_S, Kept, Pause, Supervisor, plane_sections
from hal.cli.local.units import UNIT, _quoted
from hal.client.addresses.address import Address, StartingError
from hal.core.model import SpecError
from hal.runtime.home import Home
from hal.runtime.identity import write_pid_file
from hal.runtime.startup import SUPERVISION_FILE, SUPERVISOR
from tests.cli.conftest import Ran

Hal = Callable[..., Ran]


class Fake:
    """A process that a test ends: its name, and how it ended."""

    def __init__(self, code: int | None = None) -> None:
        self.ended_early = code

    def tail(self) -> list[str]:
        return ["the reason"]


def kept(runs: list[bool], children: list[Any]) -> Kept:
    return Kept("it", lambda: runs[-1], lambda: children[-1])


def test_the_pause_doubles_up_to_its_bound_while_a_process_keeps_ending() -> None:
    pause, now, pauses = Pause(), 0.0, []
    for _ in range(12):
        pause.started(now)
        pause.ended(now)
        pauses.append(pause.next_s - now)
        now = pause.next_s
    assert pauses[:4] == [FIRST_DELAY_S, 2 * FIRST_DELAY_S, 4 * FIRST_DELAY_S, 8 * FIRST_DELAY_S]
    assert pauses[-1] == MOST_DELAY_S


def test_a_process_that_ran_for_long_is_started_again_soon() -> None:
    pause = Pause()
    for _ in range(5):
        pause.started(0.0)
        pause.ended(0.0)
    pause.started(100.0)
    pause.ended(100.0 + SOUND_S)
    assert pause.next_s == 100.0 + SOUND_S + FIRST_DELAY_S


def test_what_runs_is_left_alone() -> None:
    assert not kept([True], []).look(5.0)


def test_what_ended_is_due_after_the_first_pause() -> None:
    one = kept([False], [])
    assert [one.look(10.0), one.look(10.0 + FIRST_DELAY_S)] == [False, True]


def test_a_controller_whose_configuration_is_refused_is_given_up() -> None:
    one = kept([False], [Fake(2)])
    one.look(0.0)
    one.start(1.0)
    assert not one.look(2.0)
    assert not one.look(1e6)
    assert one.tried.given_up
    assert one.tried.ended == "exit code 2: the reason"


def test_what_somebody_started_after_it_was_given_up_is_watched_again() -> None:
    runs = [False]
    one = kept(runs, [Fake(2)])
    one.look(0.0)
    one.start(1.0)
    one.look(2.0)
    runs.append(True)
    one.look(3.0)
    assert not one.tried.given_up


def test_what_cannot_be_started_is_tried_again_after_a_pause() -> None:
    """A full disk, say: the supervisor goes on, and says why."""

    def start() -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    one = Kept("it", lambda: False, start)
    one.look(0.0)
    one.start(1.0)
    assert [one.look(1.0), one.look(1.0 + 2 * FIRST_DELAY_S)] == [False, True]
    assert one.tried.ended == "[Errno 28] No space left on device"


def test_a_look_that_cannot_be_taken_is_logged_once_until_another_can(tmp_path: Path) -> None:
    """A layout that is damaged, good again, damaged again."""
    home, logged = Home(tmp_path), list[str]()
    home.create()
    supervisor = Supervisor(home, lambda event, **fields: logged.append(event))
    layout = home.run_dir / "layout.json"
    for text in ("{", "{", '{"nodes": [], "restart": false}', "{"):
        layout.write_text(text)
        supervisor.look(0.0)
    assert logged == ["the layout cannot be read"] * 2


def test_planes_are_read_from_the_file(tmp_path: Path) -> None:
    (tmp_path / "hal.toml").write_text('[supervision.planes.prices]\ncommand = ["/opt/prices"]\nhealth = "p.sock"\n')
    assert plane_sections(Home(tmp_path))["prices"].command == ("/opt/prices",)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[supervision.planes.Prices]\ncommand = ['x']", "no name of a plane"),
        ("[supervision.planes.prices]\ncommand = []", "supervision.planes.prices.command"),
        ("[supervision.planes.prices]\ncommand = ['x']\nhealth = 'https://a'", "supervision.planes.prices.health"),
        ("[supervision.planes.prices]\ncommand = ['x']\nhealth = 'http://h:99999'", "supervision.planes.prices.health"),
        ("[supervision.planes.prices]\ncommand = ['x']\nhealth = 'http://h'", "neither a path nor http://HOST:PORT"),
        ("[supervision.planes.prices]\ncommmand = ['x']", "commmand"),
    ],
)
def test_a_mistake_in_the_section_is_named(tmp_path: Path, text: str, named: str) -> None:
    (tmp_path / "hal.toml").write_text(text)
    with pytest.raises(SpecError, match=named):
        plane_sections(Home(tmp_path))


def test_a_plane_that_is_not_declared_is_refused_before_anything_starts(tmp_path: Path, hal: Hal) -> None:
    ran = hal("up", "--home", str(tmp_path / "home"), "--with", "prices")
    assert ran.code == 2
    assert "there is no plane 'prices'" in ran.err
    assert "observability" in ran.err
    assert not (tmp_path / "home" / "run" / "controller.pid").exists()


@pytest.mark.parametrize(
    ("word", "written"),
    [("plain", "plain"), ("two words", '"two words"'), ('a"b', '"a\\"b"'), ("100%", "100%%"), ("a\\b", '"a\\\\b"')],
)
def test_words_of_a_unit_are_quoted(word: str, written: str) -> None:
    assert _quoted(word) == written


def test_a_line_break_cannot_get_into_a_unit() -> None:
    with pytest.raises(SpecError, match="line break"):
        _quoted("a\nExecStart=/bin/evil")


def test_a_unit_is_one_that_systemd_accepts(tmp_path: Path, hal: Hal) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not here")
    home = tmp_path / "a home with 100% of $everything"
    unit = tmp_path / "hal.service"
    unit.write_text(hal("service", "install", "--system", "--print", "--home", str(home), "--", "--nodes", "2").out)
    ran = subprocess.run([analyze, "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=60)
    about_it = [line for line in ran.stderr.splitlines() if "hal.service" in line and "not-found" not in line]
    assert not about_it, ran.stderr


def test_backups_by_a_timer_are_written_and_removed_with_the_unit(
    tmp_path: Path, hal: Hal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """systemd, where it is, reads them without a complaint."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    units = tmp_path / "config" / "systemd" / "user"
    words = ("--backup", str(tmp_path / "50% of it"), "--backup-at", "Mon..Fri 02:30", "--backup-keep", "3")
    assert hal("service", "install", "--user", "--home", str(tmp_path / "home"), *words).code == 0
    assert sorted(path.name for path in units.iterdir()) == ["hal-backup.service", "hal-backup.timer", "hal.service"]
    assert "OnCalendar=Mon..Fri 02:30\n" in (units / "hal-backup.timer").read_text()
    analyze = shutil.which("systemd-analyze")
    if analyze is not None:
        verify = [analyze, "verify", "--man=no", str(units / "hal-backup.timer"), str(units / "hal-backup.service")]
        ran = subprocess.run(verify, capture_output=True, text=True, timeout=60)
        assert not [line for line in ran.stderr.splitlines() if "hal-backup" in line], ran.stderr
    assert hal("service", "remove", "--user").code == 0
    assert not list(units.iterdir())


def test_a_time_of_backups_is_one_line(tmp_path: Path, hal: Hal) -> None:
    words = ("--backup", str(tmp_path), "--backup-at", "daily\nExecStart=/evil", "--print")
    ran = hal("service", "install", "--home", str(tmp_path / "home"), *words)
    assert (ran.code, "is no calendar event" in ran.err) == (2, True), ran.err


def test_options_of_a_unit_are_checked_when_it_is_written(tmp_path: Path, hal: Hal) -> None:
    ran = hal("service", "install", "--print", "--home", str(tmp_path), "--", "--nodse", "2")
    assert ran.code == 2
    assert "--nodse" in ran.err


def test_the_unit_of_a_user_is_written_and_removed(tmp_path: Path, hal: Hal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    unit = tmp_path / "config" / "systemd" / "user" / "hal.service"
    assert hal("service", "install", "--user", "--home", str(tmp_path / "home")).code == 0
    assert f"HAL_HOME={tmp_path / 'home'}" in unit.read_text()
    assert hal("service", "remove", "--user").code == 0
    assert not unit.exists()


@pytest.mark.parametrize("verb", ["install", "remove"])
def test_the_unit_of_another_program_is_left_alone(
    tmp_path: Path, hal: Hal, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    unit = tmp_path / "config" / "systemd" / "user" / "ssh-agent.service"
    unit.parent.mkdir(parents=True)
    unit.write_text("[Service]\n")
    ran = hal("service", verb, "--user", "--name", "ssh-agent", "--home", str(tmp_path / "home"))
    assert (ran.code, "was not written by `hal service install`" in ran.err) == (6, True), ran.err
    assert unit.read_text() == "[Service]\n"


def test_a_unit_runs_as_a_user_that_the_machine_has(tmp_path: Path, hal: Hal) -> None:
    ran = hal("service", "install", "--system", "--print", "--home", str(tmp_path), "--run-as", "x\nExecStartPre=/evil")
    assert (ran.code, "--run-as: there is no user 'x" in ran.err) == (2, True), ran.err


def test_a_unit_lets_steps_outlive_hal() -> None:
    assert "KillMode=process\n" in UNIT
    assert "Delegate=yes\n" in UNIT


@pytest.mark.parametrize(("note", "comes_back"), [
    ('{"processes":{"controller":{"starts":1}}}', True),
    ('{"processes":{"controller":{"given_up":true,"ended":"exit code 2"}}}', False),
    ('{"processes":{"node-w1":{}}}', False),
    ("[", False),
])  # fmt: skip
def test_a_controller_that_ended_under_its_supervisor_is_said_to_come_back(
    note: str, comes_back: bool, hal_home: Path
) -> None:
    """Unless the supervisor has given it up, or keeps none: then people start it."""
    home = Home(hal_home)
    home.create()
    write_pid_file(home.pid_file(SUPERVISOR))
    (home.run_dir / SUPERVISION_FILE).write_text(note)
    error = Address(home=home).unreachable("its controller has stopped")
    assert isinstance(error, StartingError) is comes_back
    assert ("its supervisor starts it again" in error.message, "start it with: hal up" in error.hint) == (
        comes_back, not comes_back
    )  # fmt: skip


def test_a_dead_supervisor_starts_nothing_again(hal_home: Path) -> None:
    """Its note stays behind."""
    home = Home(hal_home)
    home.create()
    (home.run_dir / SUPERVISION_FILE).write_text('{"processes":{"controller":{}}}')
    assert not isinstance(Address(home=home).unreachable(""), StartingError)
