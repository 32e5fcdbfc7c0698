"""Files in directories where a job can write: nothing put in their place is waited for, followed, written to.

Each kind of thing that can lie in a file's place is tried on each way of opening one. (H1, attempts 96 to 98)
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hal.runtime.home import Home
from hal.runtime.identity import read_pid_file, running, write_pid_file
from hal.runtime.logfile import LogFile
from hal.runtime.privacy import make_private
from hal.runtime.regular_files import (
    NotRegularError,
    create_regular,
    create_scratch,
    open_directory,
    open_own,
    open_regular,
    read_regular,
)

SECRET = b"another file of the same account"


class Planted:
    """A directory in which things are put in the place of `file`."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "file"
        self.victim = directory / "victim"
        self.victim.write_bytes(SECRET)
        self.socket = socket.socket(socket.AF_UNIX)

    def fifo(self) -> None:
        os.mkfifo(self.file)

    def link(self) -> None:
        self.file.symlink_to(self.victim)

    def dangling(self) -> None:
        self.file.symlink_to(self.victim.with_name("nothing"))

    def loop(self) -> None:
        self.file.symlink_to(self.file)

    def bound_socket(self) -> None:
        self.socket.bind(str(self.file))

    def directory(self) -> None:
        self.file.mkdir()

    def fifo_behind_a_link(self) -> None:
        os.mkfifo(self.file.with_name("fifo"))
        self.file.symlink_to(self.file.with_name("fifo"))


KINDS = ["fifo", "link", "dangling", "loop", "bound_socket", "directory", "fifo_behind_a_link"]


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Planted]:
    monkeypatch.chdir(tmp_path)  # a socket's path may be 107 bytes long
    made = Planted(Path())
    yield made
    made.socket.close()


OPENERS: list[Callable[[Path], object]] = [
    lambda path: open_regular(path),
    lambda path: open_regular(path, os.O_WRONLY),
    lambda path: open_regular(path, os.O_RDWR | os.O_CREAT | os.O_APPEND),
    lambda path: create_regular(path, os.O_WRONLY | os.O_APPEND),
    lambda path: read_regular(path, 100),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("opener", range(len(OPENERS)))
def test_what_is_no_file_is_refused_at_once_and_said(planted: Planted, kind: str, opener: int) -> None:
    """Opened for reading, writing, appending, anew: an error that names the file and what is there."""
    getattr(planted, kind)()
    with pytest.raises(NotRegularError, match="is in the place of the file") as refusal:
        OPENERS[opener](planted.file)
    assert refusal.value.filename == "file"
    assert planted.victim.read_bytes() == SECRET
    assert not planted.victim.with_name("nothing").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
def test_a_device_is_not_even_opened(tmp_path: Path) -> None:
    """To open one may already do something: a look comes first."""
    try:
        os.mknod(tmp_path / "file", 0o600 | 0o020000, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("this machine lets nobody make devices")
    with pytest.raises(NotRegularError, match="a device is"):
        open_regular(tmp_path / "file")


@pytest.mark.parametrize("kind", KINDS)
def test_a_log_whose_place_was_taken_is_begun_again_beside_it(planted: Planted, kind: str) -> None:
    """No start waits for a person to remove it; what was there is set aside."""
    getattr(planted, kind)()
    log = LogFile(planted.file)
    log.write_line("a line")
    log.close()
    assert planted.file.read_text() == "a line\n"
    assert [name for name in os.listdir() if name.startswith("file.set-aside-")]
    assert planted.victim.read_bytes() == SECRET


@pytest.mark.parametrize("kind", KINDS)
def test_a_scratch_file_replaces_what_was_there(planted: Planted, kind: str) -> None:
    """Removed unseen; a directory is refused."""
    getattr(planted, kind)()
    try:
        fd = create_scratch(planted.file)
    except OSError:
        assert kind == "directory"
        return
    os.write(fd, b"new")
    os.close(fd)
    assert planted.file.read_bytes() == b"new"
    assert not planted.file.is_symlink()
    assert planted.victim.read_bytes() == SECRET


@pytest.mark.parametrize("kind", KINDS)
def test_a_pid_file_whose_place_was_taken_names_nobody(planted: Planted, kind: str) -> None:
    """`hal status`, `hal up`, `hal down` and the keeper's look for its agent go on."""
    getattr(planted, kind)()
    assert read_pid_file(planted.file) is None
    assert running(planted.file) is None


def test_a_new_file_replaces_a_planted_one_that_somebody_holds_open(tmp_path: Path) -> None:
    """Who made a file beforehand sees nothing of what is written to the true one."""
    path = tmp_path / "file"
    with path.open("wb+") as planted:
        fd = create_regular(path, os.O_WRONLY)
        os.write(fd, b"mine")
        os.close(fd)
        assert planted.read() == b""
    assert path.read_bytes() == b"mine"


def test_a_new_file_leaves_the_other_name_of_a_planted_one_alone(tmp_path: Path) -> None:
    """A hard link to a victim: only the planted name goes."""
    (tmp_path / "victim").write_bytes(SECRET)
    os.link(tmp_path / "victim", tmp_path / "file")
    os.close(create_regular(tmp_path / "file", os.O_WRONLY))
    assert (tmp_path / "victim").read_bytes() == SECRET


def test_a_link_may_stand_for_a_file_where_people_keep_one(tmp_path: Path) -> None:
    """hal.toml, the certificates: they may lie elsewhere, but never be a FIFO."""
    (tmp_path / "true").write_text("x = 1")
    (tmp_path / "link").symlink_to("true")
    assert read_regular(tmp_path / "link", 100, follow=True) == b"x = 1"
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "other").symlink_to("fifo")
    with pytest.raises(NotRegularError):
        read_regular(tmp_path / "other", 100, follow=True)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "directory"])
