"""`hal launch`: run a command as ranks on the nodes of a job."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import click

from hal.cli.jobs.exec import refuse_lost_input, task_ref
from hal.cli.jobs.trailing_command import TrailingCommand, trailing_command
from hal.cli.kit.command import pass_screen
from hal.cli.kit.screen import Screen
from hal.core.model.rank_variables import LAUNCH_NODES, MAX_RANKS_OF_NODE, OF_A_RANK

if TYPE_CHECKING:
    from hal.cli.jobs.rank_session import Part

MAX_RANKS_HERE: Final = 65_536
NOT_PASSED: Final = frozenset(
    {
        *("PWD", "OLDPWD", "SHLVL", "_", "HOME", "USER", "LOGNAME", "SHELL", "HOSTNAME", "TMPDIR"),
        *("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
        *("ZE_AFFINITY_MASK", "XDG_RUNTIME_DIR", "INVOCATION_ID", "JOURNAL_STREAM"),
    }
)
"""Variables of one node or one process: ranks have those of their own step."""
OF_STEPS: Final = ("HAL_", "SLURM_", "PBS_")


@click.command(
    "launch",
    cls=TrailingCommand,
    context_settings={"allow_interspersed_args": False},
    examples="""
    hal launch ./solver                     # inside a job: on each of its nodes
    hal launch -n 8 --label ./solver        # eight ranks, their lines labelled
    hal launch --ranks-per-node 4 ./solver  # four on each node
    hal launch --node w2 -- nvidia-smi      # on one node
    hal launch --group gpu ./solver         # on the nodes of one group
    hal launch --job 42 -- hostname         # into a running job, from outside
    """,
)
@click.argument("words", metavar="", nargs=-1, type=click.UNPROCESSED)
@click.option("-n", "--ranks", type=click.IntRange(1, MAX_RANKS_HERE), metavar="N", help="Ranks (default: one a node).")
@click.option("--ranks-per-node", type=click.IntRange(1, MAX_RANKS_OF_NODE), metavar="N", help="Ranks on each node.")
@click.option(
    "--distribution",
    type=click.Choice(["block", "cyclic"]),
    help="Neighbouring ranks on one node (block, the default), or on neighbouring nodes (cyclic).",
)
@click.option("-N", "--nodes", type=click.IntRange(1), metavar="N", help="Use the first N nodes (default: all).")
@click.option("--node", "named", metavar="NAME", multiple=True, help="Node to use; repeatable.")
@click.option("--group", metavar="NAME", help="Use the nodes of this group of the job.")
@click.option("--job", metavar="JOB[.TASK]", help="The job (default: the one that this runs in, or hal alloc's).")
@click.option("-C", "--workdir", metavar="DIR", help="Directory to begin in (default: this one).")
@click.option("-i", "--stdin", "forward", is_flag=True, help="Pass standard input to rank 0.")
@click.option("-l", "--label", is_flag=True, help="Begin each line with its rank: [3] .")
@click.option("--no-kill", is_flag=True, help="Let the other ranks go on if one fails.")
@click.option("--no-bind", is_flag=True, help="Let each rank use all CPUs of its step, not only its part of them.")
@click.option("--slurm", is_flag=True, help="Set Slurm's variables, too (SLURM_PROCID, SLURM_NTASKS, ...).")
@click.option("--rsh", is_flag=True, help="Be an rsh for other launchers (mpirun): hal launch --rsh NODE COMMAND.")
@pass_screen
@click.pass_context
def launch(
    ctx: click.Context,
    screen: Screen,
    /,
    words: Sequence[str],
    ranks: int | None,
    ranks_per_node: int | None,
    distribution: str | None,
    nodes: int | None,
    named: Sequence[str],
    group: str | None,
    job: str | None,
    workdir: str | None,
    forward: bool,
    label: bool,
    no_kill: bool,
    no_bind: bool,
    slurm: bool,
    rsh: bool,
) -> int:
    """The ranks are processes of the job on its nodes: with its user, limits, cgroups and sandbox, and with the
    variables and directory of this command. Each has HAL_RANK and HAL_SIZE, RANK and WORLD_SIZE, and others (see
    docs/parallel.md). They end with this command, and with the job.

    If one fails, the others are ended. The exit code is the highest of those that ended by themselves.
    """
    from hal.cli.jobs.rank_session import run_ranks

    behind = trailing_command(ctx)
    argv = [*words, *(["--", *behind] if words and behind is not None else behind or [])]
    if not argv:
        raise click.UsageError("there is no command to run; write: hal launch COMMAND", ctx)
    if nodes is not None and named:
        raise click.UsageError("--nodes and --node cannot be combined", ctx)
    if group is not None and (nodes is not None or named):
        raise click.UsageError("--group cannot be combined with --nodes and --node", ctx)
    if ranks is not None and ranks_per_node is not None:
        raise click.UsageError("--ranks and --ranks-per-node cannot be combined", ctx)
    if rsh and (group or ranks or ranks_per_node or nodes or named or distribution or label):
        raise click.UsageError("--rsh runs one command on one node: hal launch --rsh NODE COMMAND", ctx)
    if rsh and len(argv) < 2:
        raise click.UsageError("write: hal launch --rsh NODE COMMAND", ctx)
    if not forward and not rsh:
        refuse_lost_input(ctx, "write -i to pass it to rank 0, or </dev/null")
    number, task = task_ref(job or own_job(ctx))
    found = _nodes(screen, number, task)
    if group is not None:
        from hal.core.model.groups import GROUPS, nodes_of_group

        text = os.environ.get(GROUPS, "") if job is None else _groups_of(screen, number)
        named = [found[at] for at in nodes_of_group(group, text)]
    if rsh:
        named, argv = [node_called(argv[0], found, os.environ)], remote_shell(argv[1:])
    elif ranks is None and ranks_per_node is None:
        ranks, ranks_per_node = ranks_asked(os.environ) if job is None else (None, _ranks_per_node(screen, number))
    parts = parts_of(found, nodes, named, ranks, per_node=ranks_per_node, cyclic=distribution == "cyclic")
    own = {LAUNCH_NODES: ",".join(part.node for part in parts)}
    if slurm:
        own |= slurm_variables(os.environ, f"{number}", found)
    return run_ranks(
        screen,
        number,
        task,
        argv,
        parts,
        variables=passed_variables(os.environ) | own,
        directory=os.path.abspath(workdir) if workdir else "" if rsh else os.getcwd(),
        forward=forward,
        label=label,
        kill=not no_kill,
        bind=not no_bind and not rsh,
    )


def own_job(ctx: click.Context) -> str:
    """The job and task in whose step this runs, or that `hal alloc` holds for it.

    Raises:
        UsageError: none.
    """
    job, task = os.environ.get("HAL_JOB_ID", ""), os.environ.get("HAL_TASK", "0")
    if not job:
        raise click.UsageError("this runs in no job; begin one with hal alloc, or name one: hal launch --job JOB", ctx)
    return f"{job}.{task}"


def ranks_asked(environ: Mapping[str, str]) -> tuple[int | None, int | None]:
    """Return how many ranks the job asks for, in all (in its `#SBATCH` lines, as for srun) or on each of its nodes."""
    each = _number(environ.get("HAL_RANKS_PER_NODE", ""))
    in_all = _number(environ.get("SLURM_NTASKS", "")) if "SLURM_JOB_ID" in environ and not each else None
    return in_all, each


def _ranks_per_node(screen: Screen, job: int) -> int | None:
    """How many ranks another job asks for on each of its nodes."""
    from hal.client.rest import calls

    found = (screen.client.call(calls.job(str(job))).spec or {}).get("ranks_per_node")
    return found if isinstance(found, int) and found else None


def _groups_of(screen: Screen, job: int) -> str:
    """The groups of another job, as `HAL_GROUPS` has them."""
    from hal.client.rest import calls

    groups = (screen.client.call(calls.job(str(job))).spec or {}).get("groups") or ()
    return ",".join(f"{one['name']}:{one.get('nodes', 1)}" for one in groups)


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and 0 < int(text) <= MAX_RANKS_HERE else None


def passed_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """What ranks get of this process's variables."""
    return {
        name: value
        for name, value in environ.items()
        if name not in NOT_PASSED and not name.startswith(OF_STEPS) and "\0" not in value
    }


