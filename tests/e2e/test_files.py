"""A directory shipped with jobs and files collected of them, on a real HAL: from `hal submit` to `hal fetch`."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from hal.client.job import Job
from hal.client.sync_client import Client
from hal.core.model import ConflictError, SpecError, specs_from_text
from hal.core.model.errors import BundleMissingError
from tests.e2e.conftest import DEADLINE_S, Gate, LiveHal, new_home, until
from tests.e2e.test_documents import blocks, run_page

SHIPPED = "cat hello.txt; test -x run.sh && readlink link; pwd"


@pytest.fixture(autouse=True)
def _memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is remembered of directories is in a place of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory to be shipped."""
    path = tmp_path / "place"
    path.mkdir()
    (path / "hello.txt").write_text("hello\n")
    (path / "run.sh").write_text("#!/bin/sh\n")
    (path / "run.sh").chmod(0o755)
    (path / "link").symlink_to("hello.txt")
    return path


def done(job: Job) -> str:
    """What it has written, when it has succeeded."""
    job.wait(DEADLINE_S, check=True)
    return str(job.logs())


def directories(live: LiveHal) -> list[Path]:
    """The directories of steps on all nodes."""
    passage = live.home.known_passage()
    bases = [live.root / "nodes" / name / "work" for name in live.home.node_names()]
    bases += list(passage.glob("work-*")) if passage is not None else []
    return [path for base in bases if base.is_dir() for path in base.iterdir()]


def test_a_job_begins_in_a_copy_of_the_directory(client: Client, place: Path) -> None:
    text = done(client.submit(SHIPPED, ship=place))
    hello, target, where = text.splitlines()
    assert (hello, target) == ("hello", "hello.txt")
    assert Path(where) != place


def test_what_a_job_changes_is_its_own(client: Client, place: Path) -> None:
    done(client.submit("echo changed > hello.txt; rm run.sh", ship=place))
    assert done(client.submit("cat hello.txt; ls run.sh", ship=place)) == "hello\nrun.sh\n"
    assert (place / "hello.txt").read_text() == "hello\n"


def ready_copies(live: LiveHal) -> set[int]:
    """The inodes of the copies that are ready on all nodes."""
    passage = live.home.known_passage()
    where = [*live.root.glob("nodes/*/made-work"), *(passage.glob("made-work-*") if passage is not None else ())]
    return {path.stat().st_ino for one in where for path in one.glob("ready.*")}


def fresh_copies(live: LiveHal, before: set[int]) -> set[int]:
    """Those that were not ready then."""
    return ready_copies(live) - before


def test_safety_a_copy_that_is_ready_serves_one_step_alone(client: Client, shared_hal: LiveHal, place: Path) -> None:
    """Each of these begins in the copy that was made ready after the one before, and finds it as it was shipped."""
    before = ready_copies(shared_hal)
    done(client.submit("true", ship=place))
    for _ in range(3):
        until(partial(fresh_copies, shared_hal, before), "no copy is made ready")
        ready = ready_copies(shared_hal)
        inode, *rest = done(
            client.submit("stat -c %i .; cat hello.txt; ls; echo > hello.txt; rm run.sh", ship=place)
        ).split()
        assert (int(inode) in ready, rest) == (True, ["hello", "hello.txt", "link", "run.sh"])
        before = ready_copies(shared_hal)


def test_the_directory_is_gone_when_the_job_has_ended(client: Client, shared_hal: LiveHal, place: Path) -> None:
    where = Path(done(client.submit("pwd", ship=place)).strip())
    assert where.name.endswith(".0.1.0")
    assert not where.exists()


def test_what_has_changed_is_shipped_anew(client: Client, place: Path) -> None:
    done(client.submit("cat hello.txt", ship=place))
    (place / "hello.txt").write_text("other\n")
    assert done(client.submit("cat hello.txt", ship=place)) == "other\n"


