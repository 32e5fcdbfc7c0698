"""The columns of the engine's tables: int64 arrays of records, one name for each column.

Plain int64 tables (not structured dtypes) cost numba 40 ns an array to unbox, compile fastest, and run unchanged under
NUMBA_DISABLE_JIT. A slot that is free keeps the next free slot in its first column.
"""

from typing import Final

INF: Final = 1 << 60
"""Never; no limit."""
LOWEST: Final = -INF
"""Before all keys and instants."""
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
M_DIRTY: Final = 21  # reservations must be planned again by the next pass
M_SHAPES: Final = 22
M_NODES: Final = 23
M_RESOURCES: Final = 24
M_ORDER: Final = 25
M_BACKFILL: Final = 26
M_PLACEMENT: Final = 27
M_PARKING: Final = 28
M_CLAIM_AFTER: Final = 29
M_MAX_RESERVATIONS: Final = 30
M_PENDING: Final = 31  # tasks that wait, held and blocked ones included
M_BY_TIME: Final = 32  # 1 = buckets keep a second index by planned time
M_FAULT: Final = 33  # index of the event's node that a kernel refused
M_CSETS: Final = 34  # constraint sets in use; 1 = no labels asked for
M_RESERVED: Final = 35  # nodes in the table of reserved nodes
# Conservative: the lowest-ranked reservation, and from which rank on they no longer count: better work came.
M_LAST_KEY: Final = 36
M_LAST_JOB: Final = 37
M_DROPS: Final = 38  # better work that came, in the table of drops; more than MAX_DROPS are told as one
M_EPOCH: Final = 40  # counts what may let parked work start: nodes that came free, ledgers that were given back to
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
M_TIMELINES: Final = 55  # 1 = the policy plans with kept timelines: what touches a node says so
M_FREED: Final = 56  # nodes in the list of freed ones
M_SEEN: Final = 57  # M_EPOCH when the last whole pass over all reservations began
M_PREEMPTING: Final = 58  # 1 = some QOS may take from another
M_CLAIMS: Final = 59  # runs that are claims
M_SUSPENDED: Final = 60  # runs that are suspended
M_SEARCH_EVERY: Final = 61  # ms between two searches for one job
M_MIN_RUN: Final = 62  # ms that a task that was preempted before runs before it may be again; doubles each time
M_PATIENCE: Final = 63  # ms beyond its time that an attempt that was preempted may go on
M_MOST_CLAIMS: Final = 64
M_BOOKINGS: Final = 65  # bookings that have not ended
M_BOOKED_NODES: Final = 66
M_BOOKING_EDGE: Final = 67  # when the next one begins or ends
M_LICENCES: Final = 68
M_CHANGES: Final = 69  # times at which what there is of licences changes
M_PRICED: Final = 70  # 1 = a plugin says what running work costs to preempt, in R_PRICE
M_UNLISTED: Final = 71  # attempts whose planned ends are not in the tree yet
M_RECLAIM: Final = 72  # 1 = some limit has preempted what its cohort borrowed of it
M_LEVELS: Final = 73  # levels of the topology, 0 = there is none
M_COMPACT: Final = 74  # 1 = gangs are placed compactly: there are domains, and the configuration says so
M_WITHIN: Final = 75  # lines of shapes whose nodes must be in one domain; 0 = nobody asks for any
M_GPU: Final = 76  # which resource is the GPUs, and which the memory; -1
M_MEMORY: Final = 77
M_MOVING: Final = 78  # what moving work for a gang must gain, in thousandths of what it loses; 0 = nothing is moved
M_MOVING_NODES: Final = 79  # nodes of the smallest gang for which work is moved
M_AFFINE: Final = 80  # 1 = where some class may start depends on what runs of others, or others' on it
M_PARTED: Final = 81  # 1 = an attempt of such a class came or went, or such a class: ask again what is parted
M_GPU_WHOLE: Final = 82  # which resource is the GPUs that nobody shares, and which the largest part of one; -1
M_GPU_PART: Final = 83
M_PREFERS: Final = 84  # 1 = some class or queue prefers some nodes to others
M_GROUPS: Final = 85  # 1 = there are, or were, jobs with several groups of nodes
META_SIZE: Final = 86

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
E_STAMP: Final = 16  # scratch: started or reserved in the cycle of this stamp
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
C_MOVABLE: Final = 3  # 1 = its running work may be moved for a gang
C_AFFINE: Final = 4  # 1 = a term of affinity is its own, or names it; 2 = only a preferred one
C_PREFERENCE: Final = 5  # what it prefers, 0 = nothing
C_SCORES: Final = 6  # 1 + its line of a plugin's scores that depend on what it prefers, 0 = it has none
C_NEXT: Final = 7  # of a job with several groups of nodes: class of the next one + 1; 0 = none
C_FOLLOWS: Final = 8  # 1 = it starts only together with the first group of its job
CLASS_SIZE: Final = 16
MAX_GROUPS: Final = 8
"""Groups of nodes of one job."""

