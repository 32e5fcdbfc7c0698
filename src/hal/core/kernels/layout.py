"""The columns of the engine's tables: int64 arrays of records, one name for each column.

Plain int64 tables (not structured dtypes) cost numba 40 ns an array to unbox, compile fastest, and run unchanged under
NUMBA_DISABLE_JIT. A slot that is free keeps the next free slot in its first column.
"""

from typing import Final

INF: Final = 1 << 60
"""Never; no limit."""
KEEP: Final = -(1 << 62)
"""In an edit: leave this column as it is."""
PRIORITY_LIMIT: Final = 1 << 17
TIME_BITS: Final = 43
"""Planned times are cut at 2**43 ms (278 years) inside keys."""

# --- meta: one int64 array of scalars -------------------------------------------------------------------------------
M_CLOCK: Final = 0
M_VERSION: Final = 1
M_ENTRY_FREE: Final = 2
M_ENTRY_TOP: Final = 3
M_ENTRIES: Final = 4
M_RUN_FREE: Final = 5
M_RUN_TOP: Final = 6
M_RUNS: Final = 7
M_PIECE_FREE: Final = 8
M_PIECE_TOP: Final = 9
M_PIECES: Final = 10
M_BUCKET_FREE: Final = 11
M_BUCKET_TOP: Final = 12
M_ACTIVE: Final = 13  # buckets with waiting entries
M_END_ROOT: Final = 14  # tree of running attempts by planned end; see `ends`
M_TIMER_ROOT: Final = 15  # tree of entries by a future eligible time
M_WAKE: Final = 16  # M_EPOCH of the last change that may let any parked work start
M_INSERTS: Final = 17  # epoch: entries put into buckets
M_PARKED_WAKE: Final = 18  # M_EPOCH when the last complete pass began
M_PARKED_INSERTS: Final = 19
M_RESERVATIONS: Final = 20
M_DIRTY: Final = 21  # reservations must be planned anew by the next pass
M_SHAPES: Final = 22
M_ROWS: Final = 23
M_RESOURCES: Final = 24
M_ORDER: Final = 25
M_BACKFILL: Final = 26
M_PLACEMENT: Final = 27
M_PARKING: Final = 28
M_CLAIM_AFTER: Final = 29
M_MAX_RESERVATIONS: Final = 30
M_PENDING: Final = 31  # tasks that wait, held and blocked ones included
M_BY_TIME: Final = 32  # 1 = buckets keep a second index by planned time
M_FAULT: Final = 33  # index of the event's row that a kernel refused
M_CSETS: Final = 34  # constraint sets in use; 1 = no labels asked for
M_PROMISED: Final = 35  # rows in the table of promised rows
# Conservative: the lowest-ranked promise, and from which rank on promises no longer count because better work came.
M_LAST_KEY: Final = 36
M_LAST_JOB: Final = 37
M_DROPS: Final = 38  # better work that came, in the table of drops; more than MAX_DROPS are told as one
M_EPOCH: Final = 40  # counts what may let parked work start: rows that came free, ledgers that were given back to
M_SHARES_MOVED: Final = 42  # 1 = something was charged since the offsets were computed
M_NODES_OF_SHARES: Final = 43
M_OWNERS: Final = 44
M_QUEUES: Final = 45
M_SHARE_ZERO: Final = 46  # instant at which one unit of use counts as one
M_HALF_LIFE: Final = 47  # ms
M_SLOPE: Final = 48  # age units a ms of the default queue; only differences from it move offsets
M_PASS_STARTS: Final = 49  # starts that this pass has had; shares are looked at again after a few
M_CPU: Final = 50  # which resource is the cpu, -1
M_RENEWS: Final = 51  # 1 = offsets move with time alone (turns, slopes that differ)
M_NEXT_EDGE: Final = 52  # when hours of queues or periods of ledgers next change something
M_SHARED: Final = 53  # 1 = somebody shares with somebody
M_OWNER_LEDGERS: Final = 54
M_TIMELINES: Final = 55  # 1 = the policy plans with kept timelines: what touches a row says so
M_FREED: Final = 56  # rows in the list of freed ones
M_SEEN: Final = 57  # M_EPOCH when the last whole pass over all promises began
M_PREEMPTING: Final = 58  # 1 = some QOS may take from another
M_CLAIMS: Final = 59  # runs that are claims
M_SUSPENDED: Final = 60  # runs that are suspended
M_SEARCH_EVERY: Final = 61  # ms between two searches for one job
M_MIN_RUN: Final = 62  # ms that a task that was taken back before runs before it may be again; doubles each time
M_PATIENCE: Final = 63  # ms beyond its time that an attempt that was taken back may go on
M_MOST_CLAIMS: Final = 64
M_BOOKINGS: Final = 65  # bookings that have not ended
M_BOOKED_ROWS: Final = 66
M_BOOKING_EDGE: Final = 67  # when the next one begins or ends
M_LICENCES: Final = 68
M_CHANGES: Final = 69  # times at which what there is of licences changes
M_PRICED: Final = 70  # 1 = a plugin says what running work costs to take back, in R_PRICE
M_UNLISTED: Final = 71  # attempts whose planned ends are not in the tree yet
M_RECLAIM: Final = 72  # 1 = some limit has taken back what its cohort borrowed of it
META_SIZE: Final = 74

