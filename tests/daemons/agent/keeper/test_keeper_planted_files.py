"""What a step puts in the place of outputs, its own and those of steps to come: nobody waits for it or writes to it.

(H1, attempts 96 to 98)
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hal.core.model import StepId
from hal.daemons.agent.gate_notes import GateFiles
from hal.daemons.agent.keeper import deletion
from hal.daemons.agent.keeper.adoption import adopt_journals
from hal.daemons.agent.keeper.helper_process.captures import SPARE, Captures
from hal.daemons.agent.keeper.helper_process.programs import shebang
from hal.daemons.agent.keeper.helper_process.spawn_failures import CannotSpawnError
from hal.daemons.agent.keeper.helper_process.step_files import Directories, write_script
from hal.daemons.agent.keeper.journal import FileJournal
from hal.daemons.agent.keeper.outputs import MAX_OFFSET, OutputFiles
from hal.daemons.agent.keeper.ports import Booted
from hal.daemons.agent.node_file import read_node_section
from hal.daemons.agent.node_id import read_node_id
from hal.wire.frames.agent_keeper import ForgetPiece, Stream

STEP = StepId(1, 0, 1, 0)
BOUND = 100_000
SECRET = b"0123456789abcdef" * 62_500  # 1 MB: over the bound


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    """Whoever waits is interrupted, and has failed."""

    def late(number: int, frame: object) -> None:
        raise AssertionError("it waits for what a step has put there")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def fifo(path: Path, victim: Path) -> None:
    os.mkfifo(path)


def link(path: Path, victim: Path) -> None:
    path.symlink_to(victim)


def dangling(path: Path, victim: Path) -> None:
    path.symlink_to(victim.with_name("nothing"))


def hard_link(path: Path, victim: Path) -> None:
    os.link(victim, path)


def bound_socket(path: Path, victim: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        here = os.getcwd()
        os.chdir(path.parent)  # the kernel allows 107 bytes
        try:
            made.bind(path.name)
        finally:
            os.chdir(here)


def directory(path: Path, victim: Path) -> None:
    path.mkdir()


def looped(path: Path, victim: Path) -> None:
    path.symlink_to(path)


Plant = Callable[[Path, Path], None]
PLANTS: list[Plant] = [fifo, link, dangling, hard_link, bound_socket, directory, looped]
NO_FILES: list[Plant] = [plant for plant in PLANTS if plant is not hard_link]
NO_DIRECTORIES: list[Plant] = [plant for plant in NO_FILES if plant is not directory]


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file of the same account, of which nothing may be read or lost."""
    path = tmp_path / "victim"
    path.write_bytes(SECRET)
    return path


@pytest.fixture
def steps(tmp_path: Path) -> Path:
    return tmp_path / "steps"


def untouched(victim: Path) -> bool:
    """Nothing of it was punched out or cut off, and nothing else was made beside it."""
    whole = victim.read_bytes() == SECRET and victim.stat().st_blocks * 512 >= len(SECRET)
    return whole and not victim.with_name("nothing").exists()


# ── the keeper ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("plant", PLANTS)
def test_a_step_that_replaced_its_output_is_read_as_an_error(steps: Path, victim: Path, plant: Plant) -> None:
    """No byte of another file, no wait; the error says what is there."""
    outputs = OutputFiles(steps)
    outputs.prepare(STEP)
    (steps / "1" / "0.1.0.stdout").unlink()
    plant(steps / "1" / "0.1.0.stdout", victim)
    part = outputs.read(STEP, Stream.STDOUT, 0, 1_000)
    assert (part.data, part.size) == (b"", 0)
    assert "0.1.0.stdout: " in part.error
    assert str(victim) not in part.error


