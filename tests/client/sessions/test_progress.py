"""Lines that show how far tasks have come: on a terminal, in a notebook, and nowhere else."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from hal.client.progress_line import ProgressLine
from hal.client.sessions.progress import Progress, length_of, line_of
from tests.client.sessions.processes import WAIT_S, Processes, processes

SCRIPT = """
import sys
from hal.client.session import open_session

def check(number):
    if number == 7:
        raise ValueError(number)
    return number

with open_session(sys.argv[1]) as session:
    assert list(session.map(abs, range(2_000), progress="squares")) == list(range(2_000))
    futures = [session.submit(check, number) for number in range(100)]
    done = list(session.progress(futures, "checks"))
    assert len(done) == 100 and set(done) == set(futures)
    assert list(session.map(abs, iter(range(10)), progress=True)) == list(range(10))
print("ended")
"""


@pytest.fixture(scope="module")
def running() -> Iterator[Processes]:
    with processes() as started:
        yield started


def test_progress_is_shown_on_a_terminal(running: Processes) -> None:
    """While tasks run and when they have ended; then the line is gone."""
    ours, theirs = pty.openpty()
    argv = [sys.executable, "-c", SCRIPT, str(running.file)]
    started = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=theirs, text=True)
    os.close(theirs)
    shown = b""
    while True:
        try:
            data = os.read(ours, 4096)
        except OSError:  # nobody has it open any more
            break
        if not data:
            break
        shown += data
    os.close(ours)
    out, _ = started.communicate(timeout=WAIT_S)
    assert (out, started.returncode) == ("ended\n", 0)
    assert b"] squares: 2,000 of 2,000 tasks" in shown
    assert b"] checks: 100 of 100 tasks, 1 failed" in shown
    assert b"10 tasks" in shown
    assert shown.endswith(b"\r\x1b[K")


def test_nothing_is_shown_elsewhere(running: Processes) -> None:
    """Standard error is a pipe."""
    argv = [sys.executable, "-c", SCRIPT, str(running.file)]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=WAIT_S)
    assert (ended.stdout, ended.stderr) == ("ended\n", "")


def test_progress_is_shown_in_a_notebook(running: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the cell, which keeps the last state."""
    cells: list[list[str]] = []

    class Cell:
        def __init__(self, shown: dict[str, str]) -> None:
            self.texts = [shown["text/plain"]]
            cells.append(self.texts)

        def update(self, shown: dict[str, str], *, raw: bool) -> None:
            assert raw
            self.texts.append(shown["text/plain"])

    display: Any = ModuleType("IPython.display")
    display.display = lambda shown, *, raw, display_id: Cell(shown)
    notebook: Any = ModuleType("IPython")
    notebook.get_ipython = lambda: SimpleNamespace(kernel=object())
    notebook.display = display
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    with running.open() as session:
        assert sum(session.map(abs, range(100), progress=True)) == 4_950
    (texts,) = cells
    assert "of 100 tasks" in texts[0]
    assert "[####################] 100 of 100 tasks" in texts[-1]


def test_a_map_that_is_not_taken_shows_nothing(running: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    """And one that is left early is closed."""
    shown: list[str] = []
    monkeypatch.setattr(ProgressLine, "shown", True)
    monkeypatch.setattr(ProgressLine, "show", lambda _self, text, _part=None: shown.append(text))
    with running.open() as session:
        session.map(abs, range(10), progress=True)
        assert shown == []
        results = session.map(abs, range(10), progress="left")
        assert next(results) == 0
        results.close()  # type: ignore[attr-defined]
    assert shown[-1].startswith("left: ")


def test_a_line_says_what_is_known() -> None:
    """Without a rate nobody knows how long it takes."""
    assert line_of("fit", Progress(340, 2, 1_000), 85.0, 4) == (
        "fit: 340 of 1,000 tasks, 2 failed, 85 a second, 4 slots, 0:08 left"
    )
    assert line_of("", Progress(5, 0, None), 0.5, 1) == "5 tasks, 0.5 a second, 1 slot"
    assert line_of("", Progress(0, 0, 20_000), 0.0, None) == "0 of 20,000 tasks"
    assert line_of("", Progress(1, 0, 7_201), 1.0, None) == "1 of 7,201 tasks, 1.0 a second, 2:00:00 left"


def test_the_total_is_that_of_the_shortest_iterable_if_all_are_known() -> None:
    assert length_of(([1, 2, 3], range(2))) == 2
    assert length_of(([1, 2], iter([1]))) is None
    assert length_of(()) == 0
