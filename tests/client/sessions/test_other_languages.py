"""The client in C: built with the machine's compiler, run against real processes."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hal.client.session import Session
from hal.runtime import byte_tasks
from tests.client.sessions.processes import Processes, processes

SOURCE = Path(__file__).parents[3] / "examples" / "sessions" / "c" / "stream.c"
WAIT_S = 60


@pytest.fixture(scope="module")
def running() -> Iterator[Processes]:
    with processes() as started:
        yield started


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> str:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    program = tmp_path_factory.mktemp("c") / "stream"
    subprocess.run([compiler, "-O2", "-Wall", "-Wextra", "-Werror", "-o", program, SOURCE], check=True)
    return str(program)


def stream(client: str, *arguments: str, lines: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([client, *arguments], input=lines, capture_output=True, text=True, timeout=WAIT_S)


def test_commands_run_and_answer_in_order(client: str, running: Processes) -> None:
    """Output, complaints and exit codes come back."""
    lines = "".join(f"sleep 0.0{number % 3}; echo {number}\n" for number in range(60))
    run = stream(client, str(running.file), lines=lines)
    assert (run.returncode, run.stdout.split()) == (0, [str(number) for number in range(60)])
    run = stream(client, str(running.file), lines="echo oh >&2; exit 3\nkill -9 $$\necho fine\n")
    assert (run.returncode, run.stdout) == (1, "fine\n")
    assert run.stderr == "oh\nexit code 3\nexit code -9\n"


def test_bytes_go_to_a_function_and_back(client: str, running: Processes) -> None:
    """More than a window of them, with long ones, which leave by several frames."""
    words = [f"{number:x}" for number in range(30_000)] + ["x" * 100_000, "", "y" * 400_000]
    run = stream(client, str(running.file), "builtins:bytes.upper", lines="".join(f"{word}\n" for word in words))
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout == "".join(f"{word.upper()}\n" for word in words)


def test_a_function_that_fails_says_why(client: str, running: Processes) -> None:
    """The others go on."""
    run = stream(client, str(running.file), "binascii:unhexlify", lines="6162\nxy\n6364\n")
    assert (run.returncode, run.stdout) == (1, "ab\ncd\n")
    assert "binascii.Error" in run.stderr
    run = stream(client, str(running.file), "nowhere:f", lines="1\n")
    assert (run.returncode, run.stdout) == (1, "")
    assert "No module named 'nowhere'" in run.stderr
    run = stream(client, str(running.file), "builtins:len", lines="1\n")
    assert "returned int" in run.stderr


def test_a_session_that_refuses_is_reported(client: str, running: Processes, tmp_path: Path) -> None:
    """As is one that is not there."""
    other = tmp_path / "session.json"
    text = running.file.read_text()
    at = text.index('"token":"') + len('"token":"')
    other.write_text(text[:at] + ("1" if text[at] == "0" else "0") + text[at + 1 :])
    run = stream(client, str(other), lines="true\n")
    assert run.returncode == 2
    assert "refuses" in run.stderr
    assert stream(client, str(tmp_path / "none"), lines="").returncode == 2


def test_commands_run_from_python_too(running: Processes) -> None:
    """The same functions, as tasks of any client."""
    with running.open() as session:
        assert (
            session.submit(byte_tasks.command, b"/bin/echo", b"hi").result(WAIT_S) == struct.pack("<iI", 0, 3) + b"hi\n"
        )
        code, _ = struct.unpack_from("<iI", session.submit(byte_tasks.command, b"/nowhere").result(WAIT_S))
        assert code == 127
        _bounded(session)


def _bounded(session: Session) -> None:
    """A command that prints more than fits is cut off."""
    flood = session.submit(byte_tasks.command, b"/bin/sh", b"-c", b"yes | head -c 3000000; exit 5").result(WAIT_S)
    assert struct.unpack_from("<iI", flood) == (5, byte_tasks.MAX_OUTPUT_BYTES)
