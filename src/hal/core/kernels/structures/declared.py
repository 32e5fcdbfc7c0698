"""All tables of the engine, declared once: size, what a row is, what values mean, what is true of them, how they grow.

Pure; imports no numba. To add a table, declare it here (and name its columns in `layout`, if it has any): the engine
allocates, grows, copies and digests it, and kernels see it as `t.NAME` (see AGENTS.md, 'Extend it'). Amounts are
integers in base units, instants and durations ms; a *slot* is the index of a record that is used again when it is free.
A free slot keeps the next free one in its first column.
"""

from __future__ import annotations

from typing import Final

from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.arrays import Allowed, Amounts, Floats, Index, Ints, Narrow, Table
from hal.core.kernels.structures.declaration import Group, Growth, Room, table

KEPT, REFILLED, SCRATCH, OUTPUT = Growth.KEPT, Growth.REFILLED, Growth.SCRATCH, Growth.OUTPUT

FIRST_SLOTS: Final = 64
"""Room for so many records of what an engine soon has."""

# Rooms of nodes. What follows from the number of nodes (blocks, groups, lines) is worked out in `engine.allocation`.
NODES: Final = Room("nodes", 4)
RESOURCES: Final = Room("resources")
NODE_BLOCKS: Final = Room("node_blocks")
NODE_GROUPS: Final = Room("node_groups")
CONSTRAINT_SETS: Final = Room("constraint_sets")
# Rooms of a topology.
LEVELS: Final = Room("levels")
DOMAINS: Final = Room("domains")
WITHIN_SHAPES: Final = Room("within_shapes")
# Rooms of work.
ENTRIES: Final = Room("entries", FIRST_SLOTS, L.M_ENTRY_TOP)
ENTRY_HASH: Final = Room("entry_hash", 4 * FIRST_SLOTS)
TIMED_ENTRIES: Final = Room("timed_entries", FIRST_SLOTS)
SEARCHED_ENTRIES: Final = Room("searched_entries")
BUCKETS: Final = Room("buckets", FIRST_SLOTS, L.M_BUCKET_TOP)
BUCKET_HASH: Final = Room("bucket_hash", 4 * FIRST_SLOTS)
CLASSES: Final = Room("classes", FIRST_SLOTS)
SHAPES: Final = Room("shapes", FIRST_SLOTS)
PREFERENCES: Final = Room("preferences", 4)
RUNS: Final = Room("runs", FIRST_SLOTS, L.M_RUN_TOP)
RUN_HASH: Final = Room("run_hash", 4 * FIRST_SLOTS)
PIECES: Final = Room("pieces", FIRST_SLOTS, L.M_PIECE_TOP)
RESERVATIONS: Final = Room("reservations", 16)
RESERVED_NODES: Final = Room("reserved_nodes", 16)
# Rooms of a policy.
OWNERS: Final = Room("owners", FIRST_SLOTS)
OWNER_LEDGERS: Final = Room("owner_ledgers", FIRST_SLOTS)
LEDGERS: Final = Room("ledgers", 4)
QUEUES: Final = Room("queues", 4)
SHARE_NODES: Final = Room("share_nodes", FIRST_SLOTS)
STANDINGS: Final = Room("standings")
BOOKINGS: Final = Room("bookings")
BOOKED: Final = Room("booked")
BOOKED_NODES: Final = Room("booked_nodes")
LICENCES: Final = Room("licences")
LICENCE_CHANGES: Final = Room("licence_changes")
LICENCE_EVENTS: Final = Room("licence_events")
LICENCE_HOLDERS: Final = Room("licence_holders")
# Rooms of timelines: of one node while the policy plans without them.
TIMELINE_NODES: Final = Room("timeline_nodes")
TIMELINE_POINTS: Final = Room("timeline_points")
TIMELINE_LINES: Final = Room("timeline_lines")
TOUCH_LOG: Final = Room("touch_log", 4)
REACH_SHAPES: Final = Room("reach_shapes")
REACH_WORDS: Final = Room("reach_words", 3)
# Rooms of what a pass writes down for itself.
SCORED_SHAPES: Final = Room("scored_shapes")
SCORED_GANGS: Final = Room("scored_gangs")
SEARCH_NODES: Final = Room("search_nodes")
SEARCH_AMOUNTS: Final = Room("search_amounts", 0)
PICKED: Final = Room("picked", L.MAX_CANDIDATES)
SEARCH_RUNS: Final = Room("search_runs")
WIDTH: Final = Room("width")
PLANNED: Final = Room("planned")
# Rooms of what plans hold.
OUTPUT_STARTS: Final = Room("output_starts")
OUTPUT_NODES: Final = Room("output_nodes")
OUTPUT_VERDICTS: Final = Room("output_verdicts")
OUTPUT_RESERVATIONS: Final = Room("output_reservations")