S_FIT: Final = 0  # nodes where it fits now; of those in one domain the most, where its nodes must be in one
S_FROM: Final = 1  # no node before this one fits (first-fit starts here)
S_EVER: Final = 2  # nodes that are up and could hold it when empty; likewise
S_CSET: Final = 3  # its constraint set
S_BLOCK_STAMP: Final = 4  # scratch: S_BLOCKED and S_UNTIL are of this stamp
S_BLOCKED: Final = 5  # scratch: nodes that fit now but are reserved to somebody
S_UNTIL: Final = 6  # scratch: the latest of their reservations
S_CLOSED: Final = 7  # scratch: twice a stamp, and 1 = its set of nodes has its reservations
S_WITHIN: Final = 8  # 1 + its line in `within` where its nodes must be in one domain, 0 = they need not
S_FROM_STAMP: Final = 9  # scratch
S_FROM_NOW: Final = 10  # scratch: S_FROM within this cycle
S_SCORES: Final = 11  # line of the plugin's scores, -1
S_WAKE: Final = 12  # M_EPOCH when a node where it fits came free
S_OPEN_STAMP: Final = 13  # scratch
S_OPEN: Final = 14  # scratch: it competes with a reservation that this pass gives up
S_LINE: Final = 15  # scratch: 1 + its line of first intervals
S_REACH: Final = 16  # scratch: COUNT_REACH when its reachable nodes were written down
S_FOLLOWED: Final = 17  # scratch: its best nodes are as of this place in the list of touched nodes, -1 = never
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
R_DUE: Final = 17  # going: when it is out at the latest; a claim: when its nodes are free at the latest
R_SINCE: Final = 18  # suspended since
R_PREEMPTED: Final = 19  # how often this attempt was suspended
R_FOR: Final = 20  # the job that it was preempted for, -1
R_MARK: Final = 21  # scratch of a search: chosen by the search of this stamp
R_OFFERED: Final = 22  # scratch: offered to a search by this stamp
R_PRICE: Final = 23  # scratch of a search: what a plugin says that it costs to take it back, PRICE_NEVER
RUN_SIZE: Final = 24

RUN_ON: Final = 0
RUN_CLAIM: Final = 1  # no attempt yet: it holds nodes that others have been asked to leave
RUN_GOING: Final = 2  # told to end; until then it holds its nodes
RUN_SUSPENDED: Final = 3  # its cpu is free, all else it holds

PRICE_ONE: Final = 1_000_000
"""Units of a price of 1: one second of the whole of the largest node."""
PRICE_NEVER: Final = -1

P_NODE: Final = 0
P_NEXT: Final = 1
P_RUN: Final = 2
P_ON_ROW: Final = 3  # 1 + the next piece on the same node
P_BEFORE: Final = 4  # 1 + the piece before it on the same node
PIECE_SIZE: Final = 5

# --- standings (queue and QOS, see engine.qos): node 0 is for work that takes no part in preemption ------------------
STANDING_MODE: Final = 0
STANDING_GRACE: Final = 1
STANDING_PREEMPTS: Final = 2  # 1 = it may take from somebody; 2 = from extensions of jobs alone, as everybody may
STANDING_TAKES: Final = 3  # from here on, for each standing: 1 = its running work may be preempted for this one
MODE_OFF: Final = 0
MODE_REQUEUE: Final = 1
MODE_SUSPEND: Final = 2
MODE_CHECKPOINT: Final = 3
MODE_CANCEL: Final = 4
MODE_SHRINK: Final = 5  # of extensions of jobs alone: everybody else may take from them, they leave first
EXTENSION_BAND: Final = 1 << 59  # added to the keys of extensions: more than any two other keys differ

