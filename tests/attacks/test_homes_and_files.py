"""Homes and files that somebody else made: nothing in them is believed, and no command ends in a traceback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hal.cli.main import main
from hal.core.model import DeniedError
from hal.runtime.authority import open_authority
from hal.runtime.identity import alive, identify, write_pid_file
from hal.runtime.kernel_cache import check_cache
from tests.attacks.other_user import ALICE, as_user
from tests.client.scripted_server import ScriptedServer, problem
from tests.e2e.conftest import LiveHal


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    """A process of root's that is none of HAL's."""
    process = subprocess.Popen(["/bin/sh", "-c", "read word"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def trap(home: Path, pid: int, name: str = "controller") -> Path:
    """A home whose pid file names that process, rightly to the tick."""
    (home / "run").mkdir(parents=True, exist_ok=True, mode=0o700)
    write_pid_file(home / f"run/{name}.pid", identify(pid))
    (home / "nodes/n1").mkdir(parents=True, exist_ok=True)
    return home


def give(place: Path, uid: int) -> None:
    """All of it, links as links."""
    for root, directories, files in os.walk(place):
        for name in (".", *directories, *files):
            os.chown(Path(root) / name, uid, uid, follow_symlinks=False)


@pytest.mark.parametrize("way", ["--leave", "--kill", ""])
@pytest.mark.parametrize("name", ["controller", "keeper-n1", "agent-n1"])
def test_down_kills_nothing_that_a_foreign_home_names(
    victim: subprocess.Popen[bytes], hal_home: Path, name: str, way: str
) -> None:
    """(M10, attempt 11) root's `hal down --home TRAP`: refused, and root's process goes on."""
    home = trap(hal_home / "trap", victim.pid, name)
    give(home, ALICE)
    assert main(["down", "--home", str(home), *filter(None, [way])]) == 4
    assert alive(identify(victim.pid))


def test_down_kills_nothing_where_others_could_lay_the_files(victim: subprocess.Popen[bytes], hal_home: Path) -> None:
    """(M10) A home of root's in which others may make files, a run directory of theirs, or a link to one."""
    shared = trap(hal_home / "shared", victim.pid)
    shared.chmod(0o1777)
    theirs = trap(hal_home / "theirs", victim.pid)
    give(theirs / "run", ALICE)
    linked = hal_home / "linked"
    linked.mkdir(mode=0o700)
    (linked / "run").symlink_to(theirs / "run")
    for home in (shared, theirs, linked):
        assert main(["down", "--kill", "--home", str(home)]) == 4
        assert alive(identify(victim.pid))


def test_down_kills_no_process_that_is_none_of_hals(victim: subprocess.Popen[bytes], hal_home: Path) -> None:
    """(M10) A home of one's own whose pid file names an editor, say: it is not HAL's, so nothing runs here."""
    home = trap(hal_home / "own", victim.pid)
    home.chmod(0o700)
    assert main(["down", "--kill", "--home", str(home)]) == 0
    assert alive(identify(victim.pid))


def test_a_foreign_home_is_an_error_of_one_line(hal_home: Path) -> None:
    """(L5) `status`, `jobs`, `down`, `up`, `backup`, `token` with the home of somebody else, who keeps it shut."""
    home = trap(hal_home / "roots", os.getpid())
    hal_home.chmod(0o755)
    hal_home.parent.chmod(0o711)
    home.chmod(0o700)

    def look() -> list[tuple[str, int, str]]:
        seen, copy = [], f"/tmp/hal-t-{os.getpid()}"
        for words in (["status"], ["jobs"], ["down"], ["up"], ["backup", copy], ["token", "list"]):
            code, said = ran(words, {"HAL_HOME": str(home), "HOME": "/nonexistent"})
            seen.append((words[0], code, said))
        return seen

    for word, code, said in as_user(ALICE, look):
        assert code == 4, (word, said)
        assert said.startswith("error: "), said
        assert "Traceback" not in said