def test_a_directory_whose_place_was_taken_is_not_entered(planted: Planted, kind: str) -> None:
    """A link to one neither."""
    getattr(planted, kind)()
    with pytest.raises(NotRegularError, match="is in the place of the directory"):
        open_directory(planted.file)


@pytest.mark.parametrize("where", ["journal", "steps"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("directory", "bound_socket")])
def test_a_node_starts_although_something_lies_where_its_directories_belong(
    tmp_path: Path, kind: str, where: str
) -> None:
    """It is set aside. (`hal up` failed until a person removed it)"""
    home = Home(tmp_path / "h")
    home.create()
    node = home.node("n1")
    node.create()
    planted = Planted(tmp_path)
    getattr(node, where).rmdir()
    getattr(planted, kind)()
    planted.file.rename(getattr(node, where))
    planted.socket.close()
    node.create()
    assert getattr(node, where).is_dir()
    assert not getattr(node, where).is_symlink()


def test_a_directory_in_the_place_of_a_pid_file_is_set_aside(tmp_path: Path) -> None:
    """With what is in it. (No daemon could note itself there.)"""
    (tmp_path / "pid" / "more").mkdir(parents=True)
    assert write_pid_file(tmp_path / "pid") == read_pid_file(tmp_path / "pid")


def test_where_a_link_leads_no_mode_is_changed(tmp_path: Path) -> None:
    """A job makes `log` a link to /tmp: as root the next start closed /tmp to everybody."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "log").symlink_to("open")
    make_private(tmp_path / "log")
    assert (tmp_path / "open").stat().st_mode & 0o777 == 0o777


def test_a_lock_whose_place_was_taken_is_held_all_the_same(tmp_path: Path) -> None:
    """A socket there cannot be opened, a FIFO is no lock that lasts."""
    os.mkfifo(tmp_path / "lock")
    os.close(open_own(tmp_path / "lock", os.O_RDWR))
    assert (tmp_path / "lock").is_file()


def test_the_null_device_may_stand_for_a_log(tmp_path: Path) -> None:
    """It stays what it is."""
    log = LogFile(Path(os.devnull))
    log.write_line("a line")
    log.close()
    assert Path(os.devnull).is_char_device()


@pytest.mark.parametrize("kind", KINDS)
def test_outside_of_private_directories_nothing_is_set_aside(planted: Planted, tmp_path: Path, kind: str) -> None:
    """A path that a person got wrong must not rename what lies in a directory that is not HAL's."""
    getattr(planted, kind)()
    tmp_path.chmod(0o755)
    before = sorted(os.listdir())
    with pytest.raises(NotRegularError):
        open_own(planted.file, os.O_RDWR)
    assert sorted(os.listdir()) == before
