"""`check_invariants(state)`: whether all tables tell one story; used after each step of every simulation and test.

Pure and slow (O(state)); plain NumPy and Python, so that it shares nothing with the kernels that it checks.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from hal.core.engine.classes import NODE, ClassSpec
from hal.core.engine.rules.booked_nodes import trespassers
from hal.core.engine.state import State
from hal.core.engine.views import pending, rows_of_run, running, runs_of_row
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.arrays import Ints, Mask, Records
from hal.core.model.advice import KeySpace
from hal.core.model.taint import untolerated


class InvariantError(AssertionError):
    """The engine's tables contradict one another: a fault of the engine, not of its caller."""


def _require(holds: object, message: str, *values: object) -> None:
    """
    Args:
        message: what is wrong, with a {} for each of the values: they are written out only if it is.
    """
    if not holds:
        raise InvariantError(message.format(*values))


def check_invariants(state: State) -> None:
    """Raise InvariantError, saying what is wrong, unless every table agrees with every other."""
    _require(not state.meta[L.M_PARTED], "what affinity parts is to be asked again")
    runs = running(state)
    _check_addresses(state)
    _check_preferences(state)
    _check_amounts(state, runs)
    _check_tasks(state, runs)
    _check_buckets(state)
    _check_domains(state)
    _check_fits(state)
    _check_ends(state)
    _check_reservations(state)
    _check_taking_back(state, runs)
    for job, task, booking in trespassers(state):
        raise InvariantError(f"job {job} task {task} runs on nodes of booking {booking!r} without a right to be there")
    _check_licences(state, runs)
    _check_advice(state)
    if state.meta[L.M_TIMELINES]:
        _check_timelines(state)


def _check_addresses(state: State) -> None:
    block = state.allocation.block()
    if isinstance(block, np.ndarray):
        _require((block == state.at).all(), "a table was replaced and kernels still see the old one")


def _check_advice(state: State) -> None:
    advice = state.advice
    first_ms = min((held.expires_ms for held in advice.kinds.values()), default=L.INF)
    _require(advice.first_expiry_ms == first_ms, "the first expiry of advice is wrong")
    for space, names in advice.names.items():
        uses = np.zeros_like(names.uses)
        for held in advice.kinds.values():
            if held.space is space:
                there = ~np.isnan(held.values)
                uses[: there.shape[0]] += there
                _require(held.keys == int(there.sum()), "the count of keys of a kind of advice is wrong")
        for _version, staged, parts in advice.staged.values():
            for part in parts if staged is space else ():
                np.add.at(uses, part.slots, 1)
        if space is KeySpace.JOBS:
            uses[: advice.due.shape[0]] += advice.due
            _require(advice.due_jobs == int(advice.due.sum()), "the count of jobs whose keys are due is wrong")
        _require((uses == names.uses).all(), "uses of names of {} in advice are wrong", space)
        known = {key: slot for slot, key in enumerate(names.keys) if key is not None}
        _require(known == names.slots, "names of {} in advice and their slots differ", space)
        _require(all(names.keys[slot] is not None for slot in np.flatnonzero(uses)), "advice is about no key")


def _check_amounts(state: State, runs: Records) -> None:
    # Plain lists: a month of simulation asks this a hundred thousand times.
    rows = len(state.nodes.names)
    pieces = state.work.pieces[: int(state.meta[L.M_PIECE_TOP])].tolist()
    held: list[int] = []
    holders: list[int] = []
    firsts = state.work.runs[runs["run"], L.R_PIECE].tolist()
    for place, (piece, nodes) in enumerate(zip(firsts, runs["nodes"].tolist(), strict=True)):
        mine = []
        while piece >= 0:
            mine.append(pieces[piece][L.P_NODE])
            piece = pieces[piece][L.P_NEXT]
        if len(mine) != nodes or len(set(mine)) != nodes:
            raise InvariantError(f"{_named(runs[place])} holds rows {mine}, it has {nodes} nodes")
        held += mine
        holders += [place] * nodes
    amounts = (
        state.catalogue.request[:, state.catalogue.classes[runs["class_id"], L.C_SHAPE]]
        .T[:, : state.nodes.free.shape[1]]
        .copy()
    )
    if state.meta[L.M_CPU] >= 0:
        amounts[runs["state"] == L.RUN_SUSPENDED, state.meta[L.M_CPU]] = 0
    used = np.zeros_like(state.nodes.free[:rows])
    np.add.at(used, held, amounts[holders])
    for row, withheld in state.nodes.withheld.items():
        for resource, amount in withheld.items():
            used[row, resource] += amount
    _require(
        (state.nodes.free[:rows] == state.nodes.capacity[:rows] - used).all(),
        "free is not capacity less what runs and is withheld",
    )
    counted = np.bincount(np.array(held, np.int64), minlength=rows)
    _require((state.nodes.rows[:rows, L.N_PIECES] == counted).all(), "the count of attempts on a row is wrong")
    there = []
    for row, piece in enumerate((state.nodes.rows[:rows, L.N_ATTEMPTS] - 1).tolist()):
        while piece >= 0:
            there.append((row, pieces[piece][L.P_RUN]))
            piece = pieces[piece][L.P_ON_ROW] - 1
    known = zip(held, runs["run"][holders].tolist(), strict=True)
    _require(sorted(there) == sorted(known), "rows do not know the attempts on them")


