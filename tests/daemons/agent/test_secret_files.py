"""Secrets of steps as files in memory: who can read them, and that nothing is left of them."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path

import pytest

from hal.core.lifecycle.outcome import SECRETS_ELSEWHERE, SECRETS_UNDELIVERED
from hal.core.model import StepId
from hal.daemons.agent.secret_files import Account, SecretFiles, memory_places
from hal.daemons.agent.step_secrets import StepSecrets
from hal.runtime.real_runtime import RealRuntime
from hal.wire.frames.agent_keeper import (
    ExitCause,
    Exits,
    Refusal,
    Refused,
    Start,
    StepExit,
    StepStart,
    StepTemplate,
    Usage,
)
from hal.wire.frames.controller_agent import JobSecrets, Secrets
from hal.wire.frames.conversation import Frame
from tests.runtime.real_runtime import run_real

STEP, OTHER = StepId(1, 0, 1, 0), StepId(1, 1, 1, 0)
SECRET = {"db": b"hunter2", "key": b"\0\n"}


@pytest.fixture
def files(tmp_path: Path) -> SecretFiles:
    """With a directory of the test in place of a tmpfs."""
    return SecretFiles(tmp_path / "node" / "secrets", [str(tmp_path)])


def base_of(files: SecretFiles) -> Path:
    """Where its files are."""
    return Path(files.put(STEP, SECRET))


def test_a_step_finds_its_secrets_byte_for_byte(files: SecretFiles) -> None:
    directory = base_of(files) / "1.0.1.0"
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == SECRET


def test_nobody_else_can_read_them(files: SecretFiles) -> None:
    base = base_of(files)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (base, base / "1.0.1.0", base / "1.0.1.0" / "db")]
    assert modes == [0o700, 0o700, 0o400]


def test_a_step_that_has_ended_leaves_nothing(files: SecretFiles) -> None:
    base = base_of(files)
    files.remove(STEP)
    assert list(base.iterdir()) == []


def test_a_later_agent_removes_what_no_step_needs(files: SecretFiles, tmp_path: Path) -> None:
    base = base_of(files)
    files.put(OTHER, SECRET)
    (base / ".1.2.1.0.half-made").mkdir()
    later = SecretFiles(tmp_path / "node" / "secrets", [str(tmp_path)])
    assert later.sweep([OTHER]) == 2
    assert [path.name for path in base.iterdir()] == ["1.1.1.0"]


def test_the_directory_goes_with_the_last_step_and_comes_back_with_the_next(files: SecretFiles) -> None:
    base = base_of(files)
    files.sweep([])
    assert not base.exists()
    assert (base_of(files) / str(STEP) / "db").exists()


def test_what_a_step_made_in_its_directory_goes_with_it(files: SecretFiles, tmp_path: Path) -> None:
    """Directories without rights, links, FIFOs; what a link names stays."""
    base = base_of(files)
    (tmp_path / "mine").write_text("stays")
    (base / "1.0.1.0" / "deep" / "deeper").mkdir(parents=True)
    (base / "1.0.1.0" / "link").symlink_to(tmp_path)
    os.mkfifo(base / "1.0.1.0" / "deep" / "fifo")
    (base / "1.0.1.0" / "deep").chmod(0)
    files.remove(STEP)
    assert list(base.iterdir()) == []
    assert (tmp_path / "mine").read_text() == "stays"


def test_a_directory_that_is_not_private_any_more_is_not_used(files: SecretFiles) -> None:
    base = base_of(files)
    base.chmod(0o755)
    assert Path(files.put(OTHER, SECRET)) != base


def test_a_note_that_names_another_directory_is_not_followed(files: SecretFiles, tmp_path: Path) -> None:
    (tmp_path / "node").mkdir(mode=0o700)
    (tmp_path / "precious").mkdir(mode=0o700)
    (tmp_path / "precious" / "1.0.1.0").write_text("stays")
    (tmp_path / "node" / "secrets").write_text(str(tmp_path / "precious"))
    files.sweep([])
    assert (tmp_path / "precious" / "1.0.1.0").read_text() == "stays"


def test_a_secret_with_the_name_of_a_path_is_not_written(files: SecretFiles, tmp_path: Path) -> None:
    """A controller would not send one; a node does not rely on that."""
    with pytest.raises(OSError, match="not the name of a secret"):
        files.put(STEP, {"../outside": b"x"})
    assert not list(tmp_path.rglob("outside"))


MOUNTS = "1 0 0:1 / /run rw - {run} tmpfs rw\n2 0 0:2 / /dev/shm rw - {shm} shm rw\n"


@pytest.mark.parametrize(
    ("run", "shm", "expected"),
    [
        ("tmpfs", "tmpfs", ["/run", "/dev/shm"]),
        ("ext4", "tmpfs", ["/dev/shm"]),
        ("overlay", "ext4", []),
    ],
)
def test_secrets_are_put_on_file_systems_in_memory_only(run: str, shm: str, expected: list[str]) -> None:
    may_write = [path for path in expected if os.access(path, os.W_OK)]
    assert memory_places(MOUNTS.format(run=run, shm=shm), uid=0) == may_write


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_where_steps_run_as_their_users_only_that_user_reads_and_nobody_adds_files(tmp_path: Path) -> None:
    files = SecretFiles(tmp_path / "node" / "secrets", [str(tmp_path)], each_as_itself=True)
    base = Path(files.put(STEP, SECRET, Account(61_001, 61_001)))
    step = base / str(STEP)
    found = [(path.stat().st_uid, path.stat().st_gid, stat.S_IMODE(path.stat().st_mode)) for path in (base, step)]
    assert found == [(0, 0, 0o711), (0, 61_001, 0o750)]
    info = (step / "db").stat()
    assert (info.st_uid, stat.S_IMODE(info.st_mode)) == (61_001, 0o400)


# ── with the start that they belong to ────────────────────────────────────────────────────────────────────────────


class Node:
    """The agent's part: what it passes to the keeper, what it reports."""

    def __init__(self, files: SecretFiles, directory: Path) -> None:
        self.reported: list[Frame] = []

        async def made(runtime: RealRuntime) -> StepSecrets:
            return StepSecrets(runtime, files, self.reported.append)

        self.secrets = run_real(directory, made)

    def start(self, *steps: StepId, names: tuple[str, ...] = ("db",)) -> Start | None:
        template = StepTemplate(command=("true",), secrets=names)
        starts = tuple(StepStart(step, 0, "token", ("n1",), 0, 1, 1) for step in steps)
        frame = Start(epoch=1, stamp_boot_ms=1, templates=(template,), steps=starts)
        return asyncio.run(self.secrets.deliver(frame))

    @property
    def refusals(self) -> list[Refusal]:
        return [one for frame in self.reported if isinstance(frame, Refused) for one in frame.steps]