TREE: Final = "a treap of which node k is slot k (see `treap`); other nodes are not part of it"


class ScalarTables(Group, group="scalars"):
    """Tables of one record, whose columns are counts, switches and roots. Never replaced."""

    meta: Ints = table(
        L.META_SIZE, columns="M", row="columns M_*",
        holds="counts, tops and roots of tables, policy as numbers, edges in ms",
        invariant="M_VERSION and M_CLOCK never go back",
        fresh={
            L.M_ENTRY_FREE: -1, L.M_RUN_FREE: -1, L.M_PIECE_FREE: -1, L.M_BUCKET_FREE: -1, L.M_END_ROOT: -1,
            L.M_TIMER_ROOT: -1, L.M_PARKED_WAKE: -1, L.M_CSETS: 1, L.M_NEXT_EDGE: L.INF, L.M_BOOKING_EDGE: L.INF,
            L.M_NODES_OF_SHARES: 1, L.M_CPU: -1, L.M_GPU: -1, L.M_MEMORY: -1, L.M_HALF_LIFE: 1,
        },
    )  # fmt: skip
    counts: Ints = table(
        L.COUNTS, columns="COUNT", growth=REFILLED, row="columns COUNT_*",
        holds="how much of timelines, of their logs and of a cycle's lists is in use",
    )  # fmt: skip
    ticks: Ints = table(
        L.TICKS, columns="TICK", growth=REFILLED, row="columns TICK_*",
        holds="stamps given out, and of when what is kept between cycles is", invariant="TICK ascends",
    )  # fmt: skip
    path: Ints = table(
        L.PATH, growth=REFILLED, row="depth of a treap", holds="slots on the way down; at FAULT a word",
        invariant="path[FAULT] is 0, or says which loop came to its bound (see `bounds`)",
    )  # fmt: skip
    pass_record: Ints = table(
        L.PASS_SIZE, columns="PASS", growth=REFILLED, row="columns PASS_*",
        holds="what a slice was asked, where the pass is, what the slice gave",
    )  # fmt: skip
    search_record: Ints = table(
        L.SEEK_SIZE, columns="SEEK", growth=REFILLED, row="columns SEEK_*",
        holds="for whom work to preempt is searched for, and what was found",
    )  # fmt: skip


class OutputTables(Group, group="outputs"):
    """What a slice writes for its plan, each from the place on that the pass record names (see `engine.outputs`)."""

    starts: Table = table(
        OUTPUT_STARTS, L.START_SIZE, columns="START", growth=OUTPUT, row="start, in the order decided",
        holds="task, attempt, its nodes among `start_nodes`",
    )  # fmt: skip
    start_nodes: Ints = table(OUTPUT_NODES, growth=OUTPUT, row="node of a start", holds="index of the node")
    verdicts: Table = table(
        OUTPUT_VERDICTS, L.VERDICT_SIZE, columns="VERDICT", growth=OUTPUT, row="task that was refused",
        holds="reason, nodes that lack",
    )  # fmt: skip
    plan_reservations: Table = table(
        OUTPUT_RESERVATIONS, L.RESERVATION_SIZE, columns="V", growth=OUTPUT, row="reservation", holds="as `planned`",
    )  # fmt: skip
    plan_nodes: Table = table(
        OUTPUT_RESERVATIONS, RESOURCES + L.Q_EXTRA, columns="Q", growth=OUTPUT, row="node of a reservation",
        holds="as `planned_nodes`",
    )  # fmt: skip