# --- what a search remembers of an entry (of the same slot): no second one before something has changed --------------
SOUGHT_JOB: Final = 0  # plus one; 0 = free
SOUGHT_TASK: Final = 1
SOUGHT_EPOCH: Final = 2  # M_EPOCH of the search
SOUGHT_NEXT: Final = 3  # not before
SOUGHT_YOUTH: Final = 4  # when work that was too young to be preempted is old enough, INF = none was
SEARCHED_SIZE: Final = 5

# --- a search's view of nodes (scratch) ------------------------------------------------------------------------------
SEARCH_COST: Final = 0  # of clearing the node, -1 = it cannot be
SEARCH_JOBS: Final = 1
SEARCH_YOUTH: Final = 2
SEARCH_KEPT: Final = 3  # stamp of the search for which it is reserved to somebody who ranks before
SEARCH_FREE: Final = 4  # from here on: free, with what is leaving; then as many for trying
MAX_CANDIDATES: Final = 64
"""Attempts on one node that a search looks at: those that lose least."""

# --- the search record: for whom work to preempt is searched for, and what was found ----------------------------------
SEEK_ENTRY: Final = 0  # of the waiting task, -1
SEEK_SHAPE: Final = 1
SEEK_GANG: Final = 2
SEEK_QOS: Final = 3
SEEK_STAMP: Final = 4
SEEK_OFFERED: Final = 5  # its stamp where it is for what others borrowed, else 0
SEEK_NODE: Final = 6  # where an unfinished one goes on
SEEK_COUNT: Final = 7  # victims
SEEK_DUE: Final = 8  # instant at which all nodes are free at the latest
SEEK_YOUTH: Final = 9  # when work that is too young now is old enough, INF = none is
SEEK_MOVES: Final = 10  # it is for work that moves: 1 = the cheapest, 2 = the least; else 0
SEEK_ALONE: Final = 11  # of work that moves: when the gang would start by itself, INF = not known
SEEK_LEFT: Final = 12  # of work that moves: victims for which no room was looked for yet
SEEK_FROM: Final = 13  # of it: the node from which on there may be room for the next of the same shape
SEEK_LAST: Final = 14  # of it: the shape of the last one, -1
SEEK_LOST: Final = 15  # where a node is to be emptied: what moving the work there loses
SEEK_SIZE: Final = 16

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
A_FIRST: Final = 10  # offset into the plan's nodes
A_NODES: Final = 11
A_LENT: Final = 12  # of what is preempted: 1 = it had borrowed what is its cohort's
MOVE_SIZE: Final = 13

OP_PREEMPT: Final = 1  # an attempt is told to go, or suspended
OP_CLAIM: Final = 2
OP_START: Final = 3  # a claim's nodes are free: it starts
OP_CANCEL: Final = 4  # a claim is given up, its task waits again
OP_RESUME: Final = 5
OP_SEARCHED: Final = 6  # nothing was found

# --- nodes ------------------------------------------------------------------------------------------------------------
N_STATE: Final = 0
N_PIECES: Final = 1
N_RESERVED: Final = 2  # its place in the table of reserved nodes, -1 (conservative: scratch, the first of a chain)
N_STAMP: Final = 3  # scratch: projected amounts are of this stamp
N_ATTEMPTS: Final = 4  # 1 + the first piece on it, the latest
N_FREED: Final = (
    5  # 0, or the epoch in which something last came free on it, by an event or because a reservation moved
)
N_STALE: Final = 6  # scratch: its timeline must be built again
N_LATE: Final = 7  # scratch: its timeline was built while an attempt on it outlived its plan
N_MERGED: Final = 8  # scratch: points of its timeline were merged
N_EVENT: Final = 9  # the epoch of the last event by which something came free on it
N_LAGS: Final = 10  # scratch: 1 = shapes count it by the amounts in `counted` still
N_UNREADY: Final = 11  # scratch: kept instants of the node must be looked for again
N_BOOKED: Final = 12  # 1 + the first of its bookings, by start
N_AHEAD: Final = 13  # start of the next booking that has not begun, INF = none
N_LOGGED: Final = 14  # scratch: where it last stands in the log of touched nodes, unless another node stands there now
N_PLACE: Final = 15  # its place in `node_order`, where there is a topology
NODE_SIZE: Final = 16

NODE_GONE: Final = 0
NODE_UP: Final = 1
NODE_CLOSED: Final = 2

