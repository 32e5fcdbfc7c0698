"""`hal workload`: synthetic logs for `hal simulate`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from hal.cli.command import CONTEXT, command, pass_screen
from hal.cli.output_files import checked_output, written_whole
from hal.cli.screen import Screen

EXAMPLES = """
hal workload generate --jobs 5000 --cpus 256 --load 0.8 --seed 1 -o demo.swf.gz
hal simulate demo.swf.gz --policy fcfs,easy
hal workload generate --jobs 1000 --cpus 64 | hal simulate - --policy easy
"""


@click.group(context_settings=CONTEXT, no_args_is_help=False)
def workload() -> None:
    """Make synthetic workload logs."""


@command("generate", examples=EXAMPLES)
@click.option("--model", type=click.Choice(["lublin"]), default="lublin", show_default=True, help="Which model.")
@click.option("--jobs", type=click.IntRange(min=1), default=5000, show_default=True, help="How many jobs.")
@click.option("--cpus", type=click.IntRange(min=1), default=256, show_default=True, help="Processors of the machine.")
@click.option("--load", type=float, default=0.8, show_default=True, help="Offered load; 1 saturates the machine.")
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Same seed, same bytes.")
@click.option("--users", type=click.IntRange(min=1), default=50, show_default=True, help="How many users submit.")
@click.option(
    "--kind",
    type=click.Choice(["all", "batch", "interactive"]),
    default="all",
    show_default=True,
    help="Which of the paper's three fits.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    callback=checked_output,
    help="Write there (compressed if it ends in .gz) instead of to standard output.",
)
@pass_screen
def generate(
    screen: Screen,
    model: str,
    jobs: int,
    cpus: int,
    load: float,
    seed: int,
    users: int,
    kind: str,
    output: Path | None,
) -> None:
    """Write a synthetic log in the Standard Workload Format.

    Jobs as in Lublin and Feitelson (2003), with users and rounded-up time limits. See docs/workload.md.
    """
    from hal.daemons.twin import workload as synthetic

    spec = synthetic.WorkloadSpec(jobs=jobs, cpus=cpus, load=load, seed=seed, users=users, kind=kind)
    made = synthetic.generate(spec)
    text = synthetic.write_swf(made, spec)
    if output is None:
        sys.stdout.flush()
        sys.stdout.buffer.write(text)
        return
    if output.suffix == ".gz":
        import gzip

        text = gzip.compress(text, mtime=0)
    with written_whole(output) as unfinished:
        unfinished.write_bytes(text)
    load_made = synthetic.offered_load(made.submit_s, made.run_s, made.procs, cpus)
    screen.note(f"{output}: {jobs:,} jobs ({model} model) for {cpus:,} processors, offered load {load_made:.3f}")


workload.add_command(generate)