class NodeTables(Group, group="nodes"):
    """Nodes and what is free on them. A node keeps its index; one that left is a tombstone while work is on it."""

    free: Table = table(
        NODES, RESOURCES, row="node, resource", holds="what is free, base units",
        invariant="capacity less what runs there; below zero where capacity shrank or claims are charged",
    )  # fmt: skip
    capacity: Table = table(
        NODES, RESOURCES, row="node, resource", holds="what there is, base units", invariant="0 or more",
    )  # fmt: skip
    rows: Table = table(
        NODES, L.NODE_SIZE, columns="N", row="node", holds="state, chains of what is on it, stamps",
        invariant="N_PIECES counts the chain of N_ATTEMPTS", fresh={L.N_RESERVED: -1, L.N_AHEAD: L.INF},
    )  # fmt: skip
    allowed: Allowed = table(
        CONSTRAINT_SETS, NODES, dtype="int8", row="constraint set, node",
        holds="1 where the node is up and meets the set, whoever has booked it", invariant="set 0 asks for nothing",
    )  # fmt: skip
    open_now: Allowed = table(
        CONSTRAINT_SETS, NODES, dtype="int8", growth=REFILLED, row="constraint set, node",
        holds="`allowed` less nodes of bookings that hold now",
        invariant="the same array as `allowed` where no booking closes any",
    )  # fmt: skip


class DomainTables(Group, group="domains"):
    """The topology: which nodes are near each other, and on how many of each domain shapes fit that ask for one."""

    domain_of: Table = table(
        LEVELS, NODES, row="level, widest first; node", holds="1 + the domain that the node is in, 0 = none",
        invariant="nodes of one domain share those of all wider levels",
    )  # fmt: skip
    domains: Table = table(
        DOMAINS, L.DOMAIN_SIZE, columns="DOMAIN", row="domain", holds="level, where its nodes are listed",
        invariant="its nodes are neighbours in `node_order`",
    )  # fmt: skip
    node_order: Ints = table(
        NODES, row="place, below M_NODES", holds="node, in topological order", invariant="N_PLACE leads back",
    )  # fmt: skip
    listed: Ints = table(
        DOMAINS, row="as `level_domains` says", holds="domains, level by level, in topological order",
        invariant="each that has a node, once",
    )  # fmt: skip
    level_domains: Table = table(
        LEVELS, L.LISTED_SIZE, columns="LISTED", row="level", holds="where its domains are listed",
        invariant="the domains of a level are neighbours in `listed`",
    )  # fmt: skip
    within: Table = table(
        WITHIN_SHAPES, L.WITHIN_SIZE, columns="WITHIN", row="line of a shape whose nodes must be in one domain",
        holds="shape, level, how many domains have the most", invariant="S_WITHIN of the shape leads back",
    )  # fmt: skip
    domain_fit: Table = table(
        WITHIN_SHAPES, DOMAINS, row="line, domain", holds="nodes of the domain where the shape fits now",
        invariant="S_FIT is the most of them in a domain of the level",
    )  # fmt: skip
    domain_ever: Table = table(
        WITHIN_SHAPES, DOMAINS, row="line, domain", holds="nodes of it that are up and could hold the shape when empty",
        invariant="S_EVER is the most of them",
    )  # fmt: skip
    domain_there: Ints = table(DOMAINS, growth=SCRATCH, row="domain", holds="nodes of it, counted for one question")