# --- domains of the topology -----------------------------------------------------------------------------------------
DOMAIN_LEVEL: Final = 0
DOMAIN_FIRST: Final = 1  # its nodes are node_order[DOMAIN_FIRST : DOMAIN_LAST]
DOMAIN_LAST: Final = 2
DOMAIN_PARENT: Final = 3  # 1 + the narrowest wider domain around it, 0 = none
DOMAIN_SIZE: Final = 4

LISTED_FIRST: Final = 0  # the domains of a level are listed[LISTED_FIRST : LISTED_LAST]
LISTED_LAST: Final = 1
LISTED_SIZE: Final = 2

TYPICAL_CPU: Final = 0
TYPICAL_GPU: Final = 1
TYPICAL_SHARE: Final = 2  # of TYPICAL_ALL; 0 = there is no other kind
TYPICAL_SIZE: Final = 3
TYPICAL_KINDS: Final = 64
TYPICAL_ALL: Final = 128

WITHIN_SHAPE: Final = 0  # 1 + the shape, 0 = the line is free
WITHIN_LEVEL: Final = 1  # -1 = there is no such level
WITHIN_AT: Final = 2  # domains in which it fits on S_FIT nodes; 0 = not counted yet
WITHIN_EVER_AT: Final = 3  # the same where it could fit on S_EVER nodes
WITHIN_SIZE: Final = 4

CHOICE_RANK: Final = 0  # by place: the rank of a node that is offered, least first; CHOICE_NONE
CHOICE_NODE: Final = 1  # offered nodes, in topological order
CHOICE_RANKS: Final = 2  # their ranks
CHOICE_AHEAD: Final = 3  # by place: how many offered nodes are before it
CHOICE_TAKEN: Final = 4  # by offered node: 1 = it is chosen
CHOICE_COUNTS: Final = 5  # of domains: minus how many offered nodes they have; values to select from
CHOICE_DOMAINS: Final = 6  # which domains
CHOICE_BESIDE: Final = 7  # by domain, or by node: how many nodes of it the job holds that is spread
CHOICE_HEAD: Final = 8  # by domain: the offered node of least rank that is not chosen yet, -1
CHOICE_LINES: Final = 9
CHOICE_NONE: Final = 1 << 62

# --- reservations ----------------------------------------------------------------------------------------------------
V_ENTRY: Final = 0
V_JOB: Final = 1
V_TASK: Final = 2
V_KEY: Final = 3
V_START: Final = 4
V_PLANNED: Final = 5
V_CLASS: Final = 6
V_FIRST: Final = 7  # offset into the table of reserved nodes
V_NODES: Final = 8
V_KIND: Final = 9
V_DIRTY: Final = 10  # 1 = the next pass plans it again
V_HELD: Final = 11  # conservative: it counts; 0 = better work came, and its turn to be made again has not
V_BEHIND: Final = 12  # conservative: something came free where it could run while no event woke it
RESERVATION_SIZE: Final = 13

BOOKING_START: Final = 0
BOOKING_END: Final = 1
BOOKING_NAME: Final = 2  # as in S_BOOKING
BOOKING_EARLY: Final = 3
BOOKING_SIZE: Final = 4

LICENCE_TOTAL: Final = 0  # now: without what bookings set aside, or what a booking has set aside
LICENCE_USED: Final = 1
LICENCE_SHADOW: Final = 2  # scratch: a job is reserved of it from then on, INF = none is
LICENCE_EXTRA: Final = 3  # scratch: what is left of it beside that reservation
LICENCE_WHOLE: Final = 4  # of a licence itself: how many there are
LICENCE_HELD: Final = 5  # of a licence itself: used inside and outside bookings
LICENCE_PARENT: Final = 6  # the licence of which a booking has set some aside; of a licence itself, itself
LICENCE_LISTED: Final = 7  # scratch: where the ends of what holds it begin in the list of this cycle, -1
LICENCE_LISTED_COUNT: Final = 8
LICENCE_SIZE: Final = 10

J_LICENCE: Final = 0
J_AT: Final = 1
J_GAIN: Final = 2
CHANGE_SIZE: Final = 3

BOOKED_BOOKING: Final = 0
BOOKED_NEXT: Final = 1  # 1 + the next one of the same node
BOOKED_SIZE: Final = 2

X_KEY: Final = 0
X_JOB: Final = 1
X_SHAPE: Final = 2  # -1 = whatever it competes with
DROP_SIZE: Final = 3
MAX_DROPS: Final = 16