def _named(run: np.void) -> str:
    return f"job {run['job']} task {run['task']}"


def _check_tasks(state: State, attempts: Records) -> None:
    waiting = pending(state)
    _require(int(waiting["tasks"].sum()) == state.pending_tasks, "the count of waiting tasks is wrong")
    _require(len(waiting) == int(state.meta[L.M_ENTRIES]), "the count of entries is wrong")
    _require((waiting["tasks"] >= 1).all(), "an entry is empty")
    spans: dict[int, list[tuple[int, int]]] = {}
    for job, first, tasks in zip(*(waiting[name].tolist() for name in ("job", "first_task", "tasks")), strict=True):
        spans.setdefault(job, []).append((first, first + tasks))
    for job, parts in spans.items():
        last = -1
        for first, end in sorted(parts):
            if first < last:
                raise InvariantError(f"job {job}: task {first} waits twice")
            last = end
    _require(len(attempts) == state.running_attempts, "the count of running attempts is wrong")
    live = list(zip(attempts["job"].tolist(), attempts["task"].tolist(), strict=True))
    twice = [task for task, count in Counter(live).items() if count > 1]
    if twice:
        raise InvariantError(f"job and task {twice} run twice")
    for job, task in live:
        if any(first <= task < end for first, end in spans.get(job, ())):
            raise InvariantError(f"job {job} task {task} both waits and runs")


def _check_taking_back(state: State, runs: Records) -> None:
    for place, kind, name in ((L.M_CLAIMS, L.RUN_CLAIM, "claims"), (L.M_SUSPENDED, L.RUN_SUSPENDED, "suspended runs")):
        _require(int((runs["state"] == kind).sum()) == int(state.meta[place]), "the count of {} is wrong", name)
    for run in runs[(runs["state"] == L.RUN_SUSPENDED) & (runs["end_ms"] != L.INF)]:
        raise InvariantError(f"{_named(run)} is suspended and planned to end")
    for run in runs[(runs["state"] == L.RUN_GOING) & (runs["end_ms"] > runs["due_ms"])]:
        raise InvariantError(f"{_named(run)} was told to end and is planned to end later")


def _in_order(tree: np.ndarray[tuple[int, int], np.dtype[np.int64]], root: int) -> list[int]:
    """Slots of a tree in order; checks the heap order and the least walltimes on the way."""
    order: list[int] = []
    stack: list[int] = []
    records: dict[int, list[int]] = {}  # plain lists: a value of an array by itself takes ten times as long
    at = root
    while at >= 0 or stack:
        while at >= 0:
            stack.append(at)
            record = records.get(at) or records.setdefault(at, tree[at].tolist())
            at = record[L.T_LEFT]
        at = stack.pop()
        order.append(at)
        record = records[at]
        least = record[L.T_WALL]
        for child in (record[L.T_LEFT], record[L.T_RIGHT]):
            if child >= 0:
                below = records.get(child) or records.setdefault(child, tree[child].tolist())
                _require(below[L.T_RANDOM] <= record[L.T_RANDOM], "a tree is out of heap order")
                least = min(least, below[L.T_MIN])
        _require(least == record[L.T_MIN], "the least walltime at slot {} is wrong", at)
        at = record[L.T_RIGHT]
    keys = [tuple(records[slot][: L.T_TIE + 1]) for slot in order]
    _require(keys == sorted(set(keys)), "a tree is out of order")
    return order