@pytest.mark.parametrize("plant", PLANTS)
def test_a_step_that_replaced_its_output_costs_no_other_file_a_byte(steps: Path, victim: Path, plant: Plant) -> None:
    """Neither while it runs nor at its end; the end says it."""
    outputs = OutputFiles(steps)
    outputs.prepare(STEP)
    (steps / "1" / "0.1.0.stdout").unlink()
    plant(steps / "1" / "0.1.0.stdout", victim)
    assert not outputs.bound([(STEP, BOUND)])
    assert "stdout" in outputs.settle(STEP, BOUND)
    assert untouched(victim)


@pytest.mark.parametrize("plant", PLANTS)
def test_a_note_that_a_step_planted_is_not_waited_for(steps: Path, victim: Path, plant: Plant) -> None:
    """`.kept` in place of the keeper's: passed over for reading, replaced when the keeper has something to note."""
    outputs = OutputFiles(steps)
    outputs.prepare(STEP)
    output = steps / "1" / "0.1.0.stdout"
    output.write_bytes(SECRET)
    plant(Path(f"{output}.kept"), victim)
    assert outputs.read(STEP, Stream.STDOUT, 100, 6).data == SECRET[100:106]
    outputs.bound([(STEP, BOUND)])
    outputs.settle(STEP, BOUND)
    assert output.stat().st_blocks * 512 < BOUND + 8192
    assert untouched(victim)


@pytest.mark.parametrize("plant", PLANTS)
def test_a_scratch_file_that_a_step_planted_is_not_written_to(steps: Path, victim: Path, plant: Plant) -> None:
    """`.kept.new` as a link to a victim."""
    outputs = OutputFiles(steps)
    outputs.prepare(STEP)
    output = steps / "1" / "0.1.0.stdout"
    output.write_bytes(SECRET)
    plant(Path(f"{output}.kept.new"), victim)
    outputs.settle(STEP, BOUND)
    assert output.stat().st_blocks * 512 < BOUND + 8192
    assert untouched(victim)


@pytest.mark.parametrize(
    "note",
    ["cut 99999999999999999999999999 5", "emptied -5 0", f"emptied {MAX_OFFSET} 0", "x" * 1_000_000, "1 2", "\0"],
)
def test_a_note_that_lies_makes_no_offset_that_cannot_be_sent(steps: Path, note: str) -> None:
    """Offsets stay within what every reader can count to, whatever a step writes there."""
    outputs = OutputFiles(steps)
    outputs.prepare(STEP)
    (steps / "1" / "0.1.0.stdout").write_bytes(SECRET)
    (steps / "1" / "0.1.0.stdout.kept").write_text(note)
    part = outputs.read(STEP, Stream.STDOUT, 0, 10)
    assert 0 <= part.offset <= part.size <= MAX_OFFSET
    outputs.bound([(STEP, BOUND)])
    outputs.settle(STEP, BOUND)


def test_an_output_of_eight_exbibytes_is_an_error_not_a_number(steps: Path) -> None:
    """A hole: the step may make its file as long as it likes."""
    outputs = OutputFiles(steps)
    outputs.prepare(STEP)
    path = steps / "1" / "0.1.0.stdout"
    for power in range(62, 40, -1):  # as long as the file system lets it be
        with contextlib.suppress(OSError):
            os.truncate(path, 1 << power)
            break
    part = outputs.read(STEP, Stream.STDOUT, -1, 10)
    assert part.size <= MAX_OFFSET
    assert outputs.bound([(STEP, BOUND)]) in (True, False)


@pytest.mark.parametrize("plant", NO_DIRECTORIES)
def test_a_job_that_replaced_its_directory_stops_nobody(steps: Path, victim: Path, plant: Plant) -> None:
    """The directory of the job is a FIFO, a link, a loop: reading, bounding, settling, deleting go on."""
    outputs = OutputFiles(steps)
    outputs.prepare(STEP)
    for name in ("0.1.0.stdout", "0.1.0.stderr"):
        (steps / "1" / name).unlink()
    (steps / "1").rmdir()
    plant(steps / "1", victim)
    assert outputs.read(STEP, Stream.STDOUT, 0, 10).error
    assert not outputs.bound([(STEP, BOUND)])
    outputs.settle(STEP, BOUND)
    assert outputs.prepare(STEP)
    outputs.forget([ForgetPiece(STEP.job, 1, 0, 1)])
    assert not outputs.work()
    assert untouched(victim)