class WorkTables(Group, group="work"):
    """What waits, what runs, and what is reserved for whom."""

    entries: Table = table(
        ENTRIES, L.ENTRY_SIZE, columns="E", row="slot of an entry: alike tasks of one job that wait",
        holds="job, tasks, rank, times in ms, where it waits",
        invariant="tasks of one job are in one entry at most; E_WHERE says which index holds it",
    )  # fmt: skip
    rank: Table = table(
        ENTRIES, L.TREE_SIZE, columns="T", row="slot of the entry", holds=TREE,
        invariant="in one tree: of its bucket by rank, or of timers by eligible time",
    )  # fmt: skip
    by_time: Table = table(
        TIMED_ENTRIES, L.TREE_SIZE, columns="T", row="slot of the entry", holds=TREE,
        invariant="used with M_BY_TIME: the entries of each bucket by planned time",
    )  # fmt: skip
    job_index: Index = table(
        ENTRY_HASH, growth=REFILLED, row="hash of the job id", holds="slot + 1 of the job's first entry, 0 = empty",
        invariant="at most half full",
    )  # fmt: skip
    searched: Table = table(
        SEARCHED_ENTRIES, L.SEARCHED_SIZE, columns="SOUGHT", row="slot of the entry",
        holds="what the last search for work to preempt found, ms", invariant="used with M_PREEMPTING",
    )  # fmt: skip
    buckets: Table = table(
        BUCKETS, L.BUCKET_SIZE, columns="B", row="slot of a bucket: entries of one class and owner",
        holds="roots of its trees, counts, and what is asked of its first entry",
        invariant="B_REFS counts its entries and attempts; B_HEAD, B_HEAD_KEY, B_HEAD_JOB are of the first entry",
    )  # fmt: skip
    bucket_index: Index = table(
        BUCKET_HASH, growth=REFILLED, row="hash of class and owner", holds="slot + 1, 0 = empty",
        invariant="at most half full",
    )  # fmt: skip
    active: Ints = table(
        BUCKETS, row="rank in no order, below M_ACTIVE", holds="slot of a bucket in which something waits",
        invariant="B_ACTIVE of the bucket leads back",
    )  # fmt: skip
    runs: Table = table(
        RUNS, L.RUN_SIZE, columns="R", row="slot of a running attempt, or of a claim",
        holds="job, task, rank, times in ms, state", invariant="in use while R_NODES is above 0",
    )  # fmt: skip
    ends: Table = table(
        RUNS, L.TREE_SIZE, columns="T", row="slot of the run", holds=TREE,
        invariant="runs by planned end, less those that are listed in `unlisted`",
    )  # fmt: skip
    unlisted: Table = table(
        2, RUNS, row="0: sorting scratch, 1: slots; below M_UNLISTED",
        holds="runs whose planned ends `ends` has not yet", invariant="each once, none of them in `ends`",
    )  # fmt: skip
    run_index: Index = table(
        RUN_HASH, growth=REFILLED, row="hash of job and task", holds="slot + 1, 0 = empty",
        invariant="at most half full",
    )  # fmt: skip
    pieces: Table = table(
        PIECES, L.PIECE_SIZE, columns="P", row="slot of a piece: one run on one of its nodes",
        holds="the node, and the next piece of the run and of the node",
        invariant="a run has R_NODES of them, in rank order",
    )  # fmt: skip
    reservations: Table = table(
        RESERVATIONS, L.RESERVATION_SIZE, columns="V", row="reservation, below M_RESERVATIONS, in order of rank",
        holds="whose it is, its start in ms, where its nodes are listed",
        invariant="E_RESERVED of the entry leads back",
    )  # fmt: skip
    reserved: Table = table(
        RESERVED_NODES, RESOURCES + L.Q_EXTRA, columns="Q", row="node of a reservation, below M_RESERVED",
        holds="node, reservation, and from Q_EXTRA on what is free there beyond the request, base units",
        invariant="under EASY a node is in it once at most",
    )  # fmt: skip
    drops: Table = table(
        L.MAX_DROPS, L.DROP_SIZE, columns="X", row="better work that came, below M_DROPS", holds="rank, job, shape",
        invariant="conservative: reservations that rank behind it are made again",
    )  # fmt: skip
    freed: Ints = table(
        NODES, row="below M_FREED", holds="nodes on which something came free",
        invariant="each once; N_FREED of the node is not 0",
    )  # fmt: skip


class CatalogueTables(Group, group="catalogue"):
    """Classes and shapes that are in use: work is done for each of these, not for each job."""

    classes: Table = table(
        CLASSES, L.CLASS_SIZE, columns="C", row="class id", holds="shape and nodes",
        invariant="C_REFS counts its buckets",
    )  # fmt: skip
    shapes: Table = table(
        SHAPES, L.SHAPE_SIZE, columns="S", row="shape id", holds="where it fits now and ever, its sets, stamps",
        invariant="S_FIT and S_EVER count nodes of `open_now` and `allowed`; no node before S_FROM fits",
    )  # fmt: skip
    request: Table = table(
        RESOURCES, SHAPES, row="resource, shape", holds="what one node gives to it, base units",
        invariant="INF throughout for a shape that was forgotten",
    )  # fmt: skip
    preferences: Table = table(
        PREFERENCES, L.LIKE_SIZE, columns="LIKE", row="preference of a class or a queue",
        holds="over which domains work is spread, its placement", invariant="0 prefers nothing",
    )  # fmt: skip
    favours: Table = table(
        PREFERENCES, NODES, row="preference, node", holds="what it adds to the score of the node, 1e-6",
        invariant="0 prefers nothing; small beside the distance of two tiers",
    )  # fmt: skip