def _check_buckets(state: State) -> None:
    meta = state.meta
    top = int(meta[L.M_ENTRY_TOP])
    where = state.work.entries[:top, L.E_WHERE]
    seen: set[int] = set()
    for place, bucket in enumerate(state.work.active[: int(meta[L.M_ACTIVE])].tolist()):
        known = state.work.buckets[bucket].tolist()
        _require(known[L.B_ACTIVE] == place, "bucket {} does not know its place", bucket)
        order = _in_order(state.work.rank, known[L.B_ROOT])
        _require(len(order) == known[L.B_COUNT] > 0, "bucket {} counts wrongly", bucket)
        _require(order[0] == known[L.B_HEAD], "bucket {} has another head", bucket)
        head = state.work.entries[order[0]].tolist()
        kept = known[L.B_HEAD_KEY], known[L.B_HEAD_JOB]
        _require((head[L.E_KEY], head[L.E_JOB]) == kept, "bucket {} places its head wrongly", bucket)
        least = state.work.rank[known[L.B_ROOT], L.T_MIN]
        _require(known[L.B_LEAST] == least, "bucket {} has another least walltime", bucket)
        entries = state.work.entries[order]
        _require((entries[:, L.E_BUCKET] == bucket).all(), "an entry in bucket {} is in another's, too", bucket)
        _require((state.work.rank[order, L.T_TIE] == entries[:, L.E_FIRST]).all(), "bucket {}: a tie is wrong", bucket)
        if meta[L.M_BY_TIME]:
            timed = _in_order(state.work.by_time, known[L.B_TIME_ROOT])
            _require(set(timed) == set(order), "bucket {}: the two indexes differ", bucket)
        seen.update(order)
    _require(seen == set(np.flatnonzero(where == L.WHERE_BUCKET).tolist()), "buckets do not hold the eligible work")
    timers = _in_order(state.work.rank, int(meta[L.M_TIMER_ROOT]))
    _require(set(timers) == set(np.flatnonzero(where == L.WHERE_TIMER).tolist()), "the timer holds other work")
    refs: Counter[int] = Counter(state.work.entries[:top][where != L.WHERE_FREE][:, L.E_BUCKET].tolist())
    runs = state.work.runs[: int(meta[L.M_RUN_TOP])]
    refs.update(runs[runs[:, L.R_NODES] > 0][:, L.R_BUCKET].tolist())
    references = state.work.buckets[:, L.B_REFS].tolist()
    for bucket, count in refs.items():
        _require(references[bucket] == count, "bucket {} counts its references wrongly", bucket)


def _check_licences(state: State, runs: Records) -> None:
    """What is held is what running attempts want."""
    held: Counter[str] = Counter()
    for run in runs:
        spec = state.catalogue.class_specs[int(run["class_id"])]
        assert spec is not None
        held.update(spec.licences)
    for row in state.licences.rows():
        _require(row.used == held[row.name], "licence {}: {} are held, counted {}", row.name, held[row.name], row.used)


def _check_domains(state: State) -> None:
    """Domains are what nodes say, and the nodes of each are neighbours."""
    domains, rows = state.domains, len(state.nodes.names)
    if not domains.levels:
        _require(not state.meta[L.M_LEVELS] and not state.meta[L.M_COMPACT], "there are domains without a topology")
        return
    order = domains.node_order[:rows].tolist()
    _require(sorted(order) == list(range(rows)), "the order of nodes does not name each of them once")
    _require(state.nodes.rows[order, L.N_PLACE].tolist() == list(range(rows)), "nodes do not know their places")
    members: dict[tuple[str, ...], list[int]] = {}
    for row in range(rows):
        path = domains.path_of(row) if state.nodes.rows[row, L.N_STATE] != L.NODE_GONE else ()
        for level in range(len(domains.levels)):
            name = path[: level + 1] if level < len(path) and path[level] else ()
            at = int(domains.domain_of[level, row]) - 1
            _require((domains.names[at] if at >= 0 else ()) == name, "node {} is in another domain", row)
            if name:
                members.setdefault(name, []).append(row)
    _require(sorted(members) == sorted(name for name in domains.names if name), "a domain is empty, or unknown")
    listed = []
    for level in range(len(domains.levels)):
        first, last = domains.level_domains[level].tolist()
        listed += [(level, at) for at in domains.listed[first:last].tolist()]
    _require(len(listed) == len(members), "not every domain is listed once")
    for level, at in listed:
        name = domains.names[at]
        first, last = domains.domains[at, [L.DOMAIN_FIRST, L.DOMAIN_LAST]].tolist()
        there = [row for row in order[first:last] if state.nodes.rows[row, L.N_STATE] != L.NODE_GONE]
        _require(sorted(there) == members[name], "domain {} has other nodes", name)
        _require(len(name) == level + 1, "domain {} is listed with another level", name)
        wider = [width for width in range(1, len(name)) if name[width - 1]]
        parent = int(domains.domains[at, L.DOMAIN_PARENT]) - 1
        around = domains.names[parent] if parent >= 0 else ()
        _require(around == name[: max(wider, default=0)], "domain {} is in another one", name)


