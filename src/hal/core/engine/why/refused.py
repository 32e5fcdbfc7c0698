"""Why policy keeps a job waiting though nodes may be free: hours of its queue, limits that are full, strict order.

Pure, O(running attempts) a question. Reads the same ledgers that the cycle charges.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from hal.core.engine.classes import ClassSpec
from hal.core.engine.rules.owners import zone_of
from hal.core.engine.state import State
from hal.core.engine.tables.accounts import LedgerName
from hal.core.engine.views import claimed_amounts
from hal.core.kernels.rules.ledgers import ask_of, ask_of_groups, lends
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.arrays import Ints, Mask
from hal.core.kernels.structures.jit import plain
from hal.core.model.policy_hours import next_open_ms
from hal.core.model.policy_scope import ledger_text
from hal.core.model.units import format_amount, format_wait
from hal.core.model.verdict import Reason, Verdict

HOUR_S = 3_600
_ask_of = plain(ask_of)
_ask_of_groups = plain(ask_of_groups)
_lends = plain(lends)


def refused(state: State, job: int, slot: int, spec: ClassSpec, now_ms: int, *, brief: bool = False) -> Verdict | None:
    """The first rule that refuses the entry at `slot`; None when only resources can.

    Args:
        brief: without the numbers of a limit.
    """
    if state.accounts is None:
        return None
    owner = int(state.work.buckets[state.work.entries[slot, L.E_BUCKET], L.B_OWNER])
    queue = state.shares.owner_specs[owner].queue
    row = int(state.shares.owners[owner, L.O_QUEUE])
    if state.shares.queues[row, L.Y_SHUT]:
        declared = state.accounts.policy.queues[queue]
        if not declared.starts:
            return Verdict(
                job=job, reason=Reason.HOURS, helps=(f"hal queue open {queue}",),
                message=f"queue '{queue}' is closed: none of its jobs starts until somebody opens it",
            )  # fmt: skip
        hours = declared.hours
        opens = next_open_ms(hours, now_ms, zone_of(state, declared))
        return Verdict(
            job=job, reason=Reason.HOURS, starts_at_ms=opens, basis="hours of the queue",
            message=f"queue '{queue}' starts jobs {', '.join(hours)} ({declared.zone}) only; it opens in "
            f"{format_wait(max(opens - now_ms, 0))}",
        )  # fmt: skip
    full = _full(state, slot, owner)
    if full is not None:
        if brief:
            assert state.accounts is not None
            name = state.accounts.ledger_names[full[0]]
            return Verdict(job=job, reason=Reason.LIMIT, message="", short=_short(state, name))
        return _limit(state, job, slot, spec, *full, now_ms)
    if state.shares.queues[row, L.Y_STRICT]:
        ahead = _first_of(state, row)
        if ahead != slot:
            other = int(state.work.entries[ahead, L.E_JOB])
            return Verdict(
                job=job, reason=Reason.STRICT, helps=(f"hal why {other}",),
                message=f"queue '{queue}' is strict: nothing passes job {other}, which waits ahead of it",
            )  # fmt: skip
    return None


def _full(state: State, slot: int, owner: int) -> tuple[int, int] | None:
    """The first ledger without room for the next task, and what that asks of it."""
    tables = state.tables()
    class_id = int(state.work.buckets[state.work.entries[slot, L.E_BUCKET], L.B_CLASS])
    first = int(state.shares.owners[owner, L.O_LEDGER])
    for ledger in state.shares.owner_ledgers[first : first + int(state.shares.owners[owner, L.O_LEDGERS])].tolist():
        ask = int(_ask_of_groups(tables, ledger, class_id, int(state.work.entries[slot, L.E_WALL])))
        if ask > int(state.shares.ledgers[ledger, L.G_LIMIT] - state.shares.ledgers[ledger, L.G_USED]):
            return ledger, ask
    return None


def _limit(state: State, job: int, slot: int, spec: ClassSpec, ledger: int, ask: int, now_ms: int) -> Verdict:
    accounts = state.accounts
    assert accounts is not None
    name, entry = accounts.ledger_names[ledger], state.shares.ledgers[ledger]
    used, limit = int(entry[L.G_USED]) - claimed_amounts(state).get(ledger, 0), int(entry[L.G_LIMIT])
    who = _who(state, name)
    if entry[L.G_KIND] == L.LEDGER_HOURS:
        return replace(_hours(job, who, name, entry, ask, now_ms), short=_short(state, name))
    tasks = bool(entry[L.G_KIND] == L.LEDGER_TASKS)
    what = name.resource if not tasks else "task at once" if limit == 1 else "tasks at once"
    free_at, given = _released(state, ledger, ask - (limit - used), now_ms)
    come = "comes" if tasks and given == 1 else "come"
    later = "" if free_at is None else f"; {_shown(name, given)} {come} free in {format_wait(free_at - now_ms)}"
    helps: tuple[str, ...] = ()
    room = limit - used
    if spec.nodes > 1 and entry[L.G_KIND] == L.LEDGER_RESOURCE and room >= ask // spec.nodes:
        helps = (f"nodes={room * spec.nodes // ask} would stay within the limit now",)
    if name.cohort and state.meta[L.M_RECLAIM] and _lends(state.tables(), int(state.work.entries[slot, L.E_BUCKET])):
        helps = (*helps, "others have borrowed this job's own quota; it is reclaimed as soon as possible")
    return Verdict(
        job=job, reason=Reason.LIMIT, resource=name.resource, asked=ask, available=max(room, 0),
        short=_short(state, name),
        message=f"{who} may use {_shown(name, limit)} {what}; {_shown(name, used)} in use, this asks for "
        f"{_shown(name, ask)}{later}",
        starts_at_ms=free_at, basis="" if free_at is None else "walltimes of running jobs",
        forecast_at_ms=None if free_at is None else now_ms, helps=helps,
    )  # fmt: skip


def _hours(job: int, who: str, name: LedgerName, entry: Ints, ask: int, now_ms: int) -> Verdict:
    shift, ends = int(entry[L.G_SHIFT]), int(entry[L.G_ENDS])
    room = max(int(entry[L.G_LIMIT] - entry[L.G_USED]), 0)
    left, whole = _hours_of(name, room << shift), _hours_of(name, int(entry[L.G_LIMIT]) << shift)
    has = f"{who} has {left} {name.resource}-hours left of {whole}"
    period = f"the next period begins in {format_wait(max(ends - now_ms, 0))}"
    if ask >= L.INF:
        return Verdict(
            job=job, reason=Reason.LIMIT, resource=name.resource, helps=("give the job a walltime",),
            message=f"{has}, and this job's use is not known: it has no walltime",
        )  # fmt: skip
    return Verdict(
        job=job, reason=Reason.LIMIT, resource=name.resource, starts_at_ms=ends, basis="period of the limit",
        message=f"{has}; this asks for {_hours_of(name, ask << shift)}, and {period}",
        helps=("a shorter walltime needs less",) if room else (),
    )  # fmt: skip


def _short(state: State, name: LedgerName) -> str:
    """`limit user cpu`: whom it is for, in one word, and of what; no name of anybody."""
    assert state.accounts is not None
    if name.cohort:
        whom = "cohort"
    else:
        limit = state.accounts.policy.limits[name.limit]
        whom = next((word for word in ("user", "account", "queue", "qos") if getattr(limit, word)), "of all")
    what = {"running": "tasks", "hours": f"{name.resource}-hours"}.get(name.what, name.resource)
    return f"limit {whom} {what}"


def _who(state: State, name: LedgerName) -> str:
    assert state.accounts is not None
    if name.cohort:
        return f"cohort '{name.cohort}' together"
    limit = state.accounts.policy.limits[name.limit]
    return f"limit '{name.limit}': {ledger_text(limit, (name.queue, name.account, name.user, name.qos))}"


def _shown(name: LedgerName, amount: int) -> str:
    return str(amount) if name.what == "running" else format_amount(name.resource, amount)


def _hours_of(name: LedgerName, unit_seconds: int) -> str:
    return format_amount(name.resource, unit_seconds // HOUR_S)


def _released(state: State, ledger: int, lacking: int, now_ms: int) -> tuple[int | None, int]:
    """When running attempts will have given back as much as lacks, and how much that is then."""
    tables = state.tables()
    table = state.work.runs[: int(state.meta[L.M_RUN_TOP])]
    slots = np.flatnonzero((table[:, L.R_NODES] > 0) & (table[:, L.R_END] < L.INF))
    buckets = table[slots, L.R_BUCKET]
    charged = _charged(state, ledger)[state.work.buckets[buckets, L.B_OWNER]]
    slots, buckets = slots[charged], buckets[charged]
    classes, of = np.unique(state.work.buckets[buckets, L.B_CLASS], return_inverse=True)
    # A ledger of tasks or amounts does not look at walltimes.
    asks = np.array([_ask_of(tables, ledger, int(class_id), 0) for class_id in classes], np.int64)
    order = np.argsort(table[slots, L.R_END], kind="stable")
    given = np.cumsum(asks[of[order]]) if slots.size else np.zeros(0, np.int64)
    enough = int(np.searchsorted(given, lacking))
    if enough == given.size:
        return None, int(given[-1]) if given.size else 0
    return max(int(table[slots[order[enough]], L.R_END]), now_ms + 1), int(given[enough])


def _charged(state: State, ledger: int) -> Mask:
    """Which owners are charged to a ledger; shape (owners,)."""
    table = state.shares.owners
    places = np.flatnonzero(state.shares.owner_ledgers[: int(state.meta[L.M_OWNER_LEDGERS])] == ledger)
    first, count = table[:, L.O_LEDGER], table[:, L.O_LEDGERS]
    within = np.searchsorted(places, first + count) > np.searchsorted(places, first)
    return within & (count > 0)


def _first_of(state: State, queue: int) -> int:
    """The first waiting entry of a queue."""
    buckets = state.work.active[: int(state.meta[L.M_ACTIVE])]
    buckets = buckets[state.shares.owners[state.work.buckets[buckets, L.B_OWNER], L.O_QUEUE] == queue]
    heads = state.work.buckets[buckets, L.B_HEAD]
    keys = state.work.entries[heads, L.E_KEY] + state.work.buckets[buckets, L.B_OFFSET]
    return int(heads[np.lexsort((state.work.entries[heads, L.E_JOB], keys))[0]])