class ShareTables(Group, group="shares"):
    """Owners, queues, limits and fair shares: the policy as numbers (see `engine.accounts`)."""

    owners: Table = table(
        OWNERS, L.OWNER_SIZE, columns="O", row="owner id", holds="queue, leaf, ledgers, offset in key units",
        invariant="O_REFS counts its buckets",
    )  # fmt: skip
    owner_ledgers: Ints = table(
        OWNER_LEDGERS, row="O_LEDGER + k of an owner", holds="ledger", invariant="an owner's ledgers are neighbours",
    )  # fmt: skip
    ledgers: Table = table(
        LEDGERS, L.LEDGER_SIZE, columns="G", row="ledger id",
        holds="limit and use: tasks, base units, or base-unit-seconds >> G_SHIFT",
        invariant="G_USED is what runs and is claimed, and of hours what was spent in the period",
    )  # fmt: skip
    queues: Table = table(
        QUEUES, L.QUEUE_SIZE, columns="Y", row="queue id", holds="discipline and weights, key units",
        invariant="a row for each queue that an owner has named",
    )  # fmt: skip
    share_nodes: Table = table(
        SHARE_NODES, L.SHARE_SIZE, columns="SHARE", row="node of the tree of shares, 0 = the root",
        holds="parent and depth", invariant="a parent has a lower index",
    )  # fmt: skip
    share_use: Amounts = table(
        SHARE_NODES, L.F_SIZE, columns="F", dtype="float64", row="node of the tree of shares",
        holds="use inflated to M_SHARE_ZERO, weights, factors as powers of two",
        invariant="use of a node is that of its leaves",
    )  # fmt: skip
    charge: Amounts = table(
        2, RESOURCES, dtype="float64", row="0: price, 1: at 0 whether only the dearest resource counts; resource",
        holds="units of use a second for one base unit",
        invariant="0 or more",
    )  # fmt: skip
    qos: Table = table(
        STANDINGS, STANDINGS + L.STANDING_TAKES, columns="STANDING", row="standing (queue and QOS), 0 = takes no part",
        holds="how its work is preempted, grace in ms, and whose work it may preempt", invariant="no chain leads back",
    )  # fmt: skip


class BookingTables(Group, group="bookings"):
    """Bookings that have not ended, and on which nodes."""

    booking_times: Table = table(
        BOOKINGS, L.BOOKING_SIZE, columns="BOOKING", row="booking, by start, below M_BOOKINGS",
        holds="start and end in ms, name",
        invariant="starts ascend; a start lies before its end",
    )  # fmt: skip
    booked: Table = table(
        BOOKED, L.BOOKED_SIZE, columns="BOOKED", row="one booking on one node", holds="booking, next of the node",
        invariant="chains from N_BOOKED, by start",
    )  # fmt: skip
    booked_rows: Ints = table(
        BOOKED_NODES, row="below M_BOOKED_NODES", holds="nodes that have a booking", invariant="ascending",
    )  # fmt: skip


class LicenceTables(Group, group="licences"):
    """Licences: how many there are, are held and will be."""

    licence_counts: Table = table(
        LICENCES, L.LICENCE_SIZE, columns="LICENCE", row="licence, or what a booking has set aside of one",
        holds="how many there are now, used, held", invariant="LICENCE_USED is what running attempts want of it",
    )  # fmt: skip
    wants: Table = table(
        SHAPES, LICENCES, row="shape, licence", holds="how many one start takes",
        invariant="S_LICENCES counts what is above 0",
    )  # fmt: skip
    changes: Table = table(
        LICENCE_CHANGES, L.CHANGE_SIZE, columns="J", row="below M_CHANGES", holds="licence, instant in ms, gain",
        invariant="instants lie ahead of the clock",
    )  # fmt: skip
    licence_events: Table = table(
        2, LICENCE_EVENTS, growth=SCRATCH, row="0: instants in ms, 1: gains", holds="events of one licence, by time",
    )  # fmt: skip
    holding: Table = table(
        2, LICENCE_HOLDERS, growth=REFILLED, row="0: planned ends in ms, 1: amounts",
        holds="what holds each licence, from LICENCE_LISTED on",
        invariant="of the cycle that TICK_LISTED_VERSION names",
    )  # fmt: skip


