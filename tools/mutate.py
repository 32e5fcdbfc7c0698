"""Which wrong versions of a module do its tests notice? `make mutate`, or

    .venv/bin/python tools/mutate.py src/hal/core/lifecycle/gates.py -- tests/core/lifecycle
    .venv/bin/python tools/mutate.py --area lifecycle --sample 60 --seed 1

Each mutant (see mutants.py) is written into a copy of the tree, and the tests run on it in a process of their own until
the first that fails. A mutant is noticed when one fails, or when the run takes much more processor time than without
it. The report names each one that survives. A survivor is a test to write, a line to delete, or an equivalent mutant,
one whose behaviour nobody can tell from the original's; equivalent ones are listed in mutate.toml, each with its
reason, and are not counted.

Our own 500 lines, because the maintained tools do not fit: mutmut 3 keeps all mutants of a function in one rewritten
module and chooses one when it is called, so it mutates nothing at module level, where our tables, bounds and enums are;
cosmic-ray mutates in place, draws no seeded sample of a given size per module, and starts an interpreter with all its
imports for each mutant, which takes longer than most of our tests. Here each run is forked from a process that has
pytest, Hypothesis, NumPy and numba loaded.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

# Before pytest and numba are imported: kernels run as plain Python, for compiling them takes minutes for each mutant; a
# test that found its example need not look for a smaller one; other plugins take longer to load than most tests to run.
os.environ |= {"NUMBA_DISABLE_JIT": "1", "HYPOTHESIS_PROFILE": "mutate", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}

import hypothesis.stateful  # noqa: F401
import msgspec.json  # noqa: F401
import numba  # noqa: F401
import numpy.typing  # noqa: F401
import pytest
import pytest_timeout  # noqa: F401
from mutants import Mutant, mutants_of

ROOT: Final = Path(__file__).parents[1]
SETTINGS: Final = ROOT / "tools" / "mutate.toml"
COPIED: Final = ("src", "tests", "docs", "spec", "tools", "examples", "pyproject.toml", "Makefile", "README.md")
IDENTITY: Final = ("file", "function", "line", "was", "becomes")
FAST: Final = "not slow and not soak and not attack"
CPU_FACTOR: Final = 4
"""How many times as much processor time as without a mutant ends a run."""
CPU_SPARE_S: Final = 5
WALL_FACTOR: Final = 12
"""The same of time on the clock, for tests that wait for what never comes; a busy machine must not reach it."""


@dataclass(frozen=True)
class Run:
    """How one run of the tests ended, and what it took."""

    code: int
    """Exit code of pytest; negative where it was killed."""
    cpu_s: float
    wall_s: float

    @property
    def cpu_limit_s(self) -> int:
        return int(self.cpu_s * CPU_FACTOR) + CPU_SPARE_S

    @property
    def wall_limit_s(self) -> int:
        return int(self.wall_s * WALL_FACTOR) + 30


class Copy:
    """A copy of the tree, in which one mutant at a time stands."""

    def __init__(self, place: Path, tests: list[str]) -> None:
        self.place = place
        self.tests = tests
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, place / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
            else:
                place.mkdir(exist_ok=True)
                shutil.copy2(source, place / name)

    def baseline(self) -> Run:
        """One run without a mutant, which must pass; another before it leaves compiled bytecode behind."""
        self._tested(None, keep_bytecode=True)
        run = self._tested(None)
        if run.code:
            sys.exit(f"mutate: the tests fail without a mutant ({run.code}):\n{self._output().read_text()[-3000:]}")
        return run

    def verdict(self, mutant: Mutant, baseline: Run) -> str:
        """'survived', 'noticed' or 'endless'."""
        path = self.place / mutant.path
        source = path.read_bytes()
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            compiled.unlink()
        try:
            path.write_bytes(mutant.applied_to(source))
            code = self._tested(baseline).code
        finally:
            path.write_bytes(source)
        return "survived" if code == 0 else "noticed" if code > 0 else "endless"

    def _tested(self, baseline: Run | None, keep_bytecode: bool = False) -> Run:
        began_s = time.monotonic()
        child = os.fork()
        if child == 0:
            self._run_tests(baseline, keep_bytecode)
        watched = select.poll()
        descriptor = os.pidfd_open(child)
        watched.register(descriptor, select.POLLIN)
        if not watched.poll(None if baseline is None else baseline.wall_limit_s * 1_000):
            os.killpg(child, signal.SIGKILL)
        os.close(descriptor)
        _, status, used = os.wait4(child, 0)
        return Run(os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, time.monotonic() - began_s)

    def _run_tests(self, baseline: Run | None, keep_bytecode: bool) -> NoReturn:
        """What the forked process does: it has pytest and the other libraries, and imports HAL from the copy."""
        os.setsid()
        os.chdir(self.place)
        output = os.open(self._output(), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        if baseline is not None:
            resource.setrlimit(resource.RLIMIT_CPU, (baseline.cpu_limit_s, baseline.cpu_limit_s))
        sys.path[:] = [str(self.place / "src"), *(path for path in sys.path if path != str(ROOT / "tools"))]
        os.environ["PYTHONPATH"] = str(self.place / "src")
        sys.dont_write_bytecode = not keep_bytecode
        code = 3
        try:
            code = pytest.main(["-x", "-q", "-p", "pytest_timeout", "-m", FAST, *self.tests])
            where = sys.modules["hal"].__file__ or ""
            if not where.startswith(str(self.place)):
                print(f"the tests imported {where}, not the copy in {self.place}")
                code = 3
        finally:
            sys.stdout.flush()
            os._exit(int(code))

    def _output(self) -> Path:
        return self.place / "output-of-the-tests"


def identity(mutant: Mutant, source: bytes) -> tuple[str, str, str, str, str]:
    """What names a mutant in mutate.toml: lines move, but keep their text."""
    line = source.splitlines()[mutant.line - 1].decode().strip()
    return mutant.path, mutant.function, line, mutant.was, mutant.becomes


def drawn(path: str, equivalent: set[tuple[str, str, str, str, str]], sample: int, seed: int) -> list[Mutant]:
    """The mutants of a file that are tried: all, or as many as `sample`, the same for the same source and seed.

    Those among them that are equivalent are not tried, and nothing is drawn in their place.
    """
    source = (ROOT / path).read_bytes()
    found = mutants_of(path, source)
    if 0 < sample < len(found):
        found = random.Random(f"{seed} {path}").sample(found, sample)
    kept = [mutant for mutant in found if identity(mutant, source) not in equivalent]
    return sorted(kept, key=lambda mutant: (mutant.begin, mutant.text))


def measured(paths: list[str], tests: list[str], arguments: argparse.Namespace, settings: dict[str, Any]) -> list[Any]:
    """Try the mutants of some files against some tests; one record for each mutant."""
    equivalent = {tuple(e[name] for name in IDENTITY) for e in settings.get("equivalent", ())}
    chosen = [m for path in paths for m in drawn(path, equivalent, arguments.sample, arguments.seed)]
    kept: list[dict[str, Any]] = []
    if arguments.again:
        earlier = {_spot(r): r for r in json.loads(Path(arguments.again).read_text())}
        found = [earlier[spot] for m in chosen if (spot := _spot(asdict(m))) in earlier]
        kept = [record for record in found if record["verdict"] != "survived"]
        noticed = {_spot(record) for record in kept}
        chosen = [m for m in chosen if _spot(asdict(m)) not in noticed]
    if not chosen:
        return kept
    with tempfile.TemporaryDirectory(prefix="hal-mutate-") as folder:
        copies = [Copy(Path(folder) / str(number), tests) for number in range(arguments.jobs)]
        baseline = copies[0].baseline()
        print(f"{len(chosen)} mutants; without one the tests take {baseline.wall_s:.1f} s", flush=True)
        shares = [(copy, baseline, chosen[number :: arguments.jobs]) for number, copy in enumerate(copies)]
        if arguments.jobs == 1:
            return kept + _tried(shares[0])
        with multiprocessing.get_context("fork").Pool(arguments.jobs) as pool:
            return kept + [record for share in pool.map(_tried, shares) for record in share]


def _spot(record: dict[str, Any]) -> tuple[str, int, int, str]:
    return record["path"], record["begin"], record["end"], record["text"]


def _tried(share: tuple[Copy, Run, list[Mutant]]) -> list[dict[str, Any]]:
    copy, baseline, mutants = share
    records = []
    for mutant in mutants:
        verdict = copy.verdict(mutant, baseline)
        records.append({**asdict(mutant), "verdict": verdict})
        if verdict == "survived":
            place = f"{mutant.path}:{mutant.line} {mutant.function}"
            print(f"{place}\n  - {mutant.was}\n  + {mutant.becomes}", flush=True)
    return records


def shares(records: list[dict[str, Any]]) -> str:
    """A table: by file, how many mutants were tried and what share of them was noticed."""
    tried = Counter(record["path"] for record in records)
    survived = Counter(record["path"] for record in records if record["verdict"] == "survived")
    rows = [(path.removeprefix("src/hal/"), count, count - survived[path]) for path, count in sorted(tried.items())]
    rows.append(("all", tried.total(), tried.total() - survived.total()))
    lines = [f"| {path} | {count} | {noticed} | {100 * noticed // count} % |" for path, count, noticed in rows if count]
    return "\n".join(("| module | mutants | noticed | share |", "|---|--:|--:|--:|", *lines))


def main() -> int:
    own, _, tests = " ".join(sys.argv[1:]).partition(" -- ")
    parser = argparse.ArgumentParser(prog="mutate", description="What share of wrong versions do the tests notice?")
    parser.add_argument("files", nargs="*", help="modules to mutate; their tests follow --")
    parser.add_argument("--area", action="append", default=[], help="an area of mutate.toml: modules and their tests")
    parser.add_argument("--sample", type=int, default=0, help="mutants of each module (default: all)")
    parser.add_argument("--seed", type=int, default=1, help="another seed draws another sample")
    parser.add_argument("--jobs", type=int, default=1, help="copies of the tree that work at the same time")
    parser.add_argument("--report", help="write one JSON record for each mutant to this file")
    parser.add_argument("--again", help="take what this earlier report noticed as noticed; tests were only added")
    arguments = parser.parse_args(own.split())
    settings = tomllib.loads(SETTINGS.read_text())
    areas = {name: area for name, area in settings["area"].items() if not arguments.area or name in arguments.area}
    if arguments.files:
        if not tests:
            parser.error("name the tests after --")
        areas = {"given": {"files": arguments.files, "tests": tests.split()}}
    elif unknown := set(arguments.area) - areas.keys():
        parser.error(f"no area {', '.join(sorted(unknown))}; there are {', '.join(settings['area'])}")
    records: list[dict[str, Any]] = []
    for area in areas.values():
        records += measured(area["files"], area["tests"], arguments, settings)
        if arguments.report:
            Path(arguments.report).write_text(json.dumps(records, indent=1))
    print(shares(records))
    return 0


if __name__ == "__main__":
    sys.exit(main())