Q_NODE: Final = 0
Q_RESERVATION: Final = 1  # which reservation
Q_EXTRA: Final = 2  # from here on, for each resource: free at the reserved start beyond the request
Q_CHAIN: Final = 2  # conservative, scratch: the next reserved node of the same node, -1

KIND_RESERVED: Final = 0  # from V_START on the nodes are reserved
KIND_CLAIM: Final = 1  # the nodes are earmarked now
KIND_BLOCK: Final = 2  # strict order: nothing that competes may pass
KIND_NEVER: Final = 3  # its release is never; nothing is reserved yet

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
Y_PREFERENCE: Final = 15  # what its jobs prefer, 0 = nothing
QUEUE_SIZE: Final = 16

# --- preferences: of classes and of queues, 0 = none ----------------------------------------------------------------
LIKE_SPREAD: Final = 0  # SPREAD_LEVELS + a level, SPREAD_NODES = each node is a domain; 0 = it is not spread
LIKE_PLACEMENT: Final = 1  # 1 + the placement, 0 = the site's
LIKE_SCATTERED: Final = 2  # 1 = gangs that ask for no domain are placed by score alone
LIKE_SIZE: Final = 3
SPREAD_NODES: Final = 1
SPREAD_LEVELS: Final = 2

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
G_RECLAIM: Final = 11  # 1 = what it has lent is preempted when it has work
G_STAMP: Final = 12  # scratch of a search: its cohort is asked for
G_LEFT: Final = 13  # scratch of a search: what is borrowed with it still; of a cohort, what lacks still
LEDGER_SIZE: Final = 14

COHORT_ITSELF: Final = -1

LEDGER_TASKS: Final = 0
LEDGER_RESOURCE: Final = 1
LEDGER_HOURS: Final = 2

# --- the tree of shares ----------------------------------------------------------------------------------------------
SHARE_PARENT: Final = 0
SHARE_DEPTH: Final = 1  # 0 = the root
SHARE_REFS: Final = 2
SHARE_WAITS: Final = 3  # scratch: 1 = work of it waits
SHARE_SIZE: Final = 4

F_USE: Final = 0  # use, inflated by the time since M_SHARE_ZERO: decay needs no pass over it
F_WEIGHT: Final = 1
F_LOSS: Final = 2  # scratch: what its factor loses, as a power of two, from the root down to it
F_SUM: Final = 3  # use of its children
F_WEIGHTS: Final = 4  # weights of its children
F_RATIO: Final = 5  # scratch: its part of its siblings' use / its part of their weights
F_LEAST: Final = 6  # scratch: the least of these of its children whose work waits
F_SIZE: Final = 7

# --- points of a node's timeline; the first of node r is point r ------------------------------------------------------
POINT_TIME: Final = 0
POINT_NEXT: Final = 1
POINT_SIZE: Final = 2  # then the free amounts, one for each resource

LINE_SHAPE: Final = 0
LINE_AT: Final = 1  # how much of the log of touched nodes it has followed
LINE_SIZE: Final = 2

# --- counts: scratch of cycles --------------------------------------------------------------------------------------
COUNT_RESERVATIONS: Final = 0
COUNT_RESERVED: Final = 1
COUNT_POINTS: Final = 2  # points ever used
COUNT_SPARE: Final = 3  # first point to be used again, -1
COUNT_SPARES: Final = 4
COUNT_COLD: Final = 5  # 1 = timelines hold nothing yet
COUNT_STALE: Final = 6
COUNT_LATE: Final = 7
COUNT_LOG: Final = 8  # nodes ever written to the log of touched nodes
COUNT_LINES: Final = 9  # lines in use
COUNT_LINE: Final = 10  # the line that is given up next
COUNT_FREED: Final = 11  # nodes that came free in this cycle
COUNT_REACH: Final = 12  # counts the changes of nodes that could be used
COUNTS: Final = 16