class TimelineTables(Group, group="timelines"):
    """What each node will have free, and when, kept from cycle to cycle (see `timelines`); forgotten as a whole."""

    profile: Table = table(
        TIMELINE_POINTS, RESOURCES + L.POINT_SIZE, columns="POINT", growth=REFILLED,
        row="point of a timeline; the first of node r is point r",
        holds="instant in ms, next point, then what is free from then on, base units",
        invariant="a chain ascends; it is true of nodes that are not stale",
    )  # fmt: skip
    events: Table = table(
        2, TIMELINE_POINTS, growth=SCRATCH, row="0: instants in ms, 1: what", holds="changes of one node, by time",
    )  # fmt: skip
    stale: Ints = table(
        TIMELINE_NODES, growth=REFILLED, row="below COUNT_STALE", holds="nodes whose timeline is built again",
        invariant="each once; N_STALE of the node is 1",
    )  # fmt: skip
    late: Ints = table(
        TIMELINE_NODES, growth=REFILLED, row="below COUNT_LATE", holds="nodes on which something outlives its plan",
    )  # fmt: skip
    node_log: Ints = table(
        TOUCH_LOG, growth=REFILLED, row="a ring, written at COUNT_LOG", holds="nodes whose timeline changed",
        invariant="a power of two",
    )  # fmt: skip
    lines: Table = table(
        TIMELINE_LINES, L.LINE_SIZE, columns="LINE", growth=REFILLED, row="line, below COUNT_LINES",
        holds="shape, how far it has followed", invariant="S_LINE of the shape leads back",
    )  # fmt: skip
    line_begin: Table = table(
        TIMELINE_LINES, TIMELINE_NODES, growth=REFILLED, row="line, node", holds="when the shape first fits there, ms",
    )  # fmt: skip
    line_end: Table = table(
        TIMELINE_LINES, 2 * TIMELINE_NODES, growth=REFILLED, row="line, node and twice",
        holds="until when it first fits there, and when it fits again, ms",
    )  # fmt: skip
    reach: Table = table(
        REACH_SHAPES, REACH_WORDS, growth=REFILLED, row="shape, word",
        holds="bits of nodes that could ever hold it; then the first and last word",
        invariant="of COUNT_REACH in S_REACH",
    )  # fmt: skip