def test_a_job_directory_that_is_a_link_leads_nowhere(steps: Path, tmp_path: Path, victim: Path) -> None:
    """Files of the same names elsewhere are neither read nor shortened nor deleted."""
    outputs = OutputFiles(steps)
    steps.mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    os.rename(victim, elsewhere / "0.1.0.stdout")
    (steps / "1").symlink_to(elsewhere)
    assert outputs.read(STEP, Stream.STDOUT, 0, 10).data == b""
    outputs.bound([(STEP, BOUND)])
    outputs.settle(STEP, BOUND)
    outputs.forget([ForgetPiece(STEP.job, 1, 0, 1)])
    assert not outputs.work()
    assert untouched(elsewhere / "0.1.0.stdout")


def test_a_link_in_the_place_of_all_steps_leads_nowhere(steps: Path, tmp_path: Path, victim: Path) -> None:
    """A job moved `steps` away and put a link there: what lies where it leads is neither read, cut nor deleted."""
    outputs = OutputFiles(steps)
    (tmp_path / "elsewhere" / "1").mkdir(parents=True)
    os.rename(victim, tmp_path / "elsewhere" / "1" / "0.1.0.stdout")
    steps.symlink_to(tmp_path / "elsewhere")
    assert outputs.read(STEP, Stream.STDOUT, 0, 10).data == b""
    assert outputs.prepare(STEP)
    outputs.bound([(STEP, BOUND)])
    outputs.settle(STEP, BOUND)
    outputs.forget([ForgetPiece(STEP.job, 1, 0, 1)])
    assert not outputs.work()
    assert untouched(tmp_path / "elsewhere" / "1" / "0.1.0.stdout")


def test_a_link_that_was_there_before_the_keeper_leads_to_another_disk(steps: Path, tmp_path: Path) -> None:
    """As its owner wants it: outputs lie there."""
    (tmp_path / "disk").mkdir()
    steps.symlink_to(tmp_path / "disk")
    outputs = OutputFiles(steps)
    assert outputs.prepare(STEP) == ""
    assert (tmp_path / "disk" / "1" / "0.1.0.stdout").exists()
    assert outputs.directory(STEP) == str(tmp_path / "disk" / "1")


