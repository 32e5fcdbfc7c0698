"""CPython's own tests of executors, against a session in the place of a pool.

They are part of CPython's sources and of few installations: on Debian of the package `libpython3.11-testsuite`.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import unittest
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

from tests.client.sessions.processes import Processes, processes

NAME: Final = "test_concurrent_futures"
VERSION: Final = f"python{sys.version_info.major}.{sys.version_info.minor}"
MIXINS: Final = ("ExecutorTest", "WaitTests", "AsCompletedTests")
OTHERS: Final = {
    "ExecutorShutdownTest": ("test_run_after_shutdown", "test_hang_issue12364"),
    "InitializerMixin": ("test_initializer",),
}
"""Of classes that are for one pool otherwise, those that say something of any executor."""
DIFFERENT: Final = {"test_max_workers_negative": "a session has slots; an executor does not make workers"}
"""Tests that do not apply, and why."""
LEAST: Final = 22
"""So many do."""


def _source() -> Path | None:
    """The file of CPython's tests, of this version of Python."""
    places = [Path(os.__file__).parent / "test", Path("/usr/lib") / VERSION / "test"]
    if given := os.environ.get("CPYTHON_TESTS"):
        places.insert(0, Path(given))
    return next((file for place in places if (file := place / f"{NAME}.py").is_file()), None)


SOURCE: Final = _source()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        SOURCE is None or importlib.util.find_spec("test.support") is None,
        reason=f"CPython's tests are not here: install lib{VERSION}-testsuite, or let CPYTHON_TESTS name where",
    ),
]


@pytest.fixture(scope="module")
def cpython(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The tests as a module that workers can import, too."""
    assert SOURCE is not None
    directory = tmp_path_factory.mktemp("cpython")
    (directory / f"{NAME}.py").symlink_to(SOURCE)
    patch = pytest.MonkeyPatch()
    patch.syspath_prepend(str(directory))
    patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(directory), os.environ.get("PYTHONPATH", "")])))
    yield importlib.import_module(NAME)
    patch.undo()
    del sys.modules[NAME]


@pytest.fixture(scope="module")
def running(cpython: ModuleType) -> Iterator[Processes]:
    with processes(workers=3) as started:
        yield started


def test_executor_tests_of_cpython_pass(cpython: ModuleType, running: Processes) -> None:
    """All of its three mixins for any executor, and some of others."""
    from hal.client.session import open_session

    def executor(max_workers: int, **options: Any) -> Any:
        return open_session(running.file, **options)

    suite = unittest.TestSuite()
    mixins: dict[str, Any] = dict.fromkeys(MIXINS, ()) | OTHERS
    for name, chosen in mixins.items():
        mixin = getattr(cpython, name)
        bases = (mixin, cpython.BaseTestCase)
        if not issubclass(mixin, cpython.ExecutorMixin):
            bases = (mixin, cpython.ExecutorMixin, cpython.BaseTestCase)
        case = type(f"Session{name}", bases, {"executor_type": staticmethod(executor)})
        for test in unittest.TestLoader().getTestCaseNames(case):
            if test not in DIFFERENT and (not chosen or test in chosen):
                suite.addTest(case(test))
    count = suite.countTestCases()
    outcome = unittest.TestResult()
    suite.run(outcome)
    assert "\n".join(text for _, text in outcome.failures + outcome.errors) == ""
    assert outcome.skipped == []
    assert outcome.testsRun == count
    assert count >= LEAST
