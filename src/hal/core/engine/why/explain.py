"""Why a job does not run, and what could never run: asked of the same tables that decide.

Pure, O(state) a question; reads reservations first and falls back to the projected releases of running attempts.
"""

from __future__ import annotations

import msgspec
import numpy as np

from hal.core.engine.classes import ClassSpec
from hal.core.engine.errors import EngineError
from hal.core.engine.state import State
from hal.core.engine.views import rows_of_run
from hal.core.engine.why.beside import kept_from
from hal.core.engine.why.booked import kept_off
from hal.core.engine.why.feasible import enough_known, never_fits, offers_needed
from hal.core.engine.why.foresight import RESERVED, admitted, entries_of, first_entries, forecast, position
from hal.core.engine.why.groups import groups_kept, groups_short
from hal.core.engine.why.licensed import unlicensed
from hal.core.engine.why.refused import refused
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.arrays import Rows
from hal.core.model.units import format_distinctly, format_duration, format_wait, plural
from hal.core.model.verdict import Reason, Verdict

MAX_LISTED = 5
"""Nodes, offers or jobs that a message names."""


def explain(state: State, job: int, now_ms: int, *, brief: bool = False) -> Verdict:
    """Why the first waiting tasks of a job do not run.

    Args:
        brief: only the reason, for a list of many jobs: without forecast, rivals and numbers, in some ten microseconds.
    Raises:
        EngineError: it neither waits nor runs.
    """
    claimed = _claimed(state, job, now_ms) if state.meta[L.M_CLAIMS] else None
    if claimed is not None:
        return claimed
    slot = _first_waiting(state, job, brief=brief)
    if slot is None:
        return Verdict(job=job, reason=Reason.NONE, message="all its tasks are running")
    entry = state.work.entries[slot]
    if entry[L.E_WHERE] != L.WHERE_BUCKET:
        return _not_eligible(job, entry, now_ms)
    class_id = int(state.work.buckets[entry[L.E_BUCKET], L.B_CLASS])
    spec = state.catalogue.class_specs[class_id]
    assert spec is not None
    shape = int(state.catalogue.classes[class_id, L.C_SHAPE])
    booked = kept_off(state, job, slot, spec, now_ms)
    if booked is not None:
        return booked if brief else _placed(state, booked, slot, shape, now_ms)
    if spec.is_social and state.meta[L.M_AFFINE] and not spec.groups:
        away = kept_from(state, job, spec, shape)
        if away is not None:
            return away
    if spec.groups:
        kept = groups_kept(state, job, class_id, spec)
        if kept is not None:
            return kept
    elif state.catalogue.shapes[shape, L.S_EVER] < spec.nodes:
        return _not_enough_nodes(state, job, spec, shape)
    ruled = refused(state, job, slot, spec, now_ms, brief=brief)
    if ruled is not None:
        return ruled
    licence = unlicensed(state, job, slot, spec, now_ms, brief=brief)
    if licence is not None:
        return licence if brief else _placed(state, licence, slot, shape, now_ms)
    if spec.groups:
        return groups_short(state, job, slot, class_id, spec, now_ms, 0 if brief else position(state, slot, shape))
    fits = int(state.catalogue.shapes[shape, L.S_FIT]) >= spec.nodes
    if brief:
        return Verdict(job=job, reason=_why_overtaken(state) if fits else Reason.RESOURCES, message="")
    ahead = position(state, slot, shape)
    starts_at_ms, basis = forecast(state, slot, spec, shape, now_ms)
    if fits:
        return _overtaken(state, job, slot, shape, spec, now_ms, ahead, starts_at_ms, basis)
    short = _short_of_resources(state, job, spec, shape)
    return msgspec.structs.replace(
        short,
        starts_at_ms=starts_at_ms, basis=basis, forecast_at_ms=_of_when(state, basis, now_ms), position=ahead,
    )  # fmt: skip


def _first_waiting(state: State, job: int, *, brief: bool) -> int | None:
    """The entry of the first tasks that wait, of those that may start now if there are any; None: all its tasks run.

    Raises:
        EngineError: as `explain`.
    """
    slots = first_entries(state, job) if brief else entries_of(state, job)
    if not slots.shape[0]:
        runs = state.work.runs[: int(state.meta[L.M_RUN_TOP])]
        if ((runs[:, L.R_NODES] > 0) & (runs[:, L.R_JOB] == job)).any():
            return None
        raise EngineError(f"job {job} neither waits nor runs in the engine: it has ended, or was never submitted")
    waiting = slots[state.work.entries[slots, L.E_WHERE] == L.WHERE_BUCKET]
    candidates = waiting if waiting.shape[0] else slots
    return int(candidates[np.argmin(state.work.entries[candidates, L.E_FIRST])])


