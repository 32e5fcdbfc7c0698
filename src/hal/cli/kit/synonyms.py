"""What people type who know another scheduler, and what it is here: by meaning, not by spelling.

Pure. Every command of HAL that a hint names exists; of options, only those that the command at hand has are named.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

_JOBS: Final = "hal jobs"
_SUBMIT: Final = "hal submit SCRIPT, or hal submit -- COMMAND"
_NODES: Final = "hal nodes"
_RUN: Final = "hal run -- COMMAND"
_ENDED: Final = "hal attempts for what ended, hal history for sums, or hal jobs --all"
_CANCEL: Final = "hal cancel JOB"

COMMANDS: Final[Mapping[str, str]] = {
    # Slurm
    "sacct": _ENDED,
    "sacctmgr": "hal account, hal qos, hal limit, or hal queue",
    "salloc": "hal alloc",
    "sbatch": _SUBMIT,
    "sbcast": "a file system that all nodes share",
    "scancel": _CANCEL,
    "scontrol": "hal show, hal update, hal hold, hal release, hal requeue, or hal node",
    "scrontab": "hal cron add NAME '30 2 * * *' -- COMMAND, or hal cron list",
    "sdiag": "hal status",
    "seff": "hal efficiency JOB",
    "sinfo": "hal nodes, or hal queues",
    "sprio": "hal why JOB",
    "squeue": _JOBS,
    "sreport": "hal history, or hal shares",
    "srun": "hal run -- COMMAND, or inside a job: hal launch COMMAND",
    "sshare": "hal shares",
    "sstat": "hal show JOB",
    # PBS, LSF, HTCondor
    "bhosts": _NODES,
    "bjobs": _JOBS,
    "bkill": _CANCEL,
    "bpeek": "hal logs JOB",
    "bqueues": "hal queues",
    "bsub": _SUBMIT,
    "condor_q": _JOBS,
    "condor_rm": _CANCEL,
    "condor_status": _NODES,
    "condor_submit": _SUBMIT,
    "pbsnodes": _NODES,
    "qalter": "hal update JOB",
    "qdel": _CANCEL,
    "qhold": "hal hold JOB",
    "qrerun": "hal requeue JOB",
    "qrls": "hal release JOB",
    "qstat": _JOBS,
    "qsub": _SUBMIT,
    "showq": _JOBS,
    "lstopo": "hal node show NODE --devices",
    # words of shells, containers and other schedulers
    "cat": "hal logs JOB",
    "at": "hal submit --begin TIME -- COMMAND",
    "crontab": "hal cron add NAME '30 2 * * *' -- COMMAND, or hal cron list",
    "array": "hal submit --array 10 -- COMMAND, or hal jobs JOB",
    "cluster": "hal status, or hal nodes",
    "cordon": "hal node cordon NODE",
    "delete": "hal cancel JOB, or hal rm JOB for one that has ended",
    "describe": "hal show JOB",
    "drain": "hal node drain NODE",
    "groups": "hal account list, or hal whoami",
    "help": "hal --help",
    "info": "hal show JOB, or hal status",
    "inspect": "hal show JOB",
    "job": "hal show JOB, or hal jobs",
    "kill": _CANCEL,
    "list": _JOBS,
    "log": "hal logs JOB",
    "ls": _JOBS,
    "output": "hal logs JOB",
    "partition": "hal queue show QUEUE, or hal queues",
    "partitions": "hal queues",
    "priority": "hal why JOB, or hal update JOB --priority N",
    "ps": _JOBS,
    "queue-status": "hal queues",
    "remove": "hal rm JOB for one that has ended, or hal node remove NODE",
    "rerun": "hal requeue JOB",
    "reservation": "hal booking list, or hal plan for what is set aside for waiting jobs",
    "reservations": "hal booking list, or hal plan for what is set aside for waiting jobs",
    "restart": "hal requeue JOB, or hal down and hal up for HAL itself",
    "resume": "hal release JOB, or hal node resume NODE",
    "retry": "hal requeue JOB",
    "ssh": "hal exec -it JOB -- bash into a running job, or hal node show NODE",
    "start": "hal up for HAL, or hal release JOB",
    "stop": "hal cancel JOB, or hal down for HAL",
    "suspend": "hal hold JOB for one that waits",
    "tail": "hal logs -f JOB",
    "task": "hal show JOB.TASK",
    "tasks": "hal show JOB --tasks 20, or hal history --job JOB --by attempt",
    "uncordon": "hal node resume NODE",
    "usage": "hal history --by user, or hal shares",
    "user": "hal whoami, hal shares, or hal account",
    "users": "hal shares, or hal account",
    "version": "hal --version",
    "watch": "hal jobs --watch, or hal events -f",
}
"""By the word that people type: what does that here."""

_SCONTROL: Final[Mapping[tuple[str, str], str]] = {
    ("show", "job"): "hal show {}",
    ("show", "jobs"): _JOBS,
    ("show", "node"): "hal node show {}",
    ("show", "nodes"): _NODES,
    ("show", "partition"): "hal queue show {}",
    ("show", "partitions"): "hal queues",
    ("show", "reservation"): "hal booking list",
    ("show", "topology"): "hal topology",
    ("hold", ""): "hal hold {}",
    ("release", ""): "hal release {}",
    ("requeue", ""): "hal requeue {}",
    ("update", ""): "hal update JOB, or hal node drain NODE",
}

OPTIONS: Final[Mapping[str, Sequence[str]]] = {
    # letters of sbatch, squeue and sacct that mean nothing here
    "-D": ("--workdir",),
    "-E": ("--until",),
    "-G": ("--gpus",),
    "-J": ("--name",),
    "-L": ("--licence",),
    "-S": ("--since", "--sort"),
    "-b": ("--begin",),
    "-i": ("--stdin", "--watch"),
    "-j": ("--job",),
    "-p": ("--queue",),
    "-t": ("--state", "--timeout"),
    # words
    "--batch": ("--constraint",),
    "--chdir": ("--workdir",),
    "--cores": ("--cpus",),
    "--cpu": ("--cpus",),
    "--cpus-per-task": ("--cpus",),
    "--cwd": ("--workdir",),
    "--delay": ("--begin",),
    "--depends": ("--after",),
    "--dependency": ("--after",),
    "--endtime": ("--until",),
    "--error": ("--stderr",),
    "--export": ("--env", "--export-all"),
    "--features": ("--constraint",),
    "--format": ("--columns", "--output"),
    "--gpu": ("--gpus",),
    "--gpus-per-node": ("--gpus",),
    "--gpus-per-task": ("--gpus",),
    "--gres": ("--gpus", "--request"),
    "--image": (),
    "--input": ("--stdin",),
    "--interactive": (),
    "--iterate": ("--watch",),
    "--job-name": ("--name",),
    "--hint": (),
    "--kill-on-invalid-dep": ("--on-dependency-failed",),
    "--last": ("--limit",),
    "--licenses": ("--licence",),
    "--license": ("--licence",),
    "--long": ("--columns",),
    "--mail-type": ("--notify",),
    "--mail-user": ("--notify",),
    "--max-retries": ("--retries",),
    "--mem": ("--memory",),
    "--mem-per-cpu": ("--memory",),
    "--me": ("--user",),
    "--nice": ("--priority",),
    "--no-requeue": ("--on-node-lost",),
    "--node-list": ("--constraint",),
    "--nodelist": ("--constraint",),
    "--ntasks": ("--cpus", "--array"),
    "--ntasks-per-node": ("--cpus",),
    "--noheader": ("--json",),
    "--num-cpus": ("--cpus",),
    "--num-gpus": ("--gpus",),
    "--parsable": (),
    "--partition": ("--queue",),
    "--procs": ("--cpus",),
    "--project": ("--account",),
    "--ram": ("--memory",),
    "--requeue": ("--on-node-lost", "--retries"),
    "--reservation": ("--booking",),
    "--restart": ("--retries",),
    "--script": (),
    "--start": (),
    "--starttime": ("--since", "--begin"),
    "--states": ("--state",),
    "--status": ("--state",),
    "--tasks": ("--array",),
    "--test-only": ("--dry-run",),
    "--throttle": ("--max-running",),
    "--time": ("--walltime",),
    "--time-limit": ("--walltime",),
    "--timelimit": ("--walltime",),
    "--users": ("--user",),
    "--working-dir": ("--workdir",),
    "--wrap": (),
}
"""By the option that people type: the options that mean it."""

_SAYINGS: Final[Mapping[str, str]] = {
    "--hint": "HAL does not place threads: leave it out",
    "--image": "start the container in the command",
    "--interactive": "hal run shows output here and passes Ctrl-C on",
    "--me": "write --user $USER",
    "--mail-type": "write --notify failed,ended:ann@example.org",
    "--mail-user": "write --notify failed,ended:ann@example.org",
    "--nice": "write --priority N: higher starts first",
    "--nodelist": "write --constraint hal.node=NAME",
    "--node-list": "write --constraint hal.node=NAME",
    "--parsable": "the id is printed alone as it is",
    "--noheader": "for a program, write -o json",
    "--script": "name the script without an option: hal submit SCRIPT",
    "--start": "when a job starts, hal why JOB says; hal plan lists all",
    "--wrap": "write the command behind --: hal submit -- COMMAND",
}
"""Where the name of an option does not say it all."""


def command_hint(words: Sequence[str]) -> str:
    """What to type instead of `hal WORDS…`; '' if the first word means nothing here."""
    name, *rest = [*words, "", ""][: max(len(words), 1) + 2]
    if name == "scontrol":
        what, which, *more = [*rest, "", ""]
        found = _SCONTROL.get((what, which))
        if found:
            return f"did you mean '{found.format(more[0] if more and more[0] else which.upper())}'?"
        found = _SCONTROL.get((what, ""))
        if found:
            return f"did you mean '{found.format(which or 'JOB')}'?"
    found = COMMANDS.get(name, "")
    return f"what '{name}' does is here: {found}" if found else ""


def option_hint(option: str, known: Collection[str]) -> str:
    """What to type instead of an option; '' if it means nothing here.

    Args:
        known: the options of the command at hand, with their dashes.
    """
    if option not in OPTIONS and option.startswith("--"):
        option = option.lower()  # --TimeLimit
    said = _SAYINGS.get(option, "")
    names = [name for name in OPTIONS.get(option, ()) if name in known]
    if said and (not OPTIONS.get(option) or names):
        return said
    return f"did you mean {' or '.join(names)}?" if names else ""