def test_a_bundle_that_the_controller_no_longer_has_is_sent_again(
    client: Client, shared_hal: LiveHal, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client remembers a bundle that the controller never had, as after another disk."""
    monkeypatch.setattr("hal.client.flows.shipping.remembered", lambda listing: ("sha256:" + "0" * 64, _memory_of()))
    assert done(client.submit("cat hello.txt", ship=place)) == "hello\n"


def _memory_of() -> object:
    from hal.client.shipping.pack import Memory

    return Memory()


def test_a_bundle_that_was_never_sent_is_refused(client: Client) -> None:
    with pytest.raises(BundleMissingError):
        client.submit(["true"], ship="sha256:" + "0" * 64)


def test_files_are_collected_and_fetched(client: Client, place: Path, tmp_path: Path) -> None:
    job = client.submit("mkdir out; echo 1 > out/a.csv; echo 2 > out/b.txt", ship=place, collect=["out/*.csv"])
    job.wait(DEADLINE_S, check=True)
    (path,) = job.fetch(tmp_path / "got")
    assert (path, path.read_text()) == (tmp_path / "got" / "out" / "a.csv", "1\n")
    with pytest.raises(ConflictError, match="is there already"):
        job.fetch(tmp_path / "got")
    assert job.fetch(tmp_path / "got", force=True) == [path]


def test_a_job_that_collects_without_shipping_begins_in_an_empty_directory(client: Client, tmp_path: Path) -> None:
    job = client.submit("ls -A; echo x > y", collect=["y"])
    assert done(job) == ""
    assert [path.name for path in job.fetch(tmp_path / "got")] == ["y"]


@pytest.mark.parametrize(("when", "files"), [("succeeded", []), ("ended", ["y"])])
def test_a_failed_attempt_is_collected_if_the_job_says_so(
    client: Client, tmp_path: Path, when: str, files: list[str]
) -> None:
    job = client.submit("echo x > y; exit 3", collect=["y"], collect_when=when)
    assert job.wait(DEADLINE_S).exit_code == 3
    assert [path.name for path in job.fetch(tmp_path / "got")] == files


def test_each_task_and_each_node_has_its_own(client: Client, place: Path, tmp_path: Path) -> None:
    array = client.submit("echo $HAL_TASK > hello.txt", ship=place, collect=["hello.txt"], array=3, cpus=0.5)
    gang = client.submit("echo $HAL_NODE_RANK > hello.txt", ship=place, collect=["hello.txt"], nodes=2, cpus=0.5)
    client.wait_all([array, gang], DEADLINE_S, check=True)
    array.fetch(tmp_path / "array", tasks=[0, 2])
    gang.fetch(tmp_path / "gang")
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob("array/**/*.txt")) == [
        "array/0/hello.txt",
        "array/2/hello.txt",
    ]
    assert (tmp_path / "gang" / "rank-1" / "hello.txt").read_text() == "1\n"


def test_a_retry_begins_in_a_fresh_copy(client: Client, place: Path) -> None:
    script = "cat hello.txt; echo spoilt > hello.txt; test $HAL_ATTEMPT = 2"
    job = client.submit(script, ship=place, retries={"max": 1, "backoff": "1ms"})
    assert done(job) == "hello\n"


def test_what_cannot_be_kept_fails_the_job_with_the_reason(client: Client) -> None:
    job = client.submit("truncate -s 2G large", collect=["*"])
    assert job.wait(DEADLINE_S).state == "failed"
    (attempt,) = job.task(0).attempts
    assert "at most 1,073,741,824 are collected" in attempt.message


def test_removing_a_job_removes_what_was_collected(client: Client, shared_hal: LiveHal) -> None:
    job = client.submit("echo x > y", collect=["y"])
    job.wait(DEADLINE_S, check=True)
    kept = shared_hal.home.files / "collected"
    assert list(kept.glob(f"{job.id}@*"))
    client.remove(job.id)
    assert not list(kept.glob(f"{job.id}@*"))


def test_a_job_that_is_cancelled_leaves_nothing(client: Client, shared_hal: LiveHal, place: Path, gate: Gate) -> None:
    job = client.submit(gate.command(), ship=place, collect=["*"])
    step = gate.started()
    assert [path for path in directories(shared_hal) if path.name == step]
    job.cancel()
    job.wait(DEADLINE_S)
    until(lambda: not [path for path in directories(shared_hal) if path.name == step], "its directory is there")


def test_a_working_directory_beside_shipped_files_is_refused(client: Client, place: Path) -> None:
    with pytest.raises(SpecError, match="a directory of its own"):
        client.submit(["true"], ship=place, workdir="/tmp")


def test_the_python_and_the_job_file_of_the_page_work(
    client: Client, shared_hal: LiveHal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/files.md."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fit").mkdir()
    (tmp_path / "fit" / "fit.sh").write_text("#!/bin/sh\nmkdir results; echo 1 > results/a.csv\n")
    (tmp_path / "fit" / "fit.sh").chmod(0o755)
    names = {"client": client}
    exec(blocks("docs/files.md", "python")[0], names)
    assert [path.read_text() for path in names["paths"]] == ["1\n"]  # type: ignore[attr-defined]
    (yaml,) = blocks("docs/files.md", "yaml")
    job = client.submit(specs_from_text(yaml, kind="yaml"))[0]
    assert job.wait(DEADLINE_S).exit_code == 0
    assert [one.files for one in job.collected()] == [1]


@pytest.mark.slow
@pytest.mark.skipif(
    os.stat("/dev/shm").st_dev == os.stat("/var/tmp").st_dev, reason="there is no other file system to put a home on"
)
def test_the_home_may_be_on_another_file_system_than_the_steps_directories(place: Path, tmp_path: Path) -> None:
    """On a HAL of root these are below /var/tmp; directories are moved only where they are made."""
    live = LiveHal(Path(tempfile.mkdtemp(prefix="hal-t-", dir="/dev/shm")))
    try:
        with live.up("--cpus", "2").client() as client:
            job = client.submit("cp hello.txt copy", ship=place, collect=["copy"])
            job.wait(DEADLINE_S, check=True)
            assert [path.read_text() for path in job.fetch(tmp_path / "got")] == ["hello\n"]
        passage = live.home.known_passage()
    finally:
        live.remove()
    assert passage is None or not passage.exists(), "copies that were ready are left"


@pytest.fixture(scope="module")
def broken_hal() -> Iterator[LiveHal]:
    """One whose processes tests kill; the supervisor starts them again."""
    live = LiveHal(new_home())
    try:
        yield live.up("--restart", "--cpus", "4")
    finally:
        live.remove()


@pytest.mark.slow
def test_the_commands_of_the_page_work(broken_hal: LiveHal, tmp_path: Path) -> None:
    """docs/files.md."""
    out = run_page("docs/files.md", broken_hal, tmp_path, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert "a\nb\n" in out


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["controller", "agent-n1", "keeper-n1", "files-n1"])
def test_files_are_collected_whatever_process_dies(
    broken_hal: LiveHal, place: Path, gate: Gate, tmp_path: Path, victim: str
) -> None:
    """Killed while the job runs; started again by the supervisor, or by who needs it."""
    with broken_hal.client() as client:
        job = client.submit(gate.command("cat hello.txt > result"), ship=place, collect=["result"])
        gate.started()
        os.kill(int(json.loads(broken_hal.home.pid_file(victim).read_text())["pid"]), signal.SIGKILL)
        gate.open()
        assert job.wait(3 * DEADLINE_S).state == "succeeded"
        (path,) = job.fetch(tmp_path / "got")
        assert path.read_text() == "hello\n"
        until(lambda: not directories(broken_hal), "a directory is left")