@pytest.fixture
def node(files: SecretFiles, tmp_path: Path) -> Node:
    return Node(files, tmp_path)


def sent(**values: bytes) -> Secrets:
    """The secrets of job 1."""
    return Secrets(
        values=tuple(values.values()),
        jobs=(JobSecrets(1, tuple((name, at) for at, name in enumerate(values))),),
    )


def test_the_keeper_gets_a_directory_and_never_names_or_values(node: Node) -> None:
    node.secrets.take(sent(db=b"hunter2"))
    passed = node.start(STEP, OTHER)
    assert passed is not None
    (template,) = passed.templates
    assert (template.secrets, len(passed.steps)) == ((), 2)
    assert (Path(template.secrets_dir) / str(OTHER) / "db").read_bytes() == b"hunter2"


def test_values_are_for_one_start_only(node: Node) -> None:
    node.secrets.take(sent(db=b"hunter2"))
    node.start(STEP)
    assert node.start(OTHER) is None
    assert [one.code for one in node.refusals] == [SECRETS_UNDELIVERED]


def test_a_step_does_not_begin_without_all_of_its_secrets(node: Node) -> None:
    node.secrets.take(sent(db=b"hunter2"))
    assert node.start(STEP, names=("db", "key")) is None
    assert "'key' did not arrive" in node.refusals[0].message


def test_a_node_without_memory_files_sends_the_task_elsewhere(tmp_path: Path) -> None:
    node = Node(SecretFiles(tmp_path / "node" / "secrets", []), tmp_path)
    node.secrets.take(sent(db=b"hunter2"))
    assert node.start(STEP) is None
    assert [one.code for one in node.refusals] == [SECRETS_ELSEWHERE]


def test_starts_without_secrets_pass_as_they_are(node: Node) -> None:
    frame = Start(epoch=1, stamp_boot_ms=1, templates=(StepTemplate(command=("true",)),), steps=())
    assert asyncio.run(node.secrets.deliver(frame)) is frame


@pytest.mark.parametrize(
    "report",
    [
        Exits(exits=(StepExit(STEP, ExitCause.LOST, 137, 9, 1, 2, Usage(), ""),)),
        Refused(steps=(Refusal(STEP, "no-lease", ""),)),
    ],
    ids=["an exit", "a refusal"],
)
def test_a_report_that_a_step_is_over_removes_its_secrets(node: Node, report: Frame) -> None:
    node.secrets.take(sent(db=b"hunter2"))
    passed = node.start(STEP)
    assert passed is not None
    node.secrets.record_ends(report)
    assert list(Path(passed.templates[0].secrets_dir).iterdir()) == []


def test_a_frame_of_secrets_prints_no_value() -> None:
    assert "hunter2" not in repr(sent(db=b"hunter2"))