def _not_enough_nodes(state: State, job: int, spec: ClassSpec, shape: int) -> Verdict:
    """Fewer nodes are up than it needs of those that could hold it, even when they are empty."""
    silent = state.plugins.unasked(spec.shape_key())
    if silent:
        return Verdict(
            job=job, reason=Reason.CONSTRAINTS, helps=("hal status",),
            message=f"filter '{silent[0]}' failed before it decided where such jobs may run: none of them "
            "starts until it works again",
        )  # fmt: skip
    known = enough_known(state, spec)
    never = None if known else never_fits(state, spec)
    if never is not None:
        return never.verdict(job)
    offers = () if known else offers_needed(state, spec)
    if offers:
        return Verdict(
            job=job, reason=Reason.OFFER, asked=spec.nodes,
            message=f"waits for {'a machine' if spec.nodes == 1 else 'machines'} that could be rented: "
            f"{plural(len(offers), 'offer').partition(' ')[2]} {_listed(list(offers))}",
        )  # fmt: skip
    up = int(state.catalogue.shapes[shape, L.S_EVER])
    return Verdict(
        job=job, reason=Reason.NODES_DOWN, asked=0,
        message=f"needs {plural(spec.nodes, 'node')}{_of_one(spec)}; of those that could hold it "
        f"{up or 'none'} {'is' if up < 2 else 'are'} up",
    )  # fmt: skip


def _short_of_resources(state: State, job: int, spec: ClassSpec, shape: int) -> Verdict:
    """Too few nodes have room for it now; without a forecast."""
    fit = int(state.catalogue.shapes[shape, L.S_FIT])
    resource, asked, available, node = _shortage(state, spec, shape)
    wanted, most = format_distinctly(resource, asked, available)
    what = plural(asked, "node") if resource == "nodes" else f"{wanted} {resource}"
    message = f"waits for {what}; the most free is {most}{f' on {node}' if node else ''}"
    if spec.nodes == 1 and node and available >= asked:
        message = f"no node has all it needs free now; {node} has {most} {resource}, but not the rest"
    if spec.nodes > 1:
        have = {0: "no node has", 1: "1 node has"}.get(fit, f"{fit} nodes have")
        message = f"waits for {what} on each of {spec.nodes} nodes; {have} all it needs free now"
        if spec.within:
            everywhere = _fits_anywhere(state, shape)
            where = f"on {plural(everywhere, 'node')}, but on {f'at most {fit}' if fit else 'none'}{_of_one(spec)}"
            message = f"waits for {what} on each of {spec.nodes} nodes{_of_one(spec)}; it fits {where} now"
    return Verdict(
        job=job, reason=Reason.RESOURCES, resource=resource, asked=asked, available=available, node=node,
        message=message,
        helps=(f"{plural(fit, 'node')} instead of {spec.nodes} would fit now",) if 0 < fit < spec.nodes else (),
    )  # fmt: skip


def _claimed(state: State, job: int, now_ms: int) -> Verdict | None:
    """For a job whose place is being cleared: who has to leave, and until when."""
    runs = state.work.runs[: int(state.meta[L.M_RUN_TOP])]
    live = runs[:, L.R_NODES] > 0
    mine = np.flatnonzero(live & (runs[:, L.R_JOB] == job) & (runs[:, L.R_STATE] == L.RUN_CLAIM))
    if not mine.shape[0]:
        return None
    first = int(mine[np.argmin(runs[mine, L.R_DUE])])
    due = int(runs[first, L.R_DUE])
    parts = [first]
    row = state.catalogue.classes[state.work.buckets[runs[first, L.R_BUCKET], L.B_CLASS]]
    if row[L.C_NEXT] or row[L.C_FOLLOWS]:  # the claims of all groups
        parts = mine[np.argsort(runs[mine, L.R_TASK])].tolist()
    names = [state.nodes.names[row] for run in parts for row in rows_of_run(state, run)]
    going = runs[live & (runs[:, L.R_FOR] == job) & (runs[:, L.R_STATE] == L.RUN_GOING)]
    leaving = going[:, L.R_JOB]
    others = sorted(set(leaving.tolist()))
    who = f"{plural(len(leaving), 'attempt')} ({_listed([f'job {other}' for other in others])})" if others else "work"
    wait = format_wait(max(due - now_ms, 0))
    if others and _had_borrowed(state, runs[first], going):
        return Verdict(
            job=job, reason=Reason.LIMIT,
            message=f"reclaims quota that its cohort has borrowed: {who} "
            f"{'is' if len(leaving) == 1 else 'are'} preempted for it, gone within {wait}",
            starts_at_ms=max(due, now_ms), basis="preemption for this job",
        )  # fmt: skip
    return Verdict(
        job=job, reason=Reason.RESOURCES, asked=len(names),
        message=f"waits for {_listed(names)} to be cleared: {who} preempted for it, gone within {wait}",
        starts_at_ms=max(due, now_ms), basis="preemption for this job",
    )  # fmt: skip


def _placed(state: State, verdict: Verdict, slot: int, shape: int, now_ms: int) -> Verdict:
    """The same with how many go before it, and of when its forecast is."""
    return msgspec.structs.replace(
        verdict, position=position(state, slot, shape), forecast_at_ms=_of_when(state, verdict.basis, now_ms)
    )


