"""`hal workload`: synthetic logs for `hal simulate`."""

from __future__ import annotations

from pathlib import Path

import click

from hal.cli.simulate import bad_input, written_whole


@click.group()
def workload() -> None:
    """Make workload logs."""


@workload.command()
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
    "-o", "--out", type=click.Path(path_type=Path), help="Write there (compressed if it ends in .gz), not to stdout."
)
def generate(model: str, jobs: int, cpus: int, load: float, seed: int, users: int, kind: str, out: Path | None) -> None:
    """Write a synthetic log in the Standard Workload Format.

    Jobs as in Lublin and Feitelson (2003), with users and rounded-up time limits. See docs/workload.md.

    \b
    Example:
      hal workload generate --jobs 5000 --cpus 256 --load 0.8 --seed 1 -o demo.swf.gz
      hal simulate demo.swf.gz --policy fcfs,easy
    """
    from hal.core.model.errors import SpecError
    from hal.daemons.twin import workload as synthetic

    try:
        spec = synthetic.WorkloadSpec(jobs=jobs, cpus=cpus, load=load, seed=seed, users=users, kind=kind)
        made = synthetic.generate(spec)
    except SpecError as error:
        raise bad_input(str(error)) from None
    text = synthetic.write_swf(made, spec)
    if out is None:
        click.get_binary_stream("stdout").write(text)
        return
    if out.suffix == ".gz":
        import gzip

        text = gzip.compress(text, mtime=0)
    with written_whole(out) as unfinished:
        unfinished.write_bytes(text)
    load_made = synthetic.offered_load(made.submit_s, made.run_s, made.procs, cpus)
    click.echo(f"{out}: {jobs} {model} jobs for {cpus} processors, offered load {load_made:.3f}", err=True)