# --- entries: a run of alike waiting tasks of one job ---------------------------------------------------------------
E_JOB: Final = 0
E_FIRST: Final = 1
E_TASKS: Final = 2
E_ATTEMPT: Final = 3
E_BUCKET: Final = 4
E_PRIORITY: Final = 5
E_SUBMIT: Final = 6
E_ELIGIBLE: Final = 7
E_HELD: Final = 8
E_WALL: Final = 9
E_PLANNED: Final = 10
E_WHERE: Final = 11
E_SIBLING: Final = 12  # next entry of the same job, -1
E_RESERVED: Final = 13  # index of its reservation, -1
E_BLOCKED_AT: Final = 14  # when it first was first in line and had to wait; -1
E_KEY: Final = 15
E_STAMP: Final = 16  # scratch: started or promised in the cycle of this stamp
E_DEADLINE: Final = 17
E_SOUGHT: Final = 18  # what it lent was looked for in vain: between two passes not again before this instant
ENTRY_SIZE: Final = 19

WHERE_FREE: Final = 0
WHERE_BUCKET: Final = 1
WHERE_TIMER: Final = 2
WHERE_ASIDE: Final = 3  # held, or blocked on a dependency

# --- trees: a treap node for the slot of the same index ---------------------------------------------------------------
T_KEY: Final = 0
T_SEQ: Final = 1
T_TIE: Final = 2
T_WALL: Final = 3
T_MIN: Final = 4  # least T_WALL of the subtree
T_LEFT: Final = 5
T_RIGHT: Final = 6
T_RANDOM: Final = 7
TREE_SIZE: Final = 8
MAX_DEPTH: Final = 512
"""Bound of a treap's depth: with 10**9 nodes and mixed priorities it stays under 100."""
FAULT: Final = MAX_DEPTH
"""The word of a path behind its last place: not 0 = a loop came to its bound, see `bounds`."""
PATH: Final = MAX_DEPTH + 1
FAULT_TREE: Final = 4

# --- buckets ---------------------------------------------------------------------------------------------------------
B_CLASS: Final = 0
B_OWNER: Final = 1
B_ROOT: Final = 2
B_TIME_ROOT: Final = 3
B_COUNT: Final = 4  # entries in the tree
B_ACTIVE: Final = 5  # place in the list of active buckets, -1
B_INSERT: Final = 6  # M_INSERTS at the last insertion
B_REFS: Final = 7  # entries and running attempts
B_HEAD: Final = 8  # first entry, -1
B_OFFSET: Final = 9  # added to the keys of the bucket
B_CANDIDATE: Final = 10  # scratch of a cycle
B_CAP: Final = 11  # scratch of a cycle: longer ones were refused already; CAP_FULL: a ledger is full, or a licence
B_CAP_STAMP: Final = 12  # scratch
B_HEAD_KEY: Final = 13  # E_KEY of the first entry: a cycle looks at every bucket, and entries lie far apart
B_HEAD_JOB: Final = 14  # its E_JOB
B_LEAST: Final = 15  # T_MIN of the root
BUCKET_SIZE: Final = 16
CAP_FULL: Final = -2