def _nodes(screen: Screen, job: int, task: int) -> tuple[str, ...]:
    """The nodes of a running task, in rank order.

    Raises:
        ConflictError: it does not run.
    """
    from hal.client.rest import calls
    from hal.core.model import ConflictError

    info = screen.client.call(calls.task(str(job), task))
    if info.ended or not info.nodes:
        what = "has ended" if info.ended else f"is not running: it is {info.state}"
        raise ConflictError(f"task {job}.{task} {what}", hint=f"hal show {job}")
    return info.nodes


def node_called(host: str, found: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return the node of the job that another launcher means: by its name or its address, perhaps with a user.

    Raises:
        SpecError: there is none.
    """
    from hal.core.model import SpecError, shown

    name = host.rpartition("@")[2]
    if name in found:
        return name
    addresses = environ.get("HAL_NODE_ADDRESSES", "").split(",")
    if name in addresses and len(addresses) == len(found):
        return found[addresses.index(name)]
    raise SpecError(f"--rsh: the job has no node '{shown(name)}'", hint=f"it has {', '.join(found[:16])}")


def remote_shell(words: Sequence[str]) -> list[str]:
    """Return what runs them as an rsh does: put together, and read by a shell. It is no rank of its own, and what it
    launches must not take its numbers for theirs."""
    return ["/bin/sh", "-c", f"unset {' '.join(OF_A_RANK)}\n{' '.join(words)}"]


def slurm_variables(environ: Mapping[str, str], job: str, nodes: Sequence[str]) -> dict[str, str]:
    """Return the variables that all ranks share and Slurm's would have, from HAL's own."""
    names = ",".join(nodes)
    found = {
        "SLURM_JOB_ID": job,
        "SLURM_JOBID": job,
        "SLURM_JOB_NODELIST": names,
        "SLURM_NODELIST": names,
        "SLURM_JOB_NUM_NODES": str(len(nodes)),
        "SLURM_NNODES": str(len(nodes)),
    }
    for name, ours in (
        ("SLURM_JOB_NAME", "HAL_JOB_NAME"),
        ("SLURM_JOB_PARTITION", "HAL_QUEUE"),
        ("SLURM_JOB_ACCOUNT", "HAL_ACCOUNT"),
        ("SLURM_JOB_USER", "HAL_USER"),
        ("SLURM_CPUS_ON_NODE", "HAL_CPUS"),
    ):
        if value := environ.get(ours):
            found[name] = value
    return found


def parts_of(
    found: Sequence[str],
    most: int | None,
    named: Sequence[str],
    ranks: int | None,
    *,
    per_node: int | None = None,
    cyclic: bool = False,
) -> list[Part]:
    """Distribute ranks over nodes: in blocks, in which those of one node are neighbours, or a rank to each node in
    turn. The first nodes have one more than the others.

    Args:
        found: the nodes of the job, in rank order.
        most: how many of them to use; None: all.
        named: those to use, by name; (): all.
        ranks: how many; None: `per_node` on each.
        per_node: None: one.
    Raises:
        SpecError: there are not so many nodes, or none of that name.
    """
    from hal.cli.jobs.rank_session import Part
    from hal.core.model import SpecError, plural, shown

    for name in named:
        if name not in found:
            raise SpecError(f"--node: the job has no node '{shown(name)}'", hint=f"it has {', '.join(found[:16])}")
    if most is not None and most > len(found):
        raise SpecError(f"--nodes: {most} are more than the job has", hint=f"it has {plural(len(found), 'node')}")
    chosen = [at for at, name in enumerate(found) if not named or name in named][:most]
    total = ranks or len(chosen) * (per_node or 1)
    each, more = divmod(total, len(chosen))
    stride = min(len(chosen), total) if cyclic else 1
    parts, first = [], 0
    for place, at in enumerate(chosen):
        count = each + (place < more)
        if count:
            parts.append(Part(at, found[at], place if cyclic else first, count, total, stride))
        first += count
    return parts