def _had_borrowed(state: State, claim: Rows, going: Rows) -> bool:
    """Whether work leaves for a claim that its QOS could not take from: it had borrowed what is the claim's."""
    takes = state.shares.qos[_qos_of(state, claim[None, :])[0], L.STANDING_TAKES :]
    return bool((takes[_qos_of(state, going)] == 0).any())


def _qos_of(state: State, runs: Rows) -> Rows:
    owners: Rows = state.shares.owners[state.work.buckets[runs[:, L.R_BUCKET], L.B_OWNER], L.O_QOS]
    return owners


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:MAX_LISTED])
    return shown if len(names) <= MAX_LISTED else f"{shown} and {len(names) - MAX_LISTED} more"


def _not_eligible(job: int, entry: Rows, now_ms: int) -> Verdict:
    if entry[L.E_HELD]:
        return Verdict(job=job, reason=Reason.HELD, message="held; `hal release` releases it")
    eligible = int(entry[L.E_ELIGIBLE])
    if eligible >= L.INF:
        return Verdict(job=job, reason=Reason.DEPENDENCY, message="waits for jobs that it depends on")
    again = entry[L.E_ATTEMPT] > 1
    wait = format_wait(max(eligible - now_ms, 0))
    return Verdict(
        job=job, reason=Reason.BACKOFF if again else Reason.BEGIN_AT,
        message=f"attempt {int(entry[L.E_ATTEMPT])} may start in {wait}" if again else f"may start in {wait}",
        starts_at_ms=eligible, basis="back-off" if again else "begin-at",
    )  # fmt: skip


def _overtaken(
    state: State, job: int, slot: int, shape: int, spec: ClassSpec, now_ms: int, ahead: int,
    starts_at_ms: int | None,
    basis: str,
) -> Verdict:  # fmt: skip
    """It fits now and does not run: it is new, or what fits is reserved for jobs ahead."""
    reason = _why_overtaken(state)
    if reason is Reason.NOT_CONSIDERED:
        return Verdict(
            job=job, reason=reason, message="fits now; the next pass considers it", starts_at_ms=now_ms,
            basis="free now", position=ahead,
        )  # fmt: skip
    reservations = state.work.reservations[: int(state.meta[L.M_RESERVATIONS])]
    others = reservations[(reservations[:, L.V_KIND] == L.KIND_RESERVED) & (reservations[:, L.V_ENTRY] != slot)]
    until = int(others[:, L.V_START].max(initial=-1))
    planned = int(state.work.entries[slot, L.E_PLANNED])
    helps: tuple[str, ...] = ()
    if until > now_ms and planned > until - now_ms and state.config.backfill != "none":
        helps = (f"a walltime of at most {format_duration(until - now_ms)} could let it start now",)
    fit = int(state.catalogue.shapes[shape, L.S_FIT])
    return Verdict(
        job=job, reason=reason,
        message=f"fits on {plural(fit, 'node')}{_of_one(spec)} now ({spec.nodes} needed), but what "
        "it needs is reserved for jobs ahead of it",
        starts_at_ms=starts_at_ms, basis=basis, forecast_at_ms=_of_when(state, basis, now_ms), position=ahead,
        helps=helps,
    )  # fmt: skip


def _of_one(spec: ClassSpec) -> str:
    return f" of one {spec.within}" if spec.within else ""


def _fits_anywhere(state: State, shape: int) -> int:
    """On how many nodes a shape fits now, in whichever domains."""
    rows = admitted(state, shape)
    there = state.nodes.open_now[state.catalogue.shapes[shape, L.S_CSET], rows] != 0
    return int((there & (state.nodes.free[rows] >= state.catalogue.request[:, shape]).all(axis=1)).sum())


def _why_overtaken(state: State) -> Reason:
    return Reason.PRIORITY if state.meta[L.M_RESERVATIONS] else Reason.NOT_CONSIDERED


def _of_when(state: State, basis: str, now_ms: int) -> int | None:
    """Of when a forecast is: a reservation holds since the last pass, the rest is worked out for this question."""
    return (state.clock_ms if basis == RESERVED else now_ms) if basis else None


def _shortage(state: State, spec: ClassSpec, shape: int) -> tuple[str, int, int, str]:
    """The resource that the fewest rows have free enough: (name, asked, most free, where)."""
    rows = admitted(state, shape)
    worst: tuple[int, str, int, int, str] | None = None
    for name, asked in spec.request.items():
        if not asked:
            continue
        free = state.nodes.free[rows, state.nodes.resources.index(name)]
        enough = int((free >= asked).sum())
        best = int(np.argmax(free))
        if worst is None or enough < worst[0]:
            worst = (enough, name, asked, int(free[best]), state.nodes.names[rows[best]])
    if worst is None:
        return "nodes", spec.nodes, int(state.catalogue.shapes[shape, L.S_FIT]), ""
    return worst[1], worst[2], max(worst[3], 0), worst[4]
