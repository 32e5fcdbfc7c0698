"""`hal workload`: generate synthetic logs for `hal simulate`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.lazy_group import NounGroup
from hal.cli.kit.output_files import checked_output, written_whole
from hal.cli.kit.screen import Screen

EXAMPLES = """
hal workload generate --jobs 5000 --cpus 256 --load 0.8 --seed 1 -o demo.swf.gz
hal simulate demo.swf.gz --policy fcfs,easy
hal workload generate --jobs 1000 --cpus 64 | hal simulate - --policy easy
"""


workload = NounGroup("workload", epilog="Example: hal workload generate --jobs 5000 --cpus 256 -o day.swf.gz")


@command("generate", offline=True, examples=EXAMPLES)
@click.option("--model", type=click.Choice(["lublin"]), default="lublin", show_default=True, help="Workload model.")
@click.option("--jobs", type=click.IntRange(min=1), default=5000, show_default=True, help="Number of jobs.")
@click.option("--cpus", type=click.IntRange(min=1), default=256, show_default=True, help="Processors of the machine.")
@click.option("--load", type=float, default=0.8, show_default=True, help="Offered load; 1 saturates the machine.")
@click.option(
    "--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Seed; the same seed gives the same bytes."
)
@click.option("--users", type=click.IntRange(min=1), default=50, show_default=True, help="Number of users.")
@click.option(
    "--kind",
    type=click.Choice(["all", "batch", "interactive"]),
    default="all",
    show_default=True,
    help="Which of the three variants of the model.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    callback=checked_output,
    help="File to write, compressed if its name ends in .gz (default: standard output).",
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
    """Generate a synthetic log in the Standard Workload Format.

    The jobs follow the model of Lublin and Feitelson (2003), with users and rounded-up time limits. See
    docs/workload.md.
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