def _most(state: State, spec: ClassSpec, rows: Ints) -> int:
    """How many of these rows may be used together."""
    if not spec.within:
        return rows.size
    level = state.domains.level_of(spec.within)
    here = state.domains.domain_of[level, rows] if level >= 0 else np.zeros(0, np.int64)
    return int(np.bincount(here[here > 0]).max(initial=0))


def _check_fits(state: State) -> None:
    rows = len(state.nodes.names)
    resources = state.nodes.free.shape[1]
    free, capacity = state.nodes.free[:rows], state.nodes.capacity[:rows]
    alike: dict[tuple[tuple[str, str], ...], list[int]] = {}
    for row, labels in enumerate(state.nodes.labels[:rows]):
        alike.setdefault(tuple(labels.items()), []).append(row)
    groups = list(alike.values())
    for shape, spec in enumerate(state.catalogue.shape_specs):
        if spec is None:
            continue
        counted = state.catalogue.shapes[shape].tolist()
        admitted = _admitted(state, spec, shape, groups)
        wanted = state.catalogue.request[:resources, shape]
        ever = (admitted & (capacity >= wanted).all(axis=1)).nonzero()[0]
        admitted[state.bookings.closed_rows(spec.booking, state.clock_ms, rows)] = False
        now = (admitted & (free >= wanted).all(axis=1)).nonzero()[0]
        most = _most(state, spec, now)
        _require(most == counted[L.S_FIT], "{}: fits on {} rows, counted otherwise", spec.request, most)
        most = _most(state, spec, ever)
        _require(most == counted[L.S_EVER], "{}: could fit on {} rows, counted otherwise", spec.request, most)
        line = counted[L.S_WITHIN] - 1
        _require((line >= 0) == bool(spec.within), "{}: counted by domain, or not, wrongly", spec.request)
        if line >= 0:
            _check_line(state, spec, shape, line, now, ever)
        _require(not now.size or now[0] >= counted[L.S_FROM], "{}: first-fit would miss a row", spec.request)


def _check_line(state: State, spec: ClassSpec, shape: int, line: int, now: Ints, ever: Ints) -> None:
    """The counts by domain, and in how many domains they are the most, where that is counted."""
    domains = state.domains
    level = domains.level_of(spec.within)
    _require(domains.within[line, L.WITHIN_SHAPE] == shape + 1, "{}: its line is another's", spec.request)
    _require(domains.within[line, L.WITHIN_LEVEL] == level, "{}: its line has another level", spec.request)
    for rows, table, most, at in (
        (now, domains.domain_fit, L.S_FIT, L.WITHIN_AT),
        (ever, domains.domain_ever, L.S_EVER, L.WITHIN_EVER_AT),
    ):
        counted = np.bincount(domains.domain_of[level, rows], minlength=table.shape[1] + 1)[1:] if level >= 0 else 0
        _require((table[line] == counted).all(), "{}: counted otherwise in a domain", spec.request)
        top = int(state.catalogue.shapes[shape, most])
        alike = int((table[line] == top).sum())
        _require(
            domains.within[line, at] in (0, alike) or not top, "{}: the most is in {} domains", spec.request, alike
        )


def _admitted(state: State, spec: ClassSpec, shape: int, alike: list[list[int]]) -> Mask:
    """Which rows may ever take it; `alike`: rows that have the same labels."""
    rows = len(state.nodes.names)
    if state.plugins.filters:
        return np.asarray(state.nodes.allowed[state.catalogue.shapes[shape, L.S_CSET], :rows] != 0)
    admitted = np.asarray(state.nodes.rows[:rows, L.N_STATE] == L.NODE_UP)
    for group in alike if spec.constraints else ():
        if not all(requirement.holds(state.nodes.labels[group[0]]) for requirement in spec.constraints):
            admitted[group] = False
    for row in _parted(state, spec):
        admitted[row] = False
    for row, taints in state.nodes.taints.items():
        if untolerated(taints, spec.tolerates):
            admitted[row] = False
    for level in spec.levels():
        admitted &= state.domains.are_in(level, np.arange(rows))
    if spec.booking and not state.bookings.anywhere(spec.booking):
        mine = state.bookings.rows_of(spec.booking)
        admitted[[row for row in range(rows) if row not in mine]] = False
    return admitted