# --- classes and shapes ----------------------------------------------------------------------------------------------
C_SHAPE: Final = 0
C_NODES: Final = 1
C_REFS: Final = 2  # buckets
CLASS_SIZE: Final = 4

S_FIT: Final = 0  # rows where it fits now
S_FROM: Final = 1  # no row before this one fits (first-fit starts here)
S_EVER: Final = 2  # rows that are up and could hold it when empty
S_CSET: Final = 3  # its constraint set
S_BLOCK_STAMP: Final = 4  # scratch: S_BLOCKED and S_UNTIL are of this stamp
S_BLOCKED: Final = 5  # scratch: rows that fit now but are promised to somebody
S_UNTIL: Final = 6  # scratch: the latest of their promises
S_CLOSED_STAMP: Final = 7  # scratch
S_CLOSED: Final = 8  # scratch: its set of rows has its reservations
S_FROM_STAMP: Final = 9  # scratch
S_FROM_NOW: Final = 10  # scratch: S_FROM within this cycle
S_SCORES: Final = 11  # line of the plugin's scores, -1
S_WAKE: Final = 12  # M_EPOCH when a row where it fits came free
S_OPEN_STAMP: Final = 13  # scratch
S_OPEN: Final = 14  # scratch: it competes with a promise that this pass gives up
S_LINE: Final = 15  # scratch: 1 + its line of first intervals
S_REACH: Final = 16  # scratch: COUNT_REACH when its reachable rows were written down
S_FOLLOWED: Final = 17  # scratch: its best rows are as of this place in the list of touched rows, -1 = never
S_BOOKING: Final = 18  # the booking in which its jobs run, 0 = none
S_LICENCES: Final = 19  # different licences that it wants
S_INSIDE: Final = 20  # the booking that its jobs name, 0 = none; S_BOOKING is 0 where that one holds no nodes
S_AHEAD: Final = 21  # scratch: what bookings leave it now (`booked_window`), for so many nodes, as of that tick
S_AHEAD_NODES: Final = 22
S_AHEAD_TICK: Final = 23
SHAPE_SIZE: Final = 24

# --- running attempts ------------------------------------------------------------------------------------------------
R_JOB: Final = 0
R_TASK: Final = 1
R_ATTEMPT: Final = 2
R_BUCKET: Final = 3
R_PRIORITY: Final = 4
R_SUBMIT: Final = 5
R_WALL: Final = 6
R_PLANNED: Final = 7
R_START: Final = 8
R_END: Final = 9  # planned end, INF = never
R_PIECE: Final = 10
R_NODES: Final = 11
R_KEY: Final = 12
R_ELIGIBLE: Final = 13
R_DEADLINE: Final = 14
R_CHARGED: Final = 15  # ms that shares were charged for when it started
R_STATE: Final = 16
R_DUE: Final = 17  # going: when it is out at the latest; a claim: when its rows are free at the latest
R_SINCE: Final = 18  # suspended since
R_TAKEN: Final = 19  # how often this attempt was suspended
R_FOR: Final = 20  # the job that it was taken back for, -1
R_MARK: Final = 21  # scratch of a search: chosen by the search of this stamp
R_OFFERED: Final = 22  # scratch: offered to a search by this stamp
R_PRICE: Final = 23  # scratch of a search: what a plugin says that it costs to take it back, PRICE_NEVER
RUN_SIZE: Final = 24