# --- the pass record: what a slice was asked, where the pass is, what the slice gave ---------------------------------
# Asked. PASS_LANE to PASS_FULL are the cursor: set by who resumes a pass, and by the slice as it goes on.
PASS_NOW: Final = 0  # instant of the slice
PASS_BUDGET: Final = 1  # units of work
PASS_MOST_STARTS: Final = 2
PASS_ATTENDS: Final = 3  # 1 = there is suspended work that this pass has not looked at yet
PASS_LANE: Final = 4  # 0 = by rank, 1 = by planned time; conservative: VACATED
PASS_KEY: Final = 5
PASS_JOB: Final = 6
PASS_TASK: Final = 7
PASS_EPOCH: Final = 8  # M_EPOCH when the pass began
PASS_INSERTS: Final = 9  # M_INSERTS when the pass began
PASS_FULL: Final = 10  # 1 = it looks at everything, not only at what was woken
# Given: for each table of a plan its first record there, and how many.
PASS_FIRST_START: Final = 11
PASS_STARTS: Final = 12
PASS_FIRST_NODE: Final = 13
PASS_NODES: Final = 14
PASS_FIRST_RESERVATION: Final = 15
PASS_RESERVATIONS: Final = 16
PASS_FIRST_RESERVED: Final = 17
PASS_RESERVED: Final = 18
PASS_FIRST_VERDICT: Final = 19
PASS_VERDICTS: Final = 20
PASS_REPLANS: Final = 21  # 1 = its reservations replace those of the state
PASS_CHANGES: Final = 22  # 1 = to assume the plan changes the state
PASS_STOP: Final = 23  # why the pass is not complete: STOP_*
PASS_WAKE: Final = 24  # instant at which to plan again though nothing happens
PASS_WORK: Final = 25  # units of work spent
PASS_VERSION: Final = 26  # M_VERSION that was planned from
GIVEN_COLUMNS: Final = 27
"""Of the pass record: what the shell reads."""
# Beyond these no slice begins to write: what is left of the table might not do.
PASS_LAST_START: Final = 27
PASS_LAST_NODE: Final = 28
PASS_LAST_VERDICT: Final = 29
PASS_LAST_RESERVATION: Final = 30
PASS_LAST_RESERVED: Final = 31
# While a slice runs.
PASS_STAMP: Final = 32  # TICK of the slice
PASS_BLOCK_STAMP: Final = 33  # counts what changes the windows: starts on reserved nodes, new reservations
PASS_CLOSED_STAMP: Final = 34  # counts the reservations that it makes
PASS_HEAP: Final = 35  # candidates on the heap
PASS_ONLY: Final = 36  # the bucket at the top whose next candidate is wanted; -1 = all are listed again
PASS_GIVEN_UP: Final = 37  # reservations of the state that it gave up
PASS_EARLIER: Final = 38  # starts of earlier slices of the pass
PASS_SHARED_STARTS: Final = 39  # starts before shares are asked again
PASS_EXTENDS: Final = 40  # 1 = starts used what was left beside reservations
PASS_WALL: Final = 41  # walltime of the job that is looked at
PASS_EVENTS: Final = 42  # conservative: nodes on which an event freed something
PASS_VACATED: Final = 43  # conservative: 1 = reservations that held nodes were dropped
PASS_SPREAD_JOB: Final = 44  # 1 + the job whose nodes are counted by domain, 0 = none's
PASS_SPREAD_LEVEL: Final = 45  # of that level, -1 = by node
PASS_SPREAD_STARTS: Final = 46  # starts of the slice that are counted
PASS_SIZE: Final = 47

STOP_NONE: Final = 0
STOP_BUDGET: Final = 1
STOP_RESTART: Final = 2  # a new pass begins: shares have moved, or nodes came free behind
STOP_SEARCH: Final = 3  # work to preempt is searched for
STOP_RESUME: Final = 4  # suspended work is looked at
STOP_GROW: Final = 5  # tables are too small, the slice is planned again (never what the shell reads)

PLANNED: Final = 0
GROW_OUTPUTS: Final = 1
GROW_TIMELINES: Final = 2
"""Outcomes of a slice: it is in the record; or the state is as it was, and needs larger tables first."""

# --- starts and verdicts of a plan (see engine.plan for what they mean) ----------------------------------------------
START_JOB: Final = 0
START_TASK: Final = 1
START_ATTEMPT: Final = 2
START_NODE: Final = 3  # offset of its first node among those of the plan
START_NODES: Final = 4
START_ENTRY: Final = 5
START_SIZE: Final = 6

VERDICT_JOB: Final = 0
VERDICT_TASK: Final = 1
VERDICT_REASON: Final = 2
VERDICT_SHORT: Final = 3
VERDICT_SIZE: Final = 4
MAX_VERDICTS: Final = 256
"""Of one slice."""

# --- the heap of candidates: of each bucket the one whose turn is next ------------------------------------------------
H_LANE: Final = 0
H_KEY: Final = 1
H_JOB: Final = 2
H_BUCKET: Final = 3
HEAP_SIZE: Final = 4