def ran(words: list[str], environment: dict[str, str], out: int | None = None) -> tuple[int, str]:
    """The exit code and stderr of a command in a child of this process, whatever its user may read."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.environ.clear()
        os.environ.update({"PATH": "/usr/bin:/bin", **environment})
        os.dup2(theirs, 2)
        os.dup2(ours, 0)  # an end of a pipe: there is nothing to be read from it that anybody would answer with
        os.dup2(theirs if out is None else out, 1)
        sys.stdin = os.fdopen(0, closefd=False)
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
        code = 99
        try:
            code = main(words)
        except SystemExit as ended:
            code = int(ended.code or 0)
        except BaseException:
            import traceback

            traceback.print_exc()
        os._exit(code)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        said = pipe.read().decode(errors="replace")
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said


def test_root_comes_into_the_hal_of_another_user_by_its_home(hal_home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """(L5) As docs/access.md has it: root's `hal --home` speaks to the socket of the home's owner."""
    home = hal_home / "alices"
    (home / "run").mkdir(parents=True, mode=0o700)
    sockets = hal_home / "s"
    sockets.mkdir(mode=0o700)
    (home / "run/socket-dir").write_text(f"{sockets}\n")
    server = ScriptedServer(lambda asked: problem(409, "conflict", "it answered"), path=sockets / "api.sock")
    try:
        for place in (home, sockets):
            give(place, ALICE)
        assert main(["queues", "--home", str(home)]) == 6
        assert "it answered" in capfd.readouterr().err
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("words", "environment"),
    [
        (["status"], {"HAL_HOME": "/etc/hostname"}),
        (["up"], {"HAL_HOME": "/etc/hostname"}),
        (["down"], {"HAL_HOME": "/etc/hostname"}),
        (["jobs"], {"HAL_HOME": "/proc/1/nowhere"}),
        (["status", "--home", ""], {"HAL_HOME": "/proc/1/nowhere"}),
        (["jobs"], {}),
        (["submit", "/etc"], {"HOME": "/nonexistent"}),
        (["submit", "/proc/self/mem"], {"HOME": "/nonexistent"}),
        (["submit", "/dev/null"], {"HOME": "/nonexistent"}),
        (["login", "x"], {"HOME": "/proc/1/nowhere"}),
        (["whoami"], {"HOME": "/dev/null", "HAL_URL": "unix:///nowhere"}),
        (["policy", "apply", "/etc"], {"HOME": "/nonexistent"}),
        (["workload", "generate", "--jobs", "1", "--output", "/etc/hostname/x"], {"HOME": "/nonexistent"}),
        (["jobs"], {"HAL_HOME": "/nonexistent", "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "TERM": "dumb"}),
    ],
)
def test_no_surroundings_end_in_a_traceback(words: list[str], environment: dict[str, str]) -> None:
    """(L5) Homes that are files, no HOME, directories for files, no UTF-8: one line says what is wrong."""
    code, said = ran(words, environment)
    assert 0 <= code < 99, said
    assert "Traceback" not in said
    assert said, words


def test_a_backup_goes_through_no_link(own_hal: LiveHal, tmp_path: Path) -> None:
    """(L5, attempt 10) Onto a dangling link: one line, and nothing where it leads."""
    own_hal.up("--nodes", "0")
    (tmp_path / "b.sqlite").symlink_to(tmp_path / "elsewhere")
    ran = own_hal.run("backup", str(tmp_path / "b.sqlite"))
    assert (ran.code, "Traceback" in ran.err, ran.err[:7]) == (1, False, "error: ")
    assert not (tmp_path / "elsewhere").exists()
    assert json.loads(own_hal.run("status", "-o", "json").out)["controller"] == "running"


def test_a_reader_that_goes_away_is_no_error(own_hal: LiveHal) -> None:
    """(L5) stdout is a pipe that nobody reads, or was closed."""
    ours, theirs = os.pipe()
    os.close(ours)
    code, said = ran(["completion", "bash"], {"HOME": "/nonexistent"}, theirs)
    os.close(theirs)
    assert (code, said) in ((141, ""), (128 + signal.SIGPIPE, ""))


def cache_in(place: Path) -> Path:
    """A private cache with a kernel in it."""
    cache = place / "cache"
    (cache / "kernels-0123456789abcdef").mkdir(parents=True)
    (cache / "kernels-0123456789abcdef/easy.nbi").write_bytes(b"")
    for one in (place, cache, cache / "kernels-0123456789abcdef"):
        one.chmod(0o755)
    return cache


def test_a_private_cache_will_do(hal_home: Path) -> None:
    """Below directories of ours and root's, also through a link of ours, also before it is there."""
    cache = cache_in(hal_home / "c")
    check_cache(cache)
    (hal_home / "link").symlink_to(cache)
    check_cache(hal_home / "link")
    check_cache(hal_home / "c/later/cache")