RUN_ON: Final = 0
RUN_CLAIM: Final = 1  # no attempt yet: it holds rows that others have been asked to leave
RUN_GOING: Final = 2  # told to end; until then it holds its rows
RUN_SUSPENDED: Final = 3  # its cpu is free, all else it holds

PRICE_ONE: Final = 1_000_000
"""Units of a price of 1: one second of the whole of the largest node."""
PRICE_NEVER: Final = -1

P_ROW: Final = 0
P_NEXT: Final = 1
P_RUN: Final = 2
P_ON_ROW: Final = 3  # 1 + the next piece on the same row
P_BEFORE: Final = 4  # 1 + the piece before it on the same row
PIECE_SIZE: Final = 5

# --- standings (queue and QOS, see engine.qos): row 0 is for work that takes no part in preemption ------------------
K_MODE: Final = 0
K_GRACE: Final = 1
K_PREEMPTS: Final = 2  # 1 = it may take from somebody
K_TAKES: Final = 3  # from here on, for each standing: 1 = its running work may be taken back for this one
MODE_OFF: Final = 0
MODE_REQUEUE: Final = 1
MODE_SUSPEND: Final = 2
MODE_CHECKPOINT: Final = 3
MODE_CANCEL: Final = 4

# --- what a search remembers of an entry (of the same slot): no second one before something has changed --------------
SOUGHT_JOB: Final = 0  # plus one; 0 = free
SOUGHT_TASK: Final = 1
SOUGHT_EPOCH: Final = 2  # M_EPOCH of the search
SOUGHT_NEXT: Final = 3  # not before
SOUGHT_YOUTH: Final = 4  # when work that was too young to be taken back is old enough, INF = none was
SEARCHED_SIZE: Final = 5

# --- a search's view of rows (scratch) --------------------------------------------------------------------------------
Z_COST: Final = 0  # of clearing the row, -1 = it cannot be
Z_JOBS: Final = 1
Z_YOUTH: Final = 2
Z_KEPT: Final = 3  # stamp of the search for which it is promised to somebody who ranks before
Z_FREE: Final = 4  # from here on: free, with what is leaving; then as many for trying
MAX_CANDIDATES: Final = 64
"""Attempts on one row that a search looks at: those that lose least."""

# --- moves of a plan -------------------------------------------------------------------------------------------------
A_OP: Final = 0
A_SLOT: Final = 1
A_JOB: Final = 2
A_TASK: Final = 3
A_ATTEMPT: Final = 4
A_MODE: Final = 5
A_GRACE: Final = 6
A_FOR_JOB: Final = 7
A_FOR_TASK: Final = 8
A_AT: Final = 9  # due; of a search: youth
A_ROW: Final = 10  # offset into the plan's rows
A_ROWS: Final = 11
A_LENT: Final = 12  # of what is taken back: 1 = it had borrowed what is its cohort's
MOVE_SIZE: Final = 13

OP_TAKE: Final = 1  # an attempt is told to go, or suspended
OP_CLAIM: Final = 2
OP_START: Final = 3  # a claim's rows are free: it starts
OP_FALL: Final = 4  # a claim is given up, its task waits again
OP_RESUME: Final = 5
OP_SEARCHED: Final = 6  # nothing was found

# --- rows of nodes ---------------------------------------------------------------------------------------------------
W_STATE: Final = 0
W_PIECES: Final = 1
W_PROMISED: Final = 2  # its place in the table of promised rows, -1 (conservative: scratch, the first of a chain)
W_STAMP: Final = 3  # scratch: projected amounts are of this stamp
W_ATTEMPTS: Final = 4  # 1 + the first piece on it, the latest
W_FREED: Final = 5  # 0, or the epoch in which something last came free on it, by an event or because a promise moved
W_STALE: Final = 6  # scratch: its timeline must be built anew
W_LATE: Final = 7  # scratch: its timeline was built while an attempt on it outlived its plan
W_MERGED: Final = 8  # scratch: points of its timeline were merged
W_EVENT: Final = 9  # the epoch of the last event by which something came free on it
W_LAGS: Final = 10  # scratch: 1 = shapes count it by the amounts in `counted` still
W_UNREADY: Final = 11  # scratch: kept instants of the row must be looked for again
W_BOOKED: Final = 12  # 1 + the first of its bookings, by start
W_AHEAD: Final = 13  # start of the next booking that has not begun, INF = none
W_LOGGED: Final = 14  # scratch: where it last stands in the log of touched rows, unless another row stands there now
ROW_SIZE: Final = 15

