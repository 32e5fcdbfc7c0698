"""Results by account or user: jobs, usage, waits, and the share compared with its target.

Pure. Definitions (also in docs/simulate.md):
- target = the account's fraction of the whole in the tree of shares, among those that have jobs in the log;
- asked = its fraction of the processor-seconds of all accepted jobs;
- delivered = its fraction of the processor-seconds used while it had jobs waiting, which is what a share determines;
  None if it never waited;
- waits and slowdowns are of jobs that started.
O(J log J) for all accounts.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hal.daemons.twin.legs import Held
from hal.daemons.twin.metrics import Metrics, bounded_slowdown, judge
from hal.daemons.twin.policy_replay import PolicyRun

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

HOUR_S = 3600


@dataclass(frozen=True, slots=True)
class Party:
    """Figures of one account or user; shares are fractions 0..1. Times in seconds, None if no job started.

    jobs: submitted. refused: of these, not accepted. waiting: not started when the replay ended.
    """

    name: str
    jobs: int
    refused: int
    waiting: int
    core_hours: float
    target: float
    asked: float
    delivered: float | None
    mean_wait_s: float | None
    median_wait_s: float | None
    p95_wait_s: float | None
    mean_bounded_slowdown: float | None
    p95_bounded_slowdown: float | None

    def as_dict(self) -> dict[str, Any]:
        """The fields by name, ready for JSON."""
        return asdict(self)


def by_account(run: PolicyRun) -> list[Party]:
    """Return one party for each account that has jobs, highest usage first, ties by name; '' is no account."""
    target: dict[str, float] = {}
    for (account, _user), part in run.target.items():
        target[account] = target.get(account, 0.0) + part
    return _parties(run, run.people.account, run.people.accounts, target)


def by_user(run: PolicyRun) -> list[Party]:
    """Return one party for each user that has jobs, over all accounts, in the same order."""
    target: dict[str, float] = {}
    for (_account, user), part in run.target.items():
        target[user] = target.get(user, 0.0) + part
    return _parties(run, run.people.user, run.people.users, target)


def overall(run: PolicyRun) -> Metrics | None:
    """Return the figures of all jobs that started; None if none did. Utilisation and makespan cover the time
    replayed."""
    return figures_among(run, run.started)


def figures_among(run: PolicyRun, which: NDArray[np.bool_]) -> Metrics | None:
    """Return the figures of these jobs, which all started; None without any. Utilisation and makespan are the run's."""
    rows = np.flatnonzero(which)
    if not rows.size:
        return None
    submit, end, procs = (column[rows] for column in (run.submit_s, run.end_s, run.procs))
    machine = run.machine.procs
    span_s = max(run.until_s - int(run.submit_s[0]), 1)
    held, held_procs = run.used
    used = float(((held.end_s - held.begin_s) * held_procs.astype(np.float64)).sum())
    figures = judge(submit, end - run.run_s[rows], end, procs, machine_procs=machine, span_s=span_s)
    return replace(figures, utilisation=used / (machine * span_s), makespan_s=span_s)


class Used:
    """The processor-seconds that a set of jobs had used by any instant, exactly: an integral of processors in use."""

    def __init__(self, start_s: IntArray, end_s: IntArray, procs: IntArray) -> None:
        at = np.concatenate([start_s, end_s])
        change = np.concatenate([procs, -procs])
        order = np.argsort(at, kind="stable")
        self._at = at[order].astype(np.float64)
        busy = np.cumsum(change[order])
        self._used = np.concatenate([np.zeros(1), np.cumsum(busy[:-1] * np.diff(self._at))])[: self._at.size]

    def by(self, instant_s: FloatArray) -> FloatArray:
        """Return the processor-seconds used by these instants; same shape."""
        if not self._at.size:
            return np.zeros(instant_s.shape)
        used: FloatArray = np.interp(instant_s, self._at, self._used)
        return used