def test_a_file_swapped_after_it_was_looked_at_is_not_shortened(
    steps: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look said: ours, and too long. What is opened then is judged again."""
    outputs = OutputFiles(steps)
    outputs.prepare(STEP)
    output = steps / "1" / "0.1.0.stdout"
    output.write_bytes(SECRET)
    look = os.lstat

    def look_then_swap(path: str) -> os.stat_result:
        info = look(path)
        if path == str(output) and not output.is_symlink():
            output.unlink()
            output.symlink_to(victim)
        return info

    monkeypatch.setattr(os, "lstat", look_then_swap)
    assert not outputs.bound([(STEP, BOUND)])
    assert untouched(victim)


def test_a_directory_of_many_files_is_looked_through_in_turns(steps: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job may make as many as it likes: no turn takes long, and what was to go is gone at the end."""
    monkeypatch.setattr(deletion, "MAX_LOOKED_PER_TURN", 100)
    outputs = OutputFiles(steps)
    outputs.prepare(STEP)
    for number in range(300):
        os.close(os.open(steps / "1" / f"junk{number}", os.O_CREAT | os.O_WRONLY))
    outputs.forget([ForgetPiece(1, 1, 0, 1)])
    turns = 1
    while outputs.work():
        turns += 1
    assert turns >= 3
    assert not (steps / "1" / "0.1.0.stdout").exists()


# ── the helper ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def captures() -> Iterator[Captures]:
    """The outputs of a helper that has created none yet."""
    captures = Captures("helper-1", Directories())
    yield captures
    captures.close()


def begin(captures: Captures, steps: Path, task: int = 0) -> list[int]:
    """Open the outputs of a step of job 1; their descriptors."""
    opened: list[int] = []
    _, problem = captures.open(f"1.{task}.1.0", f"{steps}/1/{task}.1.0", opened)
    assert not problem
    return opened


def write(captures: Captures, opened: list[int], data: bytes) -> None:
    """Write to the stdout of a step; the file has its name then."""
    os.write(opened[0], data)
    assert captures.name_written() == []


@pytest.mark.parametrize("plant", NO_FILES)
@pytest.mark.parametrize("name", ["0.1.0.stdout", "0.1.0.stderr"])
def test_a_step_whose_output_was_planted_fails_and_says_why(
    captures: Captures, steps: Path, victim: Path, plant: Plant, name: str
) -> None:
    """By a job that knew the number of the next."""
    (steps / "1").mkdir(parents=True)
    plant(steps / "1" / name, victim)
    with pytest.raises(
        CannotSpawnError, match=f"its output cannot be created: .*/1/{name}: .* is in the place"
    ) as error:
        begin(captures, steps)
    assert error.value.code == 126
    assert untouched(victim)


@pytest.mark.parametrize("plant", NO_DIRECTORIES)
def test_a_step_whose_directory_was_planted_fails_and_says_why(
    captures: Captures, steps: Path, victim: Path, plant: Plant
) -> None:
    """A link leads the output of nobody elsewhere."""
    steps.mkdir()
    plant(steps / "1", victim)
    with pytest.raises(CannotSpawnError, match=r"/steps/1: .* is in the place of the directory"):
        begin(captures, steps)


def test_a_link_in_the_place_of_all_steps_gets_no_output(captures: Captures, steps: Path, tmp_path: Path) -> None:
    """Neither that of the next job, nor that of a job whose directory was deleted."""
    (tmp_path / "elsewhere").mkdir()
    steps.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CannotSpawnError, match=r"/steps: a symbolic link is in the place of the directory"):
        begin(captures, steps)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_the_outputs_of_an_attempt_are_new_files(captures: Captures, steps: Path, victim: Path) -> None:
    """What was there under their names (a hard link to a victim, a file that somebody holds open) is not written to."""
    (steps / "1").mkdir(parents=True)
    os.link(victim, steps / "1" / "0.1.0.stdout")
    write(captures, begin(captures, steps), b"its own")
    assert (steps / "1" / "0.1.0.stdout").read_bytes() == b"its own"
    assert untouched(victim)


@pytest.mark.parametrize("plant", NO_FILES)
def test_what_a_step_puts_in_the_place_of_its_output_is_replaced_by_it(
    captures: Captures, steps: Path, victim: Path, plant: Plant
) -> None:
    """Before its first byte: nothing is written through it."""
    opened = begin(captures, steps)
    (steps / "1").mkdir()
    plant(steps / "1" / "0.1.0.stdout", victim)
    os.write(opened[0], b"its own")
    problems = captures.name_written()
    assert problems == [] or "was not kept" in problems[0][1]
    assert untouched(victim)


@pytest.mark.parametrize("change", ["link", "write", "replace", "mode", "remove"])
def test_a_spare_file_that_was_changed_serves_no_other_step(
    captures: Captures, steps: Path, victim: Path, change: str
) -> None:
    """A step that knows where they are gives one another name, text, place or mode: the next step gets a new file."""
    opened: list[int] = []
    taken, _ = captures.open("1.0.1.0", f"{steps}/1/0.1.0", opened)
    assert captures.ended(taken, left=False) == ""
    spare = steps / SPARE / taken[1].name
    if change == "link":
        os.link(spare, steps / "other")
    elif change == "write":
        spare.write_text("planted")
    elif change == "mode":
        spare.chmod(0o644)
    else:
        spare.unlink()
        if change == "replace":
            spare.symlink_to(victim)
    again: list[int] = []
    then, problem = captures.open("1.1.1.0", f"{steps}/1/1.1.0", again)
    assert not problem
    assert [os.fstat(fd).st_size for fd in again] == [0, 0]
    assert spare.name not in [one.name for one in then]
    os.write(again[0], b"a")
    os.write(again[1], b"b")
    captures.name_written()
    assert (steps / "1" / "1.1.0.stdout").read_bytes() == b"a"
    assert (steps / "1" / "1.1.0.stderr").read_bytes() == b"b"
    assert untouched(victim)