ROW_GONE: Final = 0
ROW_UP: Final = 1
ROW_CLOSED: Final = 2

# --- reservations ----------------------------------------------------------------------------------------------------
V_ENTRY: Final = 0
V_JOB: Final = 1
V_TASK: Final = 2
V_KEY: Final = 3
V_START: Final = 4
V_PLANNED: Final = 5
V_CLASS: Final = 6
V_ROW: Final = 7  # offset into the table of promised rows
V_NODES: Final = 8
V_KIND: Final = 9
V_DIRTY: Final = 10  # 1 = the next pass plans it anew
V_HELD: Final = 11  # conservative: it counts; 0 = better work came, and its turn to be made anew has not
V_BEHIND: Final = 12  # conservative: something came free where it could run while no event woke it
RESERVATION_SIZE: Final = 13

K_START: Final = 0
K_END: Final = 1
K_NAME: Final = 2  # as in S_BOOKING
K_EARLY: Final = 3
BOOKING_SIZE: Final = 4

Z_TOTAL: Final = 0  # now: without what bookings set aside, or what a booking has set aside
Z_USED: Final = 1
Z_SHADOW: Final = 2  # scratch: a job is promised of it from then on, INF = none is
Z_EXTRA: Final = 3  # scratch: what is left of it beside that promise
Z_WHOLE: Final = 4  # of a licence itself: how many there are
Z_HELD: Final = 5  # of a licence itself: used inside and outside bookings
Z_PARENT: Final = 6  # the licence of which a booking has set some aside; of a licence itself, itself
Z_LISTED: Final = 7  # scratch: where the ends of what holds it begin in the list of this cycle, -1
Z_LISTED_COUNT: Final = 8
LICENCE_SIZE: Final = 10

J_LICENCE: Final = 0
J_AT: Final = 1
J_GAIN: Final = 2
CHANGE_SIZE: Final = 3

BOOKED_BOOKING: Final = 0
BOOKED_NEXT: Final = 1  # 1 + the next one of the same row
BOOKED_SIZE: Final = 2

X_KEY: Final = 0
X_JOB: Final = 1
X_SHAPE: Final = 2  # -1 = whatever it competes with
DROP_SIZE: Final = 3
MAX_DROPS: Final = 16

Q_ROW: Final = 0
Q_PROMISE: Final = 1  # which reservation
Q_EXTRA: Final = 2  # from here on, for each resource: free at the promised start beyond the request
Q_CHAIN: Final = 2  # conservative, scratch: the next promised row of the same row, -1

KIND_PROMISE: Final = 0  # from V_START on the rows are promised
KIND_CLAIM: Final = 1  # the rows are earmarked now
KIND_BLOCK: Final = 2  # strict order: nothing that competes may pass
KIND_NEVER: Final = 3  # its release is never; nothing is promised yet

# --- owners: who the work of a bucket belongs to --------------------------------------------------------------------
O_QUEUE: Final = 0
O_LEAF: Final = 1  # its node in the tree of shares, -1
O_LEDGER: Final = 2  # place of its first ledger in the list of owners' ledgers
O_LEDGERS: Final = 3
O_BASE: Final = 4  # part of its offset that only a change of policy moves
O_OFFSET: Final = 5
O_TURN: Final = 6  # round-robin: the turn that its user had last
O_USAGE: Final = 7  # millionths that multiply what it is charged
O_REFS: Final = 8  # buckets
O_TURNS: Final = 9  # owner whose O_TURN counts for this one (one for each user and queue)
O_QOS: Final = 10
OWNER_SIZE: Final = 12