def _check_preferences(state: State) -> None:
    """Classes and preferences lead to each other, and terms favour the nodes that they mean: judged piece by piece."""
    catalogue = state.catalogue
    for spec, row in zip(catalogue.class_specs, catalogue.classes[:, L.C_PREFERENCE], strict=False):
        if spec is not None:
            known = catalogue.preference_specs[int(row)]
            _require(known == spec.preference, "a class has another preference", known, spec.preference)
    held = _held(state)
    for preference, row in catalogue.preference_ids.items():
        if preference.near:
            favour = [0] * len(state.nodes.names)
            for like in preference.near:
                there = [
                    at for what, at, begun in held if like.term.label in what.labels and (begun or like.weight < 0)
                ]
                for node in range(len(favour)):
                    if any(_is_near(state, node, at, like.term.level) for at in there):
                        favour[node] += 10_000 * like.weight
            _require(catalogue.favours[row, : len(favour)].tolist() == favour, "favours are of another time", row)


def _held(state: State) -> list[tuple[ClassSpec, int, bool]]:
    """What holds which node, and whether it has begun there."""
    held = []
    for run in running(state):
        what = state.catalogue.class_specs[int(run["class_id"])]
        assert what is not None
        held += [(what, row, bool(run["state"] != L.RUN_CLAIM)) for row in rows_of_run(state, int(run["run"]))]
    return held


def _is_near(state: State, one: int, other: int, level: str) -> bool:
    """Whether two nodes are in one domain of a level."""
    at = state.domains.level_of(level)
    if level == NODE or at < 0:
        return level == NODE and one == other
    return bool(state.domains.domain_of[at, one] == state.domains.domain_of[at, other] > 0)


def _parted(state: State, spec: ClassSpec) -> set[int]:
    """Rows from which affinity keeps a class: judged attempt by attempt and node by node."""
    if not spec.is_social:
        return set()
    rows = range(len(state.nodes.names))

    def near(one: int, other: int, level: str) -> bool:
        return _is_near(state, one, other, level)

    held = _held(state)
    away = set()
    for term in spec.apart:
        away |= {row for row in rows for what, at, _ in held if term.label in what.labels and near(row, at, term.level)}
    for what, at, _ in held:
        for term in what.apart:
            if term.label in spec.labels:
                away |= {row for row in rows if near(row, at, term.level)}
    for term in spec.together:
        named = [(at, begun) for what, at, begun in held if term.label in what.labels]
        if named or term.label not in spec.labels:
            away |= {row for row in rows if not any(begun and near(row, at, term.level) for at, begun in named)}
    return away


def _check_ends(state: State) -> None:
    order = _in_order(state.work.ends, int(state.meta[L.M_END_ROOT]))
    runs = state.work.runs[: int(state.meta[L.M_RUN_TOP])]
    finite = np.flatnonzero((runs[:, L.R_NODES] > 0) & (runs[:, L.R_END] < L.INF))
    unlisted = state.work.unlisted[1, : int(state.meta[L.M_UNLISTED])].tolist()
    _require(len(set(unlisted)) == len(unlisted), "a planned end is listed twice")
    _require(set(order).isdisjoint(unlisted), "a planned end is in the tree and waits to be entered")
    _require(
        set(order) | set(unlisted) == set(finite.tolist()),
        "the projected releases are not those of the running attempts",
    )
    _require(
        (state.work.ends[order, L.T_KEY] == state.work.runs[order, L.R_END]).all(), "a run is released at another time"
    )


