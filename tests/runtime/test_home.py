"""HAL_HOME: where it is, that it is private, that nobody's files are touched, and where sockets lie."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hal.core.model.errors import ConflictError, DeniedError, SpecError
from hal.runtime.home import MAX_SOCKET_PATH_BYTES, Home, find_home


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path / "home")
    yield made
    made.drop_socket_dir()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_home_is_found_in_the_documented_order() -> None:
    """The argument, else HAL_HOME, else XDG_STATE_HOME/hal, else ~/.local/state/hal."""
    env = {"HOME": "/h", "XDG_STATE_HOME": "/x", "HAL_HOME": "/e"}
    assert find_home("/a", env).root == Path("/a")
    assert find_home(None, env).root == Path("/e")
    assert find_home(None, {"HOME": "/h", "XDG_STATE_HOME": "/x"}).root == Path("/x/hal")
    assert find_home(None, {"HOME": "/h"}).root == Path("/h/.local/state/hal")


def test_the_cache_can_be_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HAL_CACHE names it; else the one beside this Python, where it was made; else it lies under the home."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert find_home("/a", {"HAL_CACHE": "/c"}).cache == Path("/c")
    assert find_home("/a", {}).cache == Path("/a/cache")
    (tmp_path / "hal-cache").mkdir()
    assert find_home("/a", {}).cache == tmp_path / "hal-cache"
    assert find_home("/a", {"HAL_CACHE": "/c"}).cache == Path("/c")


def test_finding_a_home_makes_nothing(tmp_path: Path) -> None:
    """`hal status` must not leave directories behind."""
    found = find_home(tmp_path / "none")
    assert found.known_socket_dir() is None
    assert found.node_names() == []
    assert not (tmp_path / "none").exists()


def test_everything_made_is_private_whatever_the_umask(home: Home) -> None:
    """With umask 0, directories are 0700."""
    before = os.umask(0)
    try:
        home.create()
        home.node("n1").create()
        directory = home.socket_dir()
    finally:
        os.umask(before)
    made = [home.root, home.run_dir, home.log_dir, home.database.parent, home.node("n1").journal, directory]
    assert [mode(path) for path in made] == [0o700] * len(made)


def test_creating_twice_is_harmless(home: Home) -> None:
    """The second `hal up` finds what the first one made, the same sockets included."""
    home.create()
    first = home.socket_dir()
    (home.root / "hal.toml").write_text("x")
    home.create()
    assert home.socket_dir() == first
    assert (home.root / "hal.toml").read_text() == "x"


def test_a_directory_with_other_files_that_others_may_read_is_refused(tmp_path: Path) -> None:
    """HAL_HOME=/tmp by mistake must not make /tmp private."""
    tmp_path.chmod(0o755)
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(ConflictError, match="chmod 700"):
        Home(tmp_path).create()
    assert mode(tmp_path) == 0o755
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_an_empty_directory_is_taken_and_made_private(tmp_path: Path) -> None:
    """Whoever made it meant it for HAL."""
    empty = tmp_path / "empty"
    empty.mkdir(mode=0o755)
    Home(empty).create()
    assert mode(empty) == 0o700


def test_a_file_in_the_place_of_the_home_is_refused(tmp_path: Path) -> None:
    """With what to do about it."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConflictError, match="not a directory"):
        Home(tmp_path / "file").create()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's directory")
def test_another_users_home_is_refused(tmp_path: Path) -> None:
    """Even root does not take over somebody's HAL."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, 65534, 65534)
    with pytest.raises(DeniedError, match="65534"):
        Home(theirs).create()


def test_sockets_of_a_long_home_still_have_short_paths(tmp_path: Path) -> None:
    """The kernel allows 107 bytes: the sockets lie elsewhere, and a long node name is shortened to a checksum."""
    home = Home(tmp_path / ("x" * 120))
    name = "n" * 63
    try:
        paths = [home.api_socket(), home.wire_socket(), home.keeper_socket("n1"), home.keeper_socket(name)]
        assert all(len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES for path in paths)
        assert home.keeper_socket(name) != home.keeper_socket("m" * 63)
        assert (home.run_dir / "socket-dir").read_text().strip() == str(paths[0].parent)
    finally:
        home.drop_socket_dir()


def test_the_runtime_directory_of_the_session_is_preferred(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """XDG_RUNTIME_DIR is used when it is private and short enough, else a private directory in /tmp."""
    session = Path("/tmp") / f"hal-t-{os.getpid()}"
    session.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(session))
    try:
        assert home.socket_dir().parent == session
        home.drop_socket_dir()
        session.chmod(0o755)
        assert home.socket_dir().parent == Path("/tmp")
    finally:
        shutil.rmtree(session)


def test_a_socket_directory_that_was_swept_away_is_made_again(home: Home) -> None:
    """/tmp is emptied by some systems while the home stays."""
    first = home.socket_dir()
    first.rmdir()
    assert home.known_socket_dir() is None
    assert home.socket_dir() != first


def test_a_socket_directory_opened_to_others_is_not_used(home: Home) -> None:
    """Its name in HAL_HOME is not enough."""
    first = home.socket_dir()
    first.chmod(0o755)
    assert home.socket_dir() != first
    first.rmdir()


def test_many_processes_agree_on_one_socket_directory(home: Home) -> None:
    """Eight that ask at once for a fresh home get the same answer."""
    ask = (
        f"import sys; sys.path.insert(0, 'src'); from hal.runtime.home import Home; "
        f"print(Home({str(home.root)!r}).socket_dir())"
    )
    asking = [subprocess.Popen([sys.executable, "-c", ask], stdout=subprocess.PIPE) for _ in range(8)]
    answers = {one.communicate()[0] for one in asking}
    assert answers == {f"{home.socket_dir()}\n".encode()}


def test_the_token_is_made_once_and_private(home: Home) -> None:
    """64 hex digits in a 0600 file; one that others may read is refused."""
    home.create()
    token = home.token_text()
    assert len(token) == 64
    assert home.token_text() == token
    assert mode(home.token) == 0o600
    home.token.chmod(0o644)
    with pytest.raises(DeniedError, match="delete it"):
        home.token_text()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-x", "x" * 64, "a\n", "a b", "ü"])
def test_a_name_that_cannot_be_a_directory_is_no_node_name(home: Home, name: str) -> None:
    """It would become a path."""
    with pytest.raises(SpecError, match="node name"):
        home.node(name)


def test_a_steps_outputs_lie_where_the_contract_says(home: Home) -> None:
    """nodes/NODE/steps/J/T.A.R."""
    assert home.node("n1").step_dir(42, 7, 1, 0) == home.root / "nodes/n1/steps/42/7.1.0"


def test_importing_the_layout_is_cheap() -> None:
    """The command line needs it first: no msgspec, yaml, asyncio or model is imported with it."""
    ask = "import sys; import hal.runtime.home, hal.runtime.identity, hal.runtime.detached_process; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", ask], env={**os.environ, "PYTHONPATH": "src"}).split()
    assert not {b"msgspec", b"yaml", b"asyncio", b"hal.core.model", b"dataclasses", b"inspect"} & set(loaded)