# --- queues ----------------------------------------------------------------------------------------------------------
Y_DISCIPLINE: Final = 0
Y_STRICT: Final = 1
Y_SLOPE: Final = 2  # units a ms
Y_FAIR: Final = 3  # units at factor one
Y_NICE: Final = 4  # units for one of a job's priority
Y_SIZE: Final = 5  # units for one cpu (1000 millicores)
Y_DEADLINE: Final = 6  # units at the deadline itself
Y_SHUT: Final = 7  # 1 = outside its hours, set when a pass begins
Y_CLOSED_STAMP: Final = 8  # scratch: strict, and its first job waits for resources
Y_TURN: Final = 9  # round-robin: the turn that was given last
Y_LEAST: Final = 10  # scratch: the least turn of a user that waits
Y_WAITS_STAMP: Final = 11  # scratch: strict, and the job of this rank waits though the cycle does not come by it
Y_WAITS_KEY: Final = 12
Y_WAITS_JOB: Final = 13
Y_FIRST: Final = 14  # scratch: strict, 1 + the bucket of its first job, 0 = none waits
QUEUE_SIZE: Final = 15

BY_PRIORITY: Final = 0
BY_SUBMISSION: Final = 1
BY_TURN: Final = 2
BY_DEADLINE: Final = 3

POINT: Final = 3_600_000
"""Key units of one priority point: one point an hour is one unit a ms."""
TURN: Final = 1_000_000 * POINT
"""What a turn of round-robin weighs: more than any age."""
DEADLINE_SLOPE: Final = 1_000
"""Points an hour that a job of a deadline queue gains."""
NO_DEADLINE_MS: Final = 365 * 86_400_000
"""How long after its submission a job without a deadline counts as due."""

# --- ledgers: what may be used at once, or in a period ---------------------------------------------------------------
G_KIND: Final = 0
G_RESOURCE: Final = 1
G_LIMIT: Final = 2
G_USED: Final = 3
G_EPOCH: Final = 4  # M_EPOCH when something was last given back
G_SHIFT: Final = 5  # of amounts in hours ledgers, so that products stay in int64
G_NOMINAL: Final = 6  # what is its own; above it, it borrows
G_PERIOD: Final = 7  # ms, 0 = none
G_ENDS: Final = 8  # instant at which the period ends
G_SPENT: Final = 9  # of the hours used: by attempts that have ended
G_COHORT: Final = 10  # 1 + the ledger of its cohort; of that one, COHORT_ITSELF; 0 = it lends nothing
G_RECLAIM: Final = 11  # 1 = what it has lent is taken back when it has work
G_STAMP: Final = 12  # scratch of a search: its cohort is asked for
G_LEFT: Final = 13  # scratch of a search: what is borrowed with it still; of a cohort, what lacks still
LEDGER_SIZE: Final = 14

COHORT_ITSELF: Final = -1

LEDGER_TASKS: Final = 0
LEDGER_RESOURCE: Final = 1
LEDGER_HOURS: Final = 2

# --- the tree of shares ----------------------------------------------------------------------------------------------
N_PARENT: Final = 0
N_DEPTH: Final = 1  # 0 = the root
N_REFS: Final = 2
N_WAITS: Final = 3  # scratch: 1 = work of it waits
NODE_SIZE: Final = 4

F_USE: Final = 0  # use, inflated by the time since M_SHARE_ZERO: decay needs no pass over it
F_WEIGHT: Final = 1
F_LOSS: Final = 2  # scratch: what its factor loses, as a power of two, from the root down to it
F_SUM: Final = 3  # use of its children
F_WEIGHTS: Final = 4  # weights of its children
F_RATIO: Final = 5  # scratch: its part of its siblings' use / its part of their weights
F_LEAST: Final = 6  # scratch: the least of these of its children whose work waits
F_SIZE: Final = 7

# --- points of a row's timeline; the first of row r is point r ------------------------------------------------------
POINT_TIME: Final = 0
POINT_NEXT: Final = 1
POINT_SIZE: Final = 2  # then the free amounts, one for each resource