@pytest.mark.parametrize("part", ["..", ".", "kernels-0123456789abcdef", "kernels-0123456789abcdef/easy.nbi"])
@pytest.mark.parametrize("how", ["mode", "sticky", "group", "owner"])
def test_nothing_is_run_from_a_cache_into_which_others_may_write(hal_home: Path, part: str, how: str) -> None:
    """(L1, attempt 15) Planted pickles run as whoever loads them: a part of the way is open, or somebody else's."""
    cache = cache_in(hal_home / "c")
    place = cache / part
    if how == "owner":
        os.chown(place, ALICE, ALICE)
    elif how == "group":
        os.chown(place, 0, ALICE)
        place.chmod(0o775)
    elif how == "sticky":
        place.chmod(0o1777)
    else:
        place.chmod(0o777)
    if how == "sticky" and part == "..":
        check_cache(cache)  # like /tmp: nobody can rename what is ours
        return
    with pytest.raises(DeniedError, match="kernel cache"):
        check_cache(cache)


def test_nothing_is_run_from_a_cache_to_which_a_link_of_others_leads(hal_home: Path) -> None:
    """(L1) Their link to a directory of ours leads elsewhere tomorrow; so does ours below a directory of theirs."""
    cache = cache_in(hal_home / "c")
    (hal_home / "theirs").symlink_to(cache)
    os.chown(hal_home / "theirs", ALICE, ALICE, follow_symlinks=False)
    below = hal_home / "below"
    below.mkdir(mode=0o777)
    below.chmod(0o777)
    (below / "ours").symlink_to(cache)
    for named in (hal_home / "theirs", below / "ours"):
        with pytest.raises(DeniedError):
            check_cache(named)


def test_the_command_line_and_the_controller_refuse_an_open_cache(own_hal: LiveHal, hal_home: Path) -> None:
    """(L1) `hal up` and `hal simulate` say which directory it is, and load nothing."""
    cache = cache_in(hal_home / "c")
    cache.chmod(0o777)
    for words in (["up", "--nodes", "0"], ["simulate", "/dev/null"]):
        ran = own_hal.run(*words, HAL_CACHE=str(cache), NUMBA_CACHE_DIR=str(cache))
        assert ran.code != 0
        assert f"others may write to {cache}" in ran.err
        assert "Traceback" not in ran.err


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620])
def test_a_key_that_others_may_read_is_not_used(hal_home: Path, mode: int) -> None:
    """(L3, attempt 9) authority.key: as the token, it may be known to others."""
    open_authority(hal_home / "authority", 0)
    key = hal_home / "authority/authority.key"
    key.chmod(mode)
    with pytest.raises(DeniedError, match="not private"):
        open_authority(hal_home / "authority", 0)
    key.chmod(0o600)
    open_authority(hal_home / "authority", 0)
    os.chown(key, ALICE, ALICE)
    with pytest.raises(DeniedError, match="not private"):
        open_authority(hal_home / "authority", 0)