def _check_reservations(state: State) -> None:
    table = state.work.reservations[: int(state.meta[L.M_RESERVATIONS])]
    for k, reservation in enumerate(table):
        slot = int(reservation[L.V_ENTRY])
        if slot >= 0:
            _require(state.work.entries[slot, L.E_JOB] == reservation[L.V_JOB], "reservation {} is of another job", k)
            of_group = k > 0 and slot == table[k - 1, L.V_ENTRY]  # of a job with several it is the first
            _require(
                of_group or state.work.entries[slot, L.E_RESERVED] == k,
                "job {} does not know its reservation",
                reservation[L.V_JOB],
            )
    if state.meta[L.M_BACKFILL] != L.BACKFILL_CONSERVATIVE:
        reserved = state.work.reserved[: int(state.meta[L.M_RESERVED]), L.Q_NODE].tolist()
        _require(len(set(reserved)) == len(reserved), "a node is reserved twice")
        marked = np.flatnonzero(state.nodes.rows[:, L.N_RESERVED] >= 0).tolist()
        _require(sorted(reserved) == marked, "nodes do not know who has them reserved")


def _check_timelines(state: State) -> None:
    """Every timeline that is up to date holds what attempts and reservations hold, or less where it was merged."""
    stale = state.timelines.stale[: int(state.counts[L.COUNT_STALE])].tolist()
    if state.counts[L.COUNT_COLD]:
        return
    _require(
        sorted(stale) == np.flatnonzero(state.nodes.rows[:, L.N_STALE]).tolist(), "rows do not know that they are stale"
    )
    freed = state.work.freed[: int(state.meta[L.M_FREED])].tolist()
    _require(
        sorted(freed) == np.flatnonzero(state.nodes.rows[:, L.N_FREED]).tolist(), "rows do not know that they came free"
    )
    reservations = _held_reservations(state)
    # Plain lists of a few amounts each, as above.
    rows = len(state.nodes.names)
    free = state.nodes.free[:rows].tolist()
    requests = state.catalogue.request[: state.nodes.free.shape[1]].T.tolist()
    merged = state.nodes.rows[:rows, L.N_MERGED].tolist()
    for row in np.flatnonzero((state.nodes.rows[:rows, [L.N_STALE, L.N_LATE]] == 0).all(axis=1)).tolist():
        changes = [
            (end, _shape_of_run(state, run), 1)
            for run in runs_of_row(state, row)
            if (end := int(state.work.runs[run, L.R_END])) < L.INF
        ]
        changes += reservations.get(row, [])
        points = _points_of_row(state, row)
        times = sorted({points[0][0], *(time for time, _, _ in changes), *(time for time, _ in points)})
        for time in times:
            truth = free[row].copy()
            for at, shape, sign in changes:
                if at <= time:
                    truth = [amount + sign * change for amount, change in zip(truth, requests[shape], strict=True)]
            said = next(amounts for at, amounts in reversed(points) if at <= time)
            less = merged[row] and all(one <= other for one, other in zip(said, truth, strict=True))
            _require(said == truth or less, "row {} is said to have {} at {}, it has {}", row, said, time, truth)
        last = points[-1][1]
        _require(last == truth, "row {} is said to have {} in the end, it has {}", row, last, truth)


def _shape_of_run(state: State, run: int) -> int:
    return int(state.catalogue.classes[state.work.buckets[state.work.runs[run, L.R_BUCKET], L.B_CLASS], L.C_SHAPE])


def _points_of_row(state: State, row: int) -> list[tuple[int, list[int]]]:
    profile = state.timelines.profile
    points = []
    at = row
    while at >= 0:
        point = profile[at].tolist()
        points.append((point[L.POINT_TIME], point[L.POINT_SIZE :]))
        at = point[L.POINT_NEXT]
    return points


def _held_reservations(state: State) -> dict[int, list[tuple[int, int, int]]]:
    """Of each row: when reservations that count take (-1) and give back (1) which shape."""
    changes: dict[int, list[tuple[int, int, int]]] = {}
    for reservation in state.work.reservations[: int(state.meta[L.M_RESERVATIONS])]:
        if reservation[L.V_ENTRY] < 0 or not reservation[L.V_HELD] or reservation[L.V_KIND] == L.KIND_NEVER:
            continue
        shape = int(state.catalogue.classes[reservation[L.V_CLASS], L.C_SHAPE])
        claim = reservation[L.V_KIND] == L.KIND_CLAIM
        begin = -L.INF if claim else int(reservation[L.V_START])
        end = L.INF if claim else begin + int(reservation[L.V_PLANNED])
        first = int(reservation[L.V_FIRST])
        for row in state.work.reserved[first : first + int(reservation[L.V_NODES]), L.Q_NODE].tolist():
            spans = changes.setdefault(row, [])
            spans.append((begin, shape, -1))
            if end < L.INF:
                spans.append((end, shape, 1))
    return changes