class ScratchTables(Group, group="scratch"):
    """What a pass writes down for itself, and what placement keeps of nodes from one pass to the next."""

    scores: Table = table(
        SCORED_SHAPES, NODES, row="S_SCORES of a shape, or C_SCORES - 1 of a class; node",
        holds="a score plugin's answer, 1e-6", invariant="0..1_000_000; zero beyond the nodes that there are",
    )  # fmt: skip
    domain_scores: Table = table(
        SCORED_GANGS, DOMAINS, growth=SCRATCH, row="line of a bucket, domain",
        holds="a domain score plugin's answer, 1e-6", invariant="0..1_000_000; of this slice",
    )  # fmt: skip
    domain_lines: Ints = table(
        BUCKETS, growth=SCRATCH, row="slot of a bucket", holds="1 + its line of `domain_scores`, 0 = it has none",
        invariant="of this slice",
    )  # fmt: skip
    typical: Table = table(
        L.TYPICAL_KINDS, L.TYPICAL_SIZE, columns="TYPICAL", growth=SCRATCH, row="kind of work, the most frequent first",
        holds="cores and GPUs on a node, base units; how much of what is live it is",
        invariant="used with PLACE_FGD; of this slice",
    )  # fmt: skip
    projected: Table = table(
        NODES, RESOURCES, growth=SCRATCH, row="node, resource", holds="what is free at a later instant, base units",
        invariant="of the stamp in N_STAMP",
    )  # fmt: skip
    planned: Table = table(
        PLANNED, L.RESERVATION_SIZE, columns="V", growth=SCRATCH, row="reservation, below COUNT_RESERVATIONS",
        holds="reservations while a slice plans",
    )  # fmt: skip
    planned_nodes: Table = table(
        PLANNED, RESOURCES + L.Q_EXTRA, columns="Q", growth=SCRATCH, row="node of one, below COUNT_RESERVED",
        holds="node, reservation, what is free there beside it, base units",
    )  # fmt: skip
    group_ready: Table = table(
        L.MAX_GROUPS, NODES, growth=SCRATCH, row="group, node", holds="when a node comes to do for a group, ms",
    )  # fmt: skip
    group_mask: Ints = table(NODES, growth=SCRATCH, row="node", holds="for which groups it does: a bit for each")
    group_sets: Table = table(
        2, 1 << L.MAX_GROUPS, growth=SCRATCH, row="0: nodes to spare, 1: nodes that do for just these; set of groups",
        holds="nodes",
    )  # fmt: skip
    heap: Table = table(
        BUCKETS, L.HEAP_SIZE, columns="H", growth=SCRATCH, row="candidate, below PASS_HEAP",
        holds="lane, rank, job, bucket", invariant="a heap, least first",
    )  # fmt: skip
    scratch: Table = table(
        L.SCRATCH_LINES, WIDTH, growth=SCRATCH, row="SCRATCH_*: one list each", holds="see `layout`",
    )  # fmt: skip
    lagging: Ints = table(
        NODES, growth=REFILLED, row="below TICK_LAGS", holds="nodes that shapes count by `counted` still",
        invariant="N_LAGS is 1",
    )  # fmt: skip
    counted: Table = table(
        NODES, RESOURCES, growth=REFILLED, row="node, resource",
        holds="what shapes count a lagging node by, base units",
    )  # fmt: skip
    differ: Table = table(
        2, L.SHAPES_AT_ONCE, growth=SCRATCH, row="0: gone, 1: never; shape of a step",
        holds="which shapes' fit changed",
    )  # fmt: skip
    spare: Floats = table(
        RESOURCES, NODES, dtype="float32", growth=REFILLED, row="resource, node", holds="share that is left, of ONE",
        invariant="says what nodes say while TICK_MIRROR is 1",
    )  # fmt: skip
    per_unit: Floats = table(
        RESOURCES, NODES, dtype="float32", growth=REFILLED, row="resource, node",
        holds="share of one base unit, of ONE",
    )  # fmt: skip
    best: Table = table(
        SHAPES, NODE_BLOCKS, growth=REFILLED, row="shape, block", holds="score and node of the best of the block",
        invariant="as of S_FOLLOWED in the ring of touched nodes",
    )  # fmt: skip
    touched: Ints = table(L.TOUCHED, growth=REFILLED, row="a ring, written at TICK_TOUCHED", holds="nodes that changed")
    block_touched: Ints = table(
        NODE_BLOCKS, growth=REFILLED, row="block", holds="TICK_TOUCHED when a node of it last changed",
    )  # fmt: skip
    room: Table = table(
        NODE_GROUPS, RESOURCES + 1, growth=REFILLED, row="group of nodes",
        holds="stamp, then the most that any of them has free, base units",
    )  # fmt: skip
    value: Narrow = table(L.BLOCK, dtype="int32", growth=SCRATCH, row="node of a block", holds="score, 1e-6")
    ready: Table = table(
        L.READY_LINES, NODES, growth=REFILLED, row="line, node",
        holds="when the node comes to fit the line's shape, ms",
    )  # fmt: skip
    ready_of: Table = table(
        L.READY_LINES, L.READY_SIZE, columns="READY", growth=REFILLED, row="line",
        holds="shape, when it was last asked for",
    )  # fmt: skip
    unready: Ints = table(
        NODES, growth=REFILLED, row="below TICK_UNREADY", holds="nodes that are looked at again",
        invariant="N_UNREADY is 1",
    )  # fmt: skip
    search: Table = table(
        SEARCH_NODES, SEARCH_AMOUNTS + L.SEARCH_FREE, columns="SEARCH", growth=REFILLED, row="node",
        holds="cost of clearing it, and what is free with what is leaving, base units",
        invariant="used with M_PREEMPTING",
    )  # fmt: skip
    search_groups: Table = table(
        2 * L.MAX_GROUPS, SEARCH_NODES, growth=REFILLED,
        row="group, node: what clearing it costs, -1 = it cannot be; then group, place: which node, cheapest first",
        holds="prices of a search for several groups", invariant="used with M_PREEMPTING",
    )  # fmt: skip
    choice: Table = table(
        L.CHOICE_LINES, WIDTH, growth=SCRATCH, row="CHOICE_*: one list each",
        holds="nodes that are offered for one choice of nodes by domain",
    )  # fmt: skip
    victims: Table = table(
        4, SEARCH_RUNS, growth=SCRATCH, row="0, 1: price and run of victims; 2, 3: of what was lent",
        holds="runs that a search would preempt", invariant="used with M_PREEMPTING",
    )  # fmt: skip
    picks: Table = table(
        5, PICKED, growth=SCRATCH, row="one list each", holds="attempts that a search looks at on one node",
    )  # fmt: skip
