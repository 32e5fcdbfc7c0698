"""What every test shares: Hypothesis profiles, a HAL_HOME of its own, and the proof that no process outlives the run.

Nothing here replaces a part of HAL: the fixtures only say where HAL may write and clean up what a test left.
"""

from __future__ import annotations

import gc
import importlib
import os
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.examples import GATE, SHARE
from tests.marked_files import MARKS, is_of, may_select, possible_marks
from tests.postgres_server import PostgresServer

# No test asserts on time, Hypothesis included: neither a deadline nor a machine that is busy may fail one.
PATIENT: Final = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "print_blob": True}
settings.register_profile("ci", derandomize=True, **PATIENT)
settings.register_profile(
    GATE, settings.get_profile("ci"), max_examples=settings.get_profile("ci").max_examples // SHARE
)
settings.register_profile("dev", **PATIENT)
settings.register_profile("soak", max_examples=5_000, **PATIENT)
settings.register_profile("mutate", derandomize=True, phases=(Phase.explicit, Phase.generate), **PATIENT)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", GATE))

MARK: Final = "HAL_TEST_RUN"
"""Environment variable that every process started by this run inherits; its value names the run."""
GRACE_S: Final = 5.0
"""How long processes that are already going may take after the last test before they count as left over."""

OBJECTS_PER_COLLECTION: Final = 20_000
"""Of the youngest, before garbage is looked for; Python's own number is 700."""

# Where the tests are started in the background, interrupts and hang-ups are ignored, and what they start inherits that.
for _number, _handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)

_RUN = f"{os.getpid()}-{os.urandom(4).hex()}"
_ROOT = Path(tempfile.mkdtemp(prefix="hal-t-"))

os.environ[MARK] = _RUN
os.environ["HAL_HOME"] = str(_ROOT / "home")
(_ROOT / "run").mkdir(mode=0o700)
os.environ["XDG_RUNTIME_DIR"] = str(_ROOT / "run")
os.environ.setdefault("HAL_CACHE", str(Path(sys.prefix) / "hal-cache"))
os.environ.setdefault("NUMBA_CACHE_DIR", os.environ["HAL_CACHE"])
os.environ.setdefault("MPLBACKEND", "Agg")
# Tests of root act on behalf of users that no machine has; what HAL does of itself is tests/attacks' matter.
os.environ["HAL_RUN_AS_OWNER"] = "1"
os.environ.pop("HAL_URL", None)
os.environ.pop("HAL_TOKEN", None)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Where several processes run all tests, each first imports its share of them: what pytest makes of the assertions
    of a module takes longer than importing it, and is kept beside the module for the others."""
    workers = getattr(session.config, "workerinput", None)
    here = Path(__file__).parent
    if workers is None or [Path(arg).resolve() for arg in session.config.args] != [here]:
        return
    wanted = session.config.option.markexpr
    modules = [path for path in sorted(here.rglob("test_*.py")) if may_select(wanted, possible_marks(path))]
    for path in modules[int(workers["workerid"].removeprefix("gw")) :: workers["workercount"]]:
        # A module that cannot be imported, or skips itself, is collected again, which says so.
        with suppress(Exception, pytest.skip.Exception):
            importlib.import_module(".".join(path.relative_to(session.config.rootpath).with_suffix("").parts))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Of directories, import no file that holds nothing of what `-m` selects."""
    if collection_path.suffix != ".py" or not config.option.markexpr:
        return None
    if any(Path(str(arg).partition("::")[0]).resolve() == collection_path for arg in config.args):
        return None
    return None if may_select(config.option.markexpr, possible_marks(collection_path)) else True


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Mark what runs again with array bounds checked. Tests of a minute or more begin first, so that none is left for
    the end, when the other processes have nothing to do. A mark that a file does not show is an error: some run would
    not have imported it."""
    every = list(items)
    for item in items:
        if is_of(item.path, "kernels"):
            item.add_marker(pytest.mark.kernels)
    items.sort(key=lambda item: item.get_closest_marker("long") is None)
    yield
    for item in every:
        if hidden := {mark.name for mark in item.iter_markers()} & MARKS - possible_marks(item.path):
            raise pytest.UsageError(f"{item.nodeid} is {', '.join(hidden)}, which its file must say: marked_files.py")


def pytest_collection_finish() -> None:
    """What is loaded by now stays: looking at it again and again for garbage takes a tenth of the tests' time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(OBJECTS_PER_COLLECTION)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server of this test process's own, started when a test first asks for it."""
    server = PostgresServer()
    yield server
    server.remove()


@pytest.fixture
def hal_home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A private HAL_HOME with a short path (sockets lie beside it), set in the environment and removed afterwards."""
    home = Path(tempfile.mkdtemp(prefix="h", dir=_ROOT))
    monkeypatch.setenv("HAL_HOME", str(home))
    yield home
    shutil.rmtree(home, ignore_errors=True)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run when a process that a test started is still there; end it either way."""
    left = _wait_until_none_left()
    for pid in left:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    shutil.rmtree(_ROOT, ignore_errors=True)
    if left:
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.section("processes that outlived the tests (now killed)", red=True)
            for pid, what in left.items():
                reporter.write_line(f"{pid}: {what}", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _wait_until_none_left() -> dict[int, str]:
    deadline = time.monotonic() + GRACE_S
    while left := _marked_processes():
        rest_s = deadline - time.monotonic()
        if rest_s <= 0:
            return left
        _wait_until_one_ends(left, rest_s)
    return {}


def _wait_until_one_ends(pids: Iterable[int], most_s: float) -> None:
    with ExitStack() as open_files:
        poll = select.poll()
        for pid in pids:
            try:
                descriptor = os.pidfd_open(pid)
            except ProcessLookupError:
                return
            open_files.callback(os.close, descriptor)
            poll.register(descriptor, select.POLLIN)
        poll.poll(most_s * 1_000)


def _marked_processes() -> dict[int, str]:
    """Processes other than this one that carry the run's mark, or whose environment or command names its directory."""
    found: dict[int, str] = {}
    needles = (f"{MARK}={_RUN}".encode(), str(_ROOT).encode() + b"/")
    own = {os.getpid(), os.getppid()}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in own:
            continue
        try:
            command = (entry / "cmdline").read_bytes()
            environment = (entry / "environ").read_bytes()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if any(needle in command or needle in environment for needle in needles):
            found[int(entry.name)] = command.replace(b"\0", b" ").decode(errors="replace").strip() or entry.name
    return found
