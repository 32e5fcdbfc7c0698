"""Record every decision of the engine on many inputs, and compare two records: for changes that must change none.

    tools/decisions.py record before.txt        # on the commit before
    tools/decisions.py record after.txt         # on the commit after
    tools/decisions.py compare before.txt after.txt

A record has one line for each input: its name, the number of plans, and a digest over every value of every plan
(starts, nodes, reservations, verdicts, preemptions, cursors, wake-ups, units of work). Inputs: whole sites drawn at
random (tests/core/engine/policy_world.py: gangs, bookings, licences, limits, fair share, preemption, plans in slices),
sites whose policies read advice (advised_world.py), generated logs under every policy as a pool and as nodes, and with
`--logs DIR` real logs in the Standard Workload
Format. Values are read by position, so that renaming a field changes no digest.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
# As for every other program here: else each run compiles all kernels.
os.environ.setdefault("NUMBA_CACHE_DIR", os.environ.get("HAL_CACHE") or str(Path(sys.prefix) / "hal-cache"))

SEEDS: Final = 300
HAPPENINGS: Final = 40
LOG_SEEDS: Final = 3
LOG_JOBS: Final = 3_000
REAL_JOBS: Final = 5_000


class Recorder:
    """Stands where the engine's callers find `cycle`, and adds each plan that passes to a digest."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forget what was recorded: a new input begins."""
        self.plans = 0
        self._digest = hashlib.blake2b(digest_size=16)

    def wrap(self, cycle: Callable[..., Any]) -> Callable[..., Any]:
        """`cycle`, recorded."""

        def recorded(*args: Any, **kwargs: Any) -> Any:
            plan = cycle(*args, **kwargs)
            self.plans += 1
            self._add(plan)
            return plan

        return recorded

    def _add(self, value: Any) -> None:
        fields = getattr(value, "__struct_fields__", None)
        if fields is not None:
            for name in fields:
                column = getattr(value, name)
                self._add(_without_scratch(column) if name in ("promised", "reserved") else column)
        elif isinstance(value, np.ndarray):
            self._digest.update(f"{value.shape}".encode())
            self._digest.update(np.ascontiguousarray(value).tobytes())
        else:
            self._digest.update(f"{value!r};".encode())

    def line(self, name: str) -> str:
        """What is recorded of the input that ends now."""
        return f"{name} {self.plans} {self._digest.hexdigest()}"


def _without_scratch(promised: Any) -> Any:
    """Nodes of reservations; where a reservation names no node yet, what stands beside is left over from others."""
    promised = promised.copy()
    promised[promised[:, 0] < 0, 2:] = 0
    return promised


def sites(seeds: range) -> Iterator[tuple[str, Callable[[], object]]]:
    """Whole sites drawn at random, with all that happens to them."""
    from tests.core.engine.policy_world import draw_script, play

    for seed in seeds:
        yield f"site-{seed}", lambda seed=seed: play(*draw_script(seed, HAPPENINGS))


def advised(seeds: range) -> Iterator[tuple[str, Callable[[], object]]]:
    """Sites whose order and placement read advice that changes all the time."""
    from tests.core.engine.advised_world import AdvisedWorld

    for seed in seeds:
        yield f"advised-{seed}", lambda seed=seed: AdvisedWorld(seed).play()


def logs(directory: Path | None) -> Iterator[tuple[str, Callable[[], object]]]:
    """Generated and real logs under every policy, on a pool and on nodes."""
    from hal.daemons.twin.machine import Machine
    from hal.daemons.twin.replay import CONFIGS, replay
    from hal.daemons.twin.swf import read_log, usable_jobs
    from hal.daemons.twin.workload import WorkloadSpec, generate, write_swf

    def replays(name: str, log: Any, procs: int, jobs: int) -> Iterator[tuple[str, Callable[[], object]]]:
        for machine in (Machine.pool(procs), Machine(nodes=max(procs // 4, 1), cpus_per_node=4)):
            workload = usable_jobs(log, machine.procs, first=jobs)
            for policy in CONFIGS:
                for clairvoyant in (False, True):
                    yield (
                        f"{name}-{machine.nodes}x{machine.cpus_per_node}-{policy}{'-clairvoyant' * clairvoyant}",
                        lambda m=machine, p=policy, c=clairvoyant, w=workload: replay(w, m, p, clairvoyant=c),
                    )

    out = ROOT / "out" / "decisions"
    out.mkdir(parents=True, exist_ok=True)
    for seed in range(LOG_SEEDS):
        spec = WorkloadSpec(jobs=LOG_JOBS, cpus=128, load=0.9, seed=seed, users=20)
        path = out / f"{seed}.swf"
        path.write_bytes(write_swf(generate(spec), spec))
        yield from replays(f"log-{seed}", read_log(path), 128, LOG_JOBS)
    for path in sorted(directory.glob("*.swf.gz")) if directory else ():
        log = read_log(path)
        yield from replays(path.name, log, min(log.machine_procs or 1_024, 1_024), REAL_JOBS)


def record(into: Path, seeds: range, directory: Path | None, *, sites_only: bool = False) -> int:
    """Play every input and write the record; 1 when an input failed a check of its own."""
    import hal.daemons.twin.replay as replaying
    from hal.core.engine import scheduler

    recorder = Recorder()
    for module in (scheduler, replaying):
        module.cycle = recorder.wrap(module.cycle)  # type: ignore[attr-defined]
    lines = []
    failed = 0
    began_s = time.monotonic()
    replays = () if sites_only else logs(directory)
    for name, play in (*sites(seeds), *advised(seeds), *replays):
        recorder.begin()
        try:
            play()
        except (AssertionError, ValueError) as error:
            failed += 1
            print(f"{name} failed, and is recorded as far as it came: {error}", file=sys.stderr)
        lines.append(recorder.line(name))
        print(f"\r{len(lines)} inputs, {time.monotonic() - began_s:.0f} s", end="", file=sys.stderr, flush=True)
    into.write_text("".join(f"{line}\n" for line in lines))
    print(f"\n{into}: {len(lines)} inputs, {failed} failed", file=sys.stderr)
    return 1 if failed else 0


def compare(before: Path, after: Path) -> int:
    """Name every input whose plans differ, or that the second record lacks; 1 when there is one. Inputs that only the
    second has, of a new policy, are named and do not count."""
    old, new = (
        {line.split()[0]: line.split()[1:] for line in path.read_text().splitlines()} for path in (before, after)
    )
    differ = [name for name in old if old[name] != new.get(name)]
    for name in new.keys() - old.keys():
        print(f"{name}: new")
    for name in differ:
        print(f"{name}: {old[name]} before, {new.get(name, 'not recorded')} after")
    print(f"{len(old)} inputs before, {len(new)} after, {len(differ)} differ", file=sys.stderr)
    return 1 if differ else 0


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="play every input and write the record")
    recording.add_argument("into", type=Path)
    recording.add_argument("--seeds", type=int, default=SEEDS, help="random sites (default: %(default)s)")
    recording.add_argument("--logs", type=Path, help="a directory of *.swf.gz")
    recording.add_argument("--sites-only", action="store_true", help="replay no logs")
    comparing = commands.add_parser("compare", help="name every input whose plans differ")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    args = parser.parse_args()
    if args.command == "compare":
        return compare(args.before, args.after)
    return record(args.into, range(args.seeds), args.logs, sites_only=args.sites_only)


if __name__ == "__main__":
    sys.exit(main())
