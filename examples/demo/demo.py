"""The demo: a real workflow on this machine, then the log of a busy machine replayed by the same engine.

Run it with `make demo`. It uses nothing but the public Python client and the `hal` command, so it is an example, too.
Everything runs in a temporary HAL_HOME that is removed at the end, also after Ctrl-C; the pictures stay in out/demo.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from rich.console import Console

import hal
from gantt import draw_gantt
from private_hal import hal_command, private_hal
from workflow import runs_of, submit_workflow, watch, who_ran_where

OUT: Final = Path("out") / "demo"
NODES: Final = 3
LOG_JOBS: Final = 5_000
LOG_CPUS: Final = 256
LOG_LOAD: Final = 0.7

PLAIN_WIDTH: Final = 118
"""Columns where the output goes to a file."""

console = Console(highlight=False)
if not console.is_terminal:
    console = Console(highlight=False, width=PLAIN_WIDTH)


def main() -> int:
    began_s = time.monotonic()
    OUT.mkdir(parents=True, exist_ok=True)
    try:
        workflow_went_well = run_workflow()
        replay_a_log()
    except KeyboardInterrupt:
        console.print("\nInterrupted; HAL is stopped and its files are removed.")
        return 130
    except hal.HALError as error:
        console.print(f"[red]The demo failed:[/] {error}")
        return 1
    except subprocess.CalledProcessError as error:
        console.print(f"[red]The demo failed:[/] {' '.join(map(str, error.cmd))} exited with {error.returncode}")
        return 1
    console.print(f"\nDone in {time.monotonic() - began_s:.0f} s. Nothing is left running; the pictures are in {OUT}/:")
    for path in sorted(OUT.iterdir()):
        console.print(f"  {path}")
    console.print("Next: [bold].venv/bin/hal up[/], then the tour in README.md.")
    return 0 if workflow_went_well else 1


def run_workflow() -> bool:
    """Run the workflow on three nodes of this machine; whether every job ended as it should."""
    step(f"1. Start HAL on this machine: a controller, and {NODES} nodes that share its cores")
    with private_hal(nodes=NODES) as home, hal.connect(home) as client, tempfile.TemporaryDirectory(dir=home) as shared:
        hal_command("nodes", home=home)

        step("2. Run a workflow: an array, a fan-in, a retry, a time limit, a gang")
        parts = submit_workflow(client, Path(shared))
        watch(parts, console)
        runs = runs_of(parts)
        console.print(who_ran_where(parts, runs))
        draw_gantt(runs, [OUT / "workflow.svg", OUT / "workflow.png"])
        by_name = {part.job.info.name: part.job for part in parts}
        console.print(f"  estimate printed: pi is about {by_name['estimate'].logs().strip()}")
        console.print(f"  ring printed:     {by_name['ring'].logs().strip()}")
        console.print(f"  endless ended:    {by_name['endless'].why().message}")

        wrong = [part for part in parts if part.job.info.state is not part.ends]
        for part in wrong:
            info = part.job.info
            console.print(f"[red]{info.name} should have {part.ends} but {info.state}: {info.reason}[/]")
        step("3. Stop HAL")
    return not wrong


def replay_a_log() -> None:
    """Generate a log, replay it under two policies, and draw what came out."""
    log = OUT / "lublin.swf"
    step(f"4. Generate a log: {LOG_JOBS} jobs for {LOG_CPUS} processors after Lublin and Feitelson (2003)")
    hal_command(
        *("workload", "generate", "--model", "lublin", "--jobs", str(LOG_JOBS), "--cpus", str(LOG_CPUS)),
        *("--load", str(LOG_LOAD), "--seed", "1", "-o", log),
    )
    step("5. Replay it with the same engine: first come, first served, and EASY backfill")
    hal_command("simulate", log, "--policy", "fcfs,easy", "--plot", OUT / "replay.svg")


def step(title: str) -> None:
    """A line that says what comes next."""
    console.print(f"\n[bold]{title}[/]")


if __name__ == "__main__":
    sys.exit(main())
