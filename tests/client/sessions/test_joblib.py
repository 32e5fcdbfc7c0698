"""joblib on a session: its own tests of parallel calls, and what is special to HAL."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from math import sqrt
from pathlib import Path
from typing import Final

import pytest

pytest.importorskip("joblib")

import joblib
import joblib.test
import numpy as np
from joblib import Parallel, delayed

import hal.client.sessions.joblib_backend  # noqa: F401  registers it
from hal.client.session import Session, SessionLost
from hal.core.model.errors import SpecError
from tests.client.sessions.processes import Processes, processes

ROOT: Final = Path(__file__).parents[3]
EXAMPLE: Final = ROOT / "examples" / "sessions" / "joblib_squares.py"
JOBLIBS_OWN: Final = Path(joblib.test.__file__).parent / "test_parallel.py"
DIFFERENT: Final = {
    "nested": "pools that workers start are joblib's own, and a forked child has to open the session itself",
    "error_capture": "looks into the pool of the backend's own processes",
    "dispatch_multiprocessing": "shares a list of a multiprocessing.Manager, whose key only its own children have",
    "initializer": "an initialiser is an option of the session, not of joblib",
    "overwrite_default_backend": "compares with the class of loky",
    "auto_memmap_on_arrays": "arrays are not memmaps but views of a frame or a file",
    "memmapping_leaks": "so there are no memmaps to count",
    "call_separated_gc": "two generators at a time are refused by loky, whose pool they share; HAL runs both",
    "thread_limit": "variables that limit threads are those of the worker's job",
    "threadpool_limitation": "and so are these",
    "thread_bomb": "counts threads of pools that loky makes",
    "with_big_offset": "arrays are not memmaps",
    "backend_context_manager": "so does this",
    "timeout_fail_with_generator": "what is given up and runs is not killed, and keeps its slot",
    "loky_reuse": "the pool of loky itself",
    "interactively_defined": "runs a script of its own, which has loky itself",
    "unpicklable_functions": "so does this",
    "no_blas_crash": "and tests processes of loky's",
}
"""Tests of joblib's that do not apply, by a part of their name, and why."""
LEAST: Final = 60
"""So many of them do apply."""


@pytest.fixture(scope="module")
def running() -> Iterator[Processes]:
    with processes() as started:
        yield started


@pytest.fixture
def session(running: Processes) -> Iterator[Session]:
    with running.open() as opened:
        yield opened


def test_calls_run_in_the_slots(session: Session) -> None:
    """In order, as generators, with arrays; none of them here."""
    with joblib.parallel_config("hal", session=session, slots=2):
        assert Parallel()(delayed(sqrt)(number**2) for number in range(3_000)) == list(range(3_000))
        assert list(Parallel(return_as="generator")(delayed(abs)(-one) for one in range(50))) == list(range(50))
        assert os.getpid() not in set(Parallel()(delayed(os.getpid)() for _ in range(20)))
        arrays = Parallel()(delayed(np.square)(np.full(300_000, one)) for one in range(4))
        assert [array[-1] for array in arrays] == [0, 1, 4, 9]


def test_an_exception_of_a_call_is_raised(session: Session) -> None:
    """The next call begins afresh."""
    with joblib.parallel_config("hal", session=session, slots=2):
        with pytest.raises(ZeroDivisionError):
            Parallel()(delayed(divmod)(7, 3 - number) for number in range(500))
        assert Parallel()(delayed(divmod)(7, number) for number in (1, 2)) == [(7, 0), (3, 1)]


def test_a_backend_needs_a_session() -> None:
    """And says so."""
    with joblib.parallel_config("hal"), pytest.raises(SpecError, match="has no session"):
        Parallel()(delayed(abs)(one) for one in range(3))


def test_a_forked_child_has_no_session(session: Session) -> None:
    """Its parent's connection goes on."""
    assert session.submit(abs, -1).result(30) == 1
    pid = os.fork()
    if not pid:
        try:
            session.submit(abs, -2)
        except SessionLost:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    assert session.submit(abs, -3).result(30) == 3


def test_the_example(running: Processes) -> None:
    """It prints the sum of squares."""
    run = subprocess.run([sys.executable, str(EXAMPLE), str(running.file)], capture_output=True, text=True, check=True)
    assert run.stdout == "332833500\n"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.long
def test_joblibs_own_tests_pass(running: Processes) -> None:
    """Those of parallel calls, with HAL in the place of its default pool of processes."""
    applies = " and ".join(["loky", *(f"not {part}" for part in DIFFERENT)])
    outcome = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "tests.client.sessions.joblib_on_hal",
         "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(JOBLIBS_OWN.parent), "--timeout", "60",
         "-k", applies, "--durations=6", str(JOBLIBS_OWN)],
        env={**os.environ, "SESSION_FILE": str(running.file), "PYTHONPATH": str(ROOT)},
        cwd=JOBLIBS_OWN.parent,
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert outcome.returncode == 0, outcome.stdout[-8_000:]
    passed = re.search(r"(\d+) passed", outcome.stdout)
    assert passed, outcome.stdout
    assert int(passed.group(1)) >= LEAST
