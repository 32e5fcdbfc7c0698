"""`hal simulate --config`: a log under the whole policy of one hal.toml, or of several, side by side."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hal.cli.kit.output_files import written_whole
from hal.cli.kit.screen import Screen
from hal.cli.simulation.placements import add_extension_rows, add_gpu_rows, add_rows, as_plain, size_of
from hal.cli.simulation.policy_names import Entry
from hal.cli.simulation.presentation import PLAIN_WIDTH, BarUpdate, as_duration, bars, figures_of, plain_table, title

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from hal.core.model.policy import Policy
    from hal.daemons.twin.account_figures import Party
    from hal.daemons.twin.common_jobs import Comparison
    from hal.daemons.twin.machine import Machine
    from hal.daemons.twin.policy_replay import PolicyRun
    from hal.daemons.twin.population import Population
    from hal.daemons.twin.site_admission import Site
    from hal.daemons.twin.swf import Log, Workload

POLICY_SUFFIXES = (".json", ".yaml", ".yml")
"""Suffixes of files that hold only a policy, as `hal policy show` prints it."""
PARTIES_SHOWN = 20
NOTHING = "-"
OTHER_JOBS = "*"
"""Marks figures of policies that started different jobs."""
OF_JOBS = ("mean wait", "median", "p95", "slowdown")
"""Columns about jobs that started."""
OF_THE_MACHINE = ("utilisation", "makespan")
"""Figures that are not of jobs."""


class Wanted(NamedTuple):
    """The options about the replay and its results."""

    accounts: str | None
    queue: str | None
    seed: int
    until: str | None
    clairvoyant: bool
    by_user: bool
    check: bool
    plot: Path | None
    out_jobs: Path | None


class Replayed(NamedTuple):
    """One site's run, its wall time in seconds, and the file it came from."""

    run: PolicyRun
    replay_s: float
    file: str


def read_sites(files: tuple[str, ...]) -> list[tuple[str, Site]]:
    """Read the files. Policies of other packages are loaded first, as a controller does.

    Raises:
        NotFoundError, DeniedError, SpecError, EngineError: a file cannot be used; the error names it.
    """
    from hal.core.model import SpecError
    from hal.daemons.controller.config import Config, read_config
    from hal.daemons.controller.startup.plugins import load_policies
    from hal.daemons.twin.site_admission import site_of
    from hal.runtime.config_file import is_anothers

    texts = [_text_of(file) for file in files]
    load_policies()
    sites = []
    for file, text, label in zip(files, texts, _labels(files), strict=True):
        try:
            config = (
                Config(policy=_policy_of(text, file))
                if file.endswith(POLICY_SUFFIXES)
                else read_config(text, is_anothers)
            )
        except SpecError as error:
            raise SpecError(f"{file}: {error.message.removeprefix('hal.toml: ')}", hint=error.hint) from error
        sites.append((file, site_of(label, file, config.engine, config.policy, config.admit)))
    return sites


def with_built_in(
    entries: Sequence[Entry],
    files: list[tuple[str, Site]],
    own: Sequence[str] = (),
    *,
    gpu_parts: bool = False,
    gpu_islands: bool = False,
) -> list[tuple[str, Site]]:
    """The sites of the files, and among them, in the order given, policies that are no files.

    These have the queues and accounts of the files, without limits, hours and priorities.

    Args:
        own: queues that there are where there is no file.
        gpu_parts: jobs may share a GPU under these.
        gpu_islands: jobs may ask for GPUs of one link island under these.
    """
    from msgspec.structs import replace

    from hal.core.model.policy import DEFAULT_QUEUE, Policy, Queue
    from hal.daemons.twin.site_admission import Site

    names = {entry.name for entry in entries if not entry.is_file}
    # A file that is called like a built-in policy goes by its whole name.
    by_file = {file: replace(site, label=file) if site.label in names else site for file, site in files}
    known = [name for site in by_file.values() for name in site.policy.queues] if files else [DEFAULT_QUEUE, *own]
    queues = {name: Queue(name=name) for name in known}
    bare = Policy(queues=queues, accounts=files[0][1].policy.accounts if files else {})
    return [
        (entry.name, by_file[entry.name])
        if entry.is_file
        else (
            entry.name,
            Site(
                label=entry.name,
                engine=replace(entry.policy.engine, policy=bare, gpu_parts=gpu_parts, gpu_islands=gpu_islands),
            ),
        )
        for entry in entries
    ]