def waiting_periods(submit_s: IntArray, start_s: IntArray) -> FloatArray:
    """Return the periods in which at least one of these jobs waits, disjoint and in order; shape (S, 2), none of
    them empty."""
    at = np.concatenate([submit_s, start_s])
    change = np.concatenate([np.ones(submit_s.size, np.int64), -np.ones(start_s.size, np.int64)])
    order = np.argsort(at, kind="stable")
    at, count = at[order], np.cumsum(change[order])
    last = np.append(at[1:] != at[:-1], np.ones(min(at.size, 1), np.bool_))
    at, count = at[last], count[last]
    some = count > 0
    before = np.zeros(some.size, np.bool_)
    before[1:] = some[:-1]
    begins, ends = np.flatnonzero(some & ~before), np.flatnonzero(~some & before)
    return np.stack([at[begins], at[ends]], axis=1).astype(np.float64)


def _parties(run: PolicyRun, member: IntArray, names: tuple[str, ...], target: dict[str, float]) -> list[Party]:
    member = member[: run.arrived]
    accepted = run.reason[: run.arrived] < 0
    started = run.started[: run.arrived]
    held, procs = run.used
    everything = Used(held.begin_s, held.end_s, procs)
    waits = _waits(run)
    asked_of = np.bincount(member[accepted], minlength=len(names), weights=run.asked_s[: run.arrived][accepted])
    total_asked = float(asked_of.sum())
    order = np.argsort(member, kind="stable")
    parties: list[Party] = []
    for rows in np.split(order, np.flatnonzero(np.diff(member[order])) + 1) if order.size else []:
        place = int(member[rows[0]])
        mine = rows[accepted[rows]]
        ran = mine[started[mine]]
        spans = waiting_periods(*(column[member[waits.job] == place] for column in (waits.begin_s, waits.end_s)))
        legs = member[held.job] == place
        own = Used(held.begin_s[legs], held.end_s[legs], procs[legs])
        got, given = (float(np.diff(used.by(spans), axis=1).sum()) for used in (own, everything))
        wait = run.wait_s[ran]
        slowdown = bounded_slowdown(wait, run.run_s[ran])
        parties.append(
            Party(
                name=names[place],
                jobs=int(rows.size),
                refused=int(rows.size - mine.size),
                waiting=int(mine.size - ran.size),
                core_hours=float(((held.end_s - held.begin_s) * procs)[legs].sum()) / HOUR_S,
                target=target.get(names[place], 0.0),
                asked=float(asked_of[place]) / total_asked if total_asked else 0.0,
                delivered=got / given if given else None,
                mean_wait_s=_mean(wait),
                median_wait_s=_percentile(wait, 50),
                p95_wait_s=_percentile(wait, 95),
                mean_bounded_slowdown=_mean(slowdown),
                p95_bounded_slowdown=_percentile(slowdown, 95),
            )
        )
    return sorted(parties, key=lambda party: (-party.core_hours, party.name))


def _waits(run: PolicyRun) -> Held:
    """Return when accepted jobs waited: from their submit to their first leg, between legs, and until the end."""
    legs = run.held
    first = np.ones(legs.job.size, np.bool_)
    first[1:] = legs.job[1:] != legs.job[:-1]
    since = np.where(first, run.submit_s[legs.job], np.append(np.zeros(1, np.int64), legs.end_s[:-1])[: first.size])
    idle = np.flatnonzero((run.reason[: run.arrived] < 0) & ~run.started[: run.arrived])
    last = run.submit_s.copy()
    last[legs.job] = legs.end_s
    return Held(
        np.concatenate([legs.job, idle]),
        np.concatenate([since, last[idle]]),
        np.concatenate([legs.begin_s, np.full(idle.size, run.until_s)]),
    )


def _mean(values: NDArray[Any]) -> float | None:
    return float(values.mean()) if values.size else None


def _percentile(values: NDArray[Any], percent: float) -> float | None:
    return float(np.percentile(values, percent)) if values.size else None