LINE_SHAPE: Final = 0
LINE_AT: Final = 1  # how much of the log of touched rows it has followed
LINE_SIZE: Final = 2

# --- counts: scratch of cycles --------------------------------------------------------------------------------------
COUNT_PROMISES: Final = 0
COUNT_PROMISED: Final = 1
COUNT_POINTS: Final = 2  # points ever used
COUNT_SPARE: Final = 3  # first point to be used again, -1
COUNT_SPARES: Final = 4
COUNT_COLD: Final = 5  # 1 = timelines hold nothing yet
COUNT_STALE: Final = 6
COUNT_LATE: Final = 7
COUNT_LOG: Final = 8  # rows ever written to the log of touched rows
COUNT_LINES: Final = 9  # lines in use
COUNT_LINE: Final = 10  # the line that is given up next
COUNT_FREED: Final = 11  # rows that came free in this cycle
COUNT_REACH: Final = 12  # counts the changes of rows that could be used
COUNTS: Final = 16

# --- lines of instants at which rows come to fit (scratch) ----------------------------------------------------------
READY_SHAPE: Final = 0  # 1 + the shape, 0 = none
READY_USED: Final = 1  # tick when it was last asked for

# --- policies as numbers ---------------------------------------------------------------------------------------------
ORDER_FCFS: Final = 0
ORDER_SJF: Final = 1
ORDER_PLUGIN: Final = 2
ORDER_PRIORITY: Final = 3
BACKFILL_NONE: Final = 0
BACKFILL_EASY: Final = 1
BACKFILL_SJBF: Final = 2
BACKFILL_CONSERVATIVE: Final = 3
PLACE_FIRST: Final = 0
PLACE_BEST: Final = 1
PLACE_PLUGIN: Final = 2

# --- outcomes of a kernel --------------------------------------------------------------------------------------------
OK: Final = 0
GROW_ENTRIES: Final = 1
GROW_RUNS: Final = 2
GROW_PIECES: Final = 3
GROW_BUCKETS: Final = 4
BAD_CLASS: Final = 10
BAD_OWNER: Final = 11
BAD_TASKS: Final = 12
BAD_PRIORITY: Final = 13
BAD_ORDER: Final = 14  # rows are not sorted by (job, first task), or overlap
BAD_LIVE: Final = 15  # the task waits or runs already
BAD_UNKNOWN: Final = 16  # no such waiting entry or running attempt
BAD_TIME: Final = 17
BAD_ROW: Final = 18

# --- scratch ticks ----------------------------------------------------------------------------------------------------
TICK: Final = 0  # last stamp given out
TICK_WORK: Final = 1  # work of the running cycle
TICK_SEARCH: Final = 2  # stamp of the running search
TICK_LISTED_VERSION: Final = 3  # M_VERSION and TICK of the cycle that listed what holds licences
TICK_LAGS: Final = 4  # rows in the list of those whose counts lag behind
TICK_TOUCHED: Final = 5  # rows ever written to the list of touched ones
TICK_MIRROR: Final = 6  # 1 = the float columns say what the rows say
TICK_READY: Final = 7  # 1 = instants at which rows come to fit are kept
TICK_UNREADY: Final = 8  # rows in the list of those to be looked at again
TICK_NOW: Final = 9  # instant of the running cycle
TICK_WALL: Final = 10  # walltime of the job that it looks at
TICK_TAKEN: Final = 11  # counts cycles and their starts: what was worked out before one may be wrong
TICK_LISTED: Final = 12
TICK_LISTED_USED: Final = 13  # places of the list in use
TICKS: Final = 14

# --- why a job did not start -----------------------------------------------------------------------------------------
REASON_RESOURCES: Final = 1
REASON_PROMISED: Final = 2
REASON_LEDGER: Final = 3
REASON_STRICT: Final = 4
REASON_BOOKED: Final = 5
REASON_LICENCE: Final = 6