def compare(
    screen: Screen,
    log: Log,
    jobs: Workload,
    machine: Machine,
    sites: list[tuple[str, Site]],
    wanted: Wanted,
    own: Population | None = None,
) -> None:
    """Replay the jobs under each site, then write and print what came of it; nothing is written before all is done.

    Args:
        own: whose the jobs are, where they say it themselves.
    Raises: SpecError when a site does not know a name of the jobs, or an option cannot be read.
    """
    from hal.core.model import parse_duration
    from hal.daemons.twin.common_jobs import compare_runs
    from hal.daemons.twin.policy_replay import load_site_kernels, replay_under
    from hal.daemons.twin.site_admission import check_names, ignored_node_pools

    until_s = None
    if wanted.until is not None:
        until_s = int(jobs.submit_s[0]) + max(int(parse_duration(wanted.until, field="--until")) // 1000, 1)
    people = own or _population(screen, log, jobs, [site for _, site in sites], wanted)
    for _, site in sites:
        check_names(site, people)
        for queue in ignored_node_pools(site, people) if machine.cluster is None else ():
            screen.note(
                f"{site.label}: the node pool of queue '{queue}' is ignored, because nodes of a log have no labels"
            )
    for _, site in sites:
        load_site_kernels(site)
    results: list[Replayed] = []
    with bars(screen) as progress:
        for file, site in sites:
            bar = progress.add_task(site.label, total=jobs.jobs)
            began = time.perf_counter()
            run = replay_under(
                jobs, machine, people, site, origin_s=log.unix_start_s, until_s=until_s,
                clairvoyant=wanted.clairvoyant, check=wanted.check, report=BarUpdate(progress, bar),
            )  # fmt: skip
            results.append(Replayed(run, time.perf_counter() - began, file))
            progress.update(bar, completed=jobs.jobs)
    if wanted.out_jobs is not None:
        _write_jobs(wanted.out_jobs, results)
    if wanted.plot is not None:
        from hal.daemons.twin.share_plot import plot_shares

        with written_whole(wanted.plot) as unfinished:
            plot_shares([one.run for one in results], title(log, jobs, machine), unfinished)
    comparison = compare_runs([one.run for one in results])
    if screen.plain:
        objects = [_as_object(log, jobs, machine, one, wanted) for one in results]
        screen.emit([{**one, **_compared(comparison, at)} for at, one in enumerate(objects)])
    else:
        _print(screen, log, jobs, machine, results, wanted, comparison)


def _text_of(file: str) -> str:
    """The file's text. Raises NotFoundError, DeniedError, SpecError."""
    from hal.core.model import DeniedError, NotFoundError, SpecError

    try:
        return Path(file).read_text("utf-8")
    except FileNotFoundError:
        raise NotFoundError(f"file '{file}' does not exist", hint="name a hal.toml") from None
    except PermissionError:
        raise DeniedError(f"file '{file}' may not be read by you", hint=f"see its permissions: ls -l {file}") from None
    except OSError as error:
        raise SpecError(f"file '{file}' cannot be read: {error.strerror or error}", hint="name a hal.toml") from None
    except UnicodeDecodeError:
        raise SpecError(f"file '{file}' is not UTF-8 text", hint="name a hal.toml") from None


def _policy_of(text: str, file: str) -> Policy:
    """A policy alone, as `hal policy show --json` or `-o yaml` writes it. Raises SpecError."""
    from hal.cli.policy.policy_files import policy_in
    from hal.core.model.text import plain_from_text

    return policy_in(plain_from_text(text, kind="json" if file.endswith(".json") else "yaml"))


def _labels(files: tuple[str, ...]) -> list[str]:
    """The shortest names that tell the files apart."""
    for name in (lambda path: path.stem, lambda path: path.name, str):
        labels = [str(name(Path(file))) for file in files]
        if len(set(labels)) == len(labels):
            return labels
    return list(files)


def _population(screen: Screen, log: Log, jobs: Workload, sites: list[Site], wanted: Wanted) -> Population:
    """The users and accounts of the jobs: from the log, or assigned at random; the same for every site."""
    from hal.core.model import SpecError
    from hal.core.model.policy import DEFAULT_QUEUE
    from hal.daemons.twin.population import assign_accounts, has_groups, in_queue, of_log, parse_assignment

    people = of_log(jobs, log.group_names, log.queue_names)
    if wanted.queue is not None:
        people = in_queue(people, wanted.queue)
    elif all(set(site.policy.queues) == {DEFAULT_QUEUE} for site in sites):
        if len(people.queues) > 1:
            screen.note(
                f"the log has {len(people.queues)} queues, and no --config has any: all jobs go to '{DEFAULT_QUEUE}'"
            )
        people = in_queue(people, DEFAULT_QUEUE)
    accounts = wanted.accounts
    if accounts is None:
        accounts = "policy" if sites[0].policy.accounts and not has_groups(jobs) else "log"
    elif accounts == "log" and not has_groups(jobs):
        raise SpecError(
            f"--accounts log: {log.name} names no groups of jobs",
            hint="assign accounts at random: --accounts policy, a number, or NAME=PART,…",
        )
    if accounts == "log":
        return people
    dealing = parse_assignment(accounts, sites[0].policy)
    screen.note(f"jobs are assigned to {len(dealing.parts)} accounts at random (seed {wanted.seed}), not as in the log")
    return assign_accounts(jobs, people, dealing, wanted.seed)


def _write_jobs(path: Path, results: list[Replayed]) -> None:
    """`id,submit,start,end,procs,queue,account,user`; start and end are empty where a job never started. On a cluster
    also the nodes of its last start, and what it held of their GPUs."""
    import csv

    from hal.core.model.topology.node_lists import fold_names

    for one in results:
        run, people = one.run, one.run.people
        label = run.site.label.replace("/", "-").strip("-.")
        target = path if len(results) == 1 else path.with_name(f"{path.stem}-{label}{path.suffix}")
        with written_whole(target) as unfinished, unfinished.open("w", newline="") as file:
            table = csv.writer(file, lineterminator="\n")
            placed = ("nodes", "gpus") if run.places else ()
            table.writerow(("id", "submit", "start", "end", "procs", "queue", "account", "user", *placed))
            numbers = (
                run.id,
                run.submit_s,
                run.start_s,
                run.end_s,
                run.procs,
                people.queue,
                people.account,
                people.user,
            )
            for at, (number, submit, start, end, procs, queue, account, user) in enumerate(
                zip(*(column.tolist() for column in numbers), strict=True)
            ):
                times = (start if start >= 0 else "", end if end >= 0 else "")
                names = (people.queues[queue], people.accounts[account], people.users[user])
                where = (fold_names(run.places[at]), run.held_gpus[at]) if placed else ()
                table.writerow((number, submit, *times, procs, *names, *where))


def _as_object(log: Log, jobs: Workload, machine: Machine, one: Replayed, wanted: Wanted) -> dict[str, Any]:
    """What --json prints of one site."""
    from hal.daemons.twin.account_figures import by_account, by_user, overall
    from hal.daemons.twin.named_policies import described
    from hal.daemons.twin.replay import on_levels

    run = one.run
    figures = overall(run)
    started = int(run.started.sum())
    refused = sum(refusal.jobs for refusal in run.refused)
    plain: dict[str, Any] = {
        "policy": run.site.label,
        "decides": described(on_levels(run.site.engine, machine)),
        "config": one.file,
        "clairvoyant": run.clairvoyant,
        "log": log.name,
        "nodes": machine.nodes,
        **size_of(machine),
        "seed": wanted.seed,
        "jobs": run.arrived,
        "started": started,
        "refused": refused,
        "waiting": run.arrived - started - refused,
        "skipped": sum(jobs.skipped.values()),
        "skipped_reasons": jobs.skipped,
        "refused_reasons": [
            {"what": refusal.what, "jobs": refusal.jobs, "example": refusal.example} for refusal in run.refused
        ],
        "waiting_reasons": run.waiting,
        "taken_back": run.preemptions,
        "lost_core_hours": run.lost_s / 3600,
    }
    if figures is not None:
        values = figures.as_dict()
        del values["jobs"]
        plain |= values
    plain |= {
        "replay_s": round(one.replay_s, 6),
        "cycles": run.cycles,
        **as_plain(run.gangs),
        **({} if run.gpus is None else {"gpus": run.gpus.as_dict()}),
        **({} if run.extensions is None else {"extensions": run.extensions.as_dict()}),
        "accounts": [party.as_dict() for party in by_account(run)],
    }
    if wanted.by_user:
        plain["users"] = [party.as_dict() for party in by_user(run)]
    return plain


def _compared(comparison: Comparison, at: int) -> dict[str, Any]:
    """What --json prints of how far one run may be compared with the others."""
    figures = comparison.figures[at]
    return {
        "same_jobs": not comparison.unequal,
        "started_elsewhere_only": comparison.lacking[at],
        "started_in_all": comparison.started_in_all,
        "of_jobs_started_in_all": None if figures is None else _of_jobs(figures.as_dict()),
    }


def _of_jobs(figures: dict[str, float]) -> dict[str, float]:
    """Without what is of the machine, or counts the jobs."""
    return {name: value for name, value in figures.items() if name not in ("jobs", "utilisation", "makespan_s")}


def _print(
    screen: Screen,
    log: Log,
    jobs: Workload,
    machine: Machine,
    results: list[Replayed],
    wanted: Wanted,
    comparison: Comparison,
) -> None:
    from hal.cli.kit.tables import console_on
    from hal.daemons.twin.account_figures import by_account, by_user, overall
    from hal.daemons.twin.named_policies import described
    from hal.daemons.twin.replay import on_levels

    out = console_on(screen.out)
    if not out.is_terminal:
        out.width = PLAIN_WIDTH
    heading = title(log, jobs, machine) + (", clairvoyant" if wanted.clairvoyant else "")
    out.print(heading, style="bold", soft_wrap=True)
    runs = [one.run for one in results]
    table = plain_table("", *(run.site.label for run in runs))
    started = [int(run.started.sum()) for run in runs]
    refused = [sum(refusal.jobs for refusal in run.refused) for run in runs]
    table.add_row("started", *(f"{count:,}" for count in started))
    if any(refused):
        table.add_row("refused", *(f"{count:,}" for count in refused))
    waiting = [run.arrived - ran - no for run, ran, no in zip(runs, started, refused, strict=True)]
    if any(waiting):
        table.add_row("waiting at the end", *(f"{count:,}" for count in waiting))
    if any(run.preemptions for run in runs):
        table.add_row("preempted", *(f"{run.preemptions:,}" for run in runs))
        table.add_row("core-hours lost to preemption", *(f"{run.lost_s / 3600:,.1f}" for run in runs))
    columns = [{} if (figures := overall(run)) is None else figures_of(figures) for run in runs]
    mark = OTHER_JOBS if comparison.unequal else ""
    for figure in max(columns, key=len):
        own = mark if figure not in OF_THE_MACHINE else ""
        table.add_row(figure, *(f"{column[figure]}{own}" if figure in column else NOTHING for column in columns))
    add_rows(table, [run.gangs for run in runs])
    add_gpu_rows(table, [run.gpus for run in runs])
    add_extension_rows(table, [run.extensions for run in runs])
    if comparison.unequal:
        _add_common(table, comparison)
    out.print(table)
    if comparison.unequal:
        lacking = [f"{run.site.label} {count:,}" for run, count in zip(runs, comparison.lacking, strict=True) if count]
        out.print(
            f"{OTHER_JOBS} over different jobs, so not to be compared: jobs that started elsewhere only, by policy: "
            f"{', '.join(lacking)}. Compare the figures of the {comparison.started_in_all:,} jobs that started in all.",
            style="bold",
            soft_wrap=True,
        )
    for run in runs:
        out.print(f"{run.site.label}: {described(on_levels(run.site.engine, machine))}", style="dim", soft_wrap=True)
        for refusal in run.refused:
            if refusal.jobs:
                out.print(
                    f"{run.site.label}: {refusal.jobs:,} jobs refused, for example: {refusal.example}",
                    style="dim",
                    soft_wrap=True,
                )
        if run.waiting:
            why = ", ".join(f"{count:,} {reason}" for reason, count in sorted(run.waiting.items()))
            out.print(f"{run.site.label}: jobs waiting at the end, by reason: {why}", style="dim", soft_wrap=True)
    if any(runs[0].people.accounts):
        _print_parties(out, "account", runs, [by_account(run) for run in runs], mark)
    if wanted.by_user or not any(runs[0].people.accounts):
        _print_parties(out, "user", runs, [by_user(run) for run in runs], mark)


def _add_common(table: Table, comparison: Comparison) -> None:
    """Figures that may be compared though the runs started different jobs."""
    columns = [{} if one is None else figures_of(one) for one in comparison.figures]
    table.add_section()
    table.add_row(f"of the {comparison.started_in_all:,} jobs that started in all")
    for figure in columns[0]:
        if figure not in OF_THE_MACHINE:
            table.add_row(figure, *(column[figure] for column in columns))


def _print_parties(out: Console, kind: str, runs: list[PolicyRun], parties: list[list[Party]], mark: str) -> None:
    """One row for each account (or user) and site, sites of one account below one another."""
    heads = ("jobs", "core-h", "target", "asked", "delivered", *(f"{name}{mark}" for name in OF_JOBS))
    several = len(runs) > 1
    table = plain_table(kind, *(("policy",) if several else ()), *heads)
    if several:
        table.columns[1].justify = "left"
    found = [{party.name: party for party in some} for some in parties]
    names = list(dict.fromkeys(party.name for some in parties for party in some))
    for name in names[:PARTIES_SHOWN]:
        shown = name or "(none)"
        for run, some in zip(runs, found, strict=True):
            party = some.get(name)
            if party is not None:
                table.add_row(shown, *((run.site.label,) if several else ()), *_cells(party))
                shown = ""
    out.print()
    out.print(table)
    if len(names) > PARTIES_SHOWN:
        out.print(f"the first {PARTIES_SHOWN} of {len(names):,}; --json has all", style="dim")


def _cells(party: Party) -> tuple[str, ...]:
    waits = (party.mean_wait_s, party.median_wait_s, party.p95_wait_s)
    return (
        f"{party.jobs:,}",
        f"{party.core_hours:,.1f}",
        f"{party.target:.1%}",
        f"{party.asked:.1%}",
        NOTHING if party.delivered is None else f"{party.delivered:.1%}",
        *(NOTHING if wait is None else as_duration(wait) for wait in waits),
        NOTHING if party.mean_bounded_slowdown is None else f"{party.mean_bounded_slowdown:,.2f}",
    )