def test_a_directory_swapped_after_it_was_opened_gets_nothing(captures: Captures, steps: Path, tmp_path: Path) -> None:
    """The second step of a job writes where the first one did, or fails; never where a link leads."""
    write(captures, begin(captures, steps), b"one")
    (steps / "1").rename(tmp_path / "moved")
    (tmp_path / "elsewhere").mkdir()
    (steps / "1").symlink_to(tmp_path / "elsewhere")
    write(captures, begin(captures, steps, task=1), b"two")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_directory_that_was_deleted_is_made_again(captures: Captures, steps: Path) -> None:
    """Its job's earlier attempts were forgotten, and it with them; or somebody removed all of it."""
    write(captures, begin(captures, steps), b"one")
    shutil.rmtree(steps)
    write(captures, begin(captures, steps, task=1), b"two")
    assert (steps / "1" / "1.1.0.stdout").read_bytes() == b"two"


@pytest.mark.parametrize("plant", NO_FILES)
def test_a_script_whose_place_was_planted_is_written_nowhere(steps: Path, victim: Path, plant: Plant) -> None:
    """`.script` as a FIFO or a link: the step fails."""
    (steps / "1").mkdir(parents=True)
    plant(steps / "1" / "0.1.0.script", victim)
    with pytest.raises(CannotSpawnError, match="its script cannot be written"):
        write_script(Directories(), f"{steps}/1/0.1.0", "#!/bin/sh\n")
    assert untouched(victim)


def test_a_fifo_as_the_program_is_not_read_for_its_interpreter(tmp_path: Path) -> None:
    """`hal run -- /tmp/fifo`: the look for `#!` must not wait for somebody to write it."""
    os.mkfifo(tmp_path / "program", 0o700)
    assert shebang(str(tmp_path / "program")) == []


# ── journals and notes ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("plant", NO_FILES)
def test_a_planted_journal_is_set_aside(tmp_path: Path, victim: Path, plant: Plant) -> None:
    """The keeper's own: it begins a new one."""
    plant(tmp_path / "keeper.log", victim)
    plant(tmp_path / "keeper.new", victim)
    journal = FileJournal(tmp_path / "keeper.log")
    assert journal.load() == []
    journal.append([Booted("b")])
    if plant is not directory:
        journal.replace([Booted("c")])
        assert journal.load() == [Booted("c")]
    journal.close()
    assert untouched(victim)


@pytest.mark.parametrize("plant", NO_FILES)
def test_a_planted_journal_of_a_helper_is_passed_over(tmp_path: Path, victim: Path, plant: Plant) -> None:
    """Every start of a keeper reads all that are there."""
    plant(tmp_path / "helper-1-2-3.log", victim)
    assert adopt_journals(tmp_path, []) == ([], {})


@pytest.mark.parametrize("plant", NO_FILES)
def test_planted_notes_of_the_agent_are_passed_over(tmp_path: Path, victim: Path, plant: Plant) -> None:
    """Notes of gates, the word by which controllers know the node, the site's file."""
    plant(tmp_path / "1.0.1.0.gate", victim)
    assert list(GateFiles(tmp_path).load()) == []
    plant(tmp_path / "id", victim)
    assert read_node_id(tmp_path / "id", lambda: "word") == ""
    os.mkfifo(tmp_path / "hal.toml")
    with pytest.raises(Exception, match="cannot be read: a FIFO is in the place of the file"):
        read_node_section(tmp_path / "hal.toml")