# --- lines of scratch, by what a pass keeps there --------------------------------------------------------------------
SCRATCH_FIT: Final = 1  # EASY: S_FIT of each shape before the first start
SCRATCH_DUE: Final = 2  # EASY: planned ends of this slice's starts, ascending
SCRATCH_DUE_START: Final = 3  # EASY: which start
SCRATCH_FREED_AT: Final = 4  # EASY: when a node comes to fit
SCRATCH_FREED: Final = 5  # EASY: which node
SCRATCH_RANKS: Final = 6  # EASY: ranks of the nodes chosen for a start
SCRATCH_GIVEN_UP: Final = 7  # EASY: reservations of the state that the pass gave up
SCRATCH_ENDS: Final = 8  # EASY: releases of one node, or instants of all of them
SCRATCH_SHAPES: Final = 9
SCRATCH_BEGINS: Final = 0  # conservative: when each candidate node may begin
SCRATCH_VALUES: Final = 1  # conservative: of these, to select from; ranks
SCRATCH_CANDIDATES: Final = 2  # conservative: nodes that may hold a shape
SCRATCH_COPY: Final = 3
SCRATCH_CHOSEN: Final = 4  # conservative: nodes for a reservation
SCRATCH_LOCAL: Final = 5  # conservative: nodes that came free in this slice
SCRATCH_EVENTS: Final = 6  # conservative: nodes on which an event freed something
SCRATCH_PRICES: Final = 4  # a search: prices of nodes
SCRATCH_ORDER: Final = 5
SCRATCH_LINES: Final = 10

# --- lines of instants at which nodes come to fit (scratch) ----------------------------------------------------------
READY_SHAPE: Final = 0  # 1 + the shape, 0 = none
READY_USED: Final = 1  # tick when it was last asked for
READY_SIZE: Final = 2

# --- sizes of what is kept about nodes and shapes ---------------------------------------------------------------------
SHAPES_AT_ONCE: Final = 64
"""Shapes that one step of a pass compares; most steps find nothing that changed."""
BLOCK_BITS: Final = 7
BLOCK: Final = 1 << BLOCK_BITS
"""Nodes of a block: scored placement keeps the best node of each."""
ROOM_BITS: Final = 5
"""Nodes of a group, as a power of two: first-fit passes over it as a whole by the most that any of them has free."""
TOUCHED: Final = 256
"""Touched nodes that are remembered one by one, a power of two; before that, only which blocks they are in."""
READY_LINES: Final = 4
"""Shapes for which instants are kept; another one takes the place of the one that was asked for longest ago."""
WORD: Final = 62
"""Bits used of each word: all of them stay positive."""

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
PLACE_WORST: Final = 3
PLACE_SPREAD: Final = 4
PLACE_DOT: Final = 5
PLACE_GPU: Final = 6
PLACE_FGD: Final = 7

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
BAD_ORDER: Final = 14  # nodes are not sorted by (job, first task), or overlap
BAD_LIVE: Final = 15  # the task waits or runs already
BAD_UNKNOWN: Final = 16  # no such waiting entry or running attempt
BAD_TIME: Final = 17
BAD_NODES: Final = 18

# --- scratch ticks ----------------------------------------------------------------------------------------------------
TICK: Final = 0  # last stamp given out
TICK_SEARCH: Final = 1  # stamp of the running search
TICK_LISTED_VERSION: Final = 2  # M_VERSION and TICK of the cycle that listed what holds licences
TICK_LAGS: Final = 3  # nodes in the list of those whose counts lag behind
TICK_TOUCHED: Final = 4  # nodes ever written to the list of touched ones
TICK_MIRROR: Final = 5  # 1 = the float columns say what the nodes say
TICK_READY: Final = 6  # 1 = instants at which nodes come to fit are kept
TICK_UNREADY: Final = 7  # nodes in the list of those to be looked at again
TICK_TAKEN: Final = 8  # counts cycles and their starts: what was worked out before one may be wrong
TICK_LISTED: Final = 9
TICK_LISTED_USED: Final = 10  # places of the list in use
TICKS: Final = 11

# --- why a job did not start -----------------------------------------------------------------------------------------
REASON_RESOURCES: Final = 1
REASON_RESERVED: Final = 2
REASON_LEDGER: Final = 3
REASON_STRICT: Final = 4
REASON_BOOKED: Final = 5
REASON_LICENCE: Final = 6
