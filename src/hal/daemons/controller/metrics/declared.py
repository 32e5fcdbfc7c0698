"""Every metric of a controller, declared once: registry, spec/metrics.md, dashboards and rules follow from this table.

Labels are names that the site chose or HAL fixed (queues, states, resources, operations), never of jobs or users.
"""

from __future__ import annotations

from typing import Final

from hal.core.model.advice import MAX_KINDS
from hal.core.model.plane_addresses import MAX_ANNOUNCED
from hal.core.model.policy_check import MAX_QUEUES
from hal.core.model.resources import MAX_RESOURCES
from hal.runtime.metrics.declaration import Kind, Label, Metric
from hal.runtime.metrics.loop_lag import LAG
from hal.runtime.metrics.process import PROCESS
from hal.runtime.metrics.scrape import SCRAPE
from hal.store import MAX_READERS

QUEUE: Final = Label("queue", "a queue of the policy", MAX_QUEUES)
QUEUE_OF_HISTOGRAM: Final = Label("queue", "a queue of the policy", 50)
"""Each value has a series for each bucket."""
TASK_STATE: Final = Label("state", "a state of jobs and tasks", 16)
NODE_STATE: Final = Label("state", "a state of nodes", 16)
RESOURCE: Final = Label("resource", "`cpu` in cores, `memory` in bytes, `gpu` in GPUs; others", MAX_RESOURCES)
OPERATION: Final = Label("operation", "an operation of REST by its name in spec/openapi; `(none)`: refused before", 256)
STATUS: Final = Label("status", "the HTTP status", 32)

BUILD: Final = Metric(
    name="hal_build_info",
    kind=Kind.GAUGE,
    text="1; the version of this controller is in the label.",
    labels=(Label("version", "the version of HAL", 1),),
)
LEADER: Final = Metric(name="hal_leader", kind=Kind.GAUGE, text="1 if this controller leads, 0 if it follows.")
EPOCH: Final = Metric(name="hal_leader_epoch", kind=Kind.GAUGE, text="Number of the leader's term.")
DURABLE: Final = Metric(
    name="hal_store_writable", kind=Kind.GAUGE, text="0 while nothing can be made durable, because commits fail."
)

CYCLE: Final = Metric(
    name="hal_cycle_seconds",
    kind=Kind.HISTOGRAM,
    unit="seconds",
    text="One turn of the control loop: what has come is staged, decided and committed.",
)
SLICE: Final = Metric(
    name="hal_slice_seconds",
    kind=Kind.HISTOGRAM,
    unit="seconds",
    text="One slice of the engine's work; the loop turns between slices.",
    classic=(-17, 3),
)
GROUP: Final = Metric(
    name="hal_group_items",
    kind=Kind.HISTOGRAM,
    text="Requests of people and reports of nodes that are committed in one group.",
    classic=(0, 10),
)
WAITING_CALLS: Final = Metric(
    name="hal_calls_waiting", kind=Kind.GAUGE, text="Requests that wait for their turn in the control loop."
)
COMMIT: Final = Metric(
    name="hal_commit_seconds",
    kind=Kind.HISTOGRAM,
    unit="seconds",
    text="From when a group is handed to the store until it is committed, with the wait for the writer's thread.",
)
COMMIT_FAILURES: Final = Metric(
    name="hal_commit_failures_total", kind=Kind.COUNTER, text="Commits that failed; nothing of them has happened."
)
FAULTS: Final = Metric(
    name="hal_faults_total",
    kind=Kind.COUNTER,
    text="Faults of HAL that the control loop met and left out: in a request, in a report of a node, or in what it "
    "does about a node itself.",
    labels=(Label("met_in", "`request`, `report` or `node`", 3),),
)
FLUSH: Final = Metric(
    name="hal_flush_seconds",
    kind=Kind.HISTOGRAM,
    unit="seconds",
    text="A flush of the store to the disk, after which those are answered who wait.",
)
STORE_SIZE: Final = Metric(
    name="hal_store_size_bytes",
    kind=Kind.GAUGE,
    unit="bytes",
    text="Size of the database, looked at once a minute at most.",
)

JOBS: Final = Metric(name="hal_jobs", kind=Kind.GAUGE, text="Live jobs, as committed.", labels=(QUEUE, TASK_STATE))
TASKS: Final = Metric(
    name="hal_tasks", kind=Kind.GAUGE, text="Tasks of live jobs that have not ended.", labels=(QUEUE, TASK_STATE)
)
SUBMITTED: Final = Metric(
    name="hal_jobs_submitted_total", kind=Kind.COUNTER, text="Jobs that were submitted.", labels=(QUEUE,)
)
JOBS_ENDED: Final = Metric(
    name="hal_jobs_ended_total",
    kind=Kind.COUNTER,
    text="Jobs that have ended, by result.",
    labels=(QUEUE, Label("result", "the state in which it ended", 8)),
)
ATTEMPTS_STARTED: Final = Metric(
    name="hal_tasks_started_total",
    kind=Kind.COUNTER,
    text="Tasks whose processes have begun for the first time.",
    labels=(QUEUE,),
)
ATTEMPTS_ENDED: Final = Metric(
    name="hal_attempts_ended_total",
    kind=Kind.COUNTER,
    text="Attempts that have ended, by result.",
    labels=(QUEUE, Label("result", "the state in which it ended", 16)),
)
QUEUE_WAIT: Final = Metric(
    name="hal_queue_wait_seconds",
    kind=Kind.HISTOGRAM,
    unit="seconds",
    text="From when a task could have begun (submitted, dependencies met) until it was given nodes; first attempts.",
    labels=(QUEUE_OF_HISTOGRAM,),
    classic=(-7, 20),
)
OLDEST_WAIT: Final = Metric(
    name="hal_queue_oldest_wait_seconds",
    kind=Kind.GAUGE,
    unit="seconds",
    text="How long the oldest job waits of which nothing runs and that could have started, to ten seconds; a queue in "
    "which none waits is not there.",
    labels=(QUEUE,),
)
SUBMIT_TO_START: Final = Metric(
    name="hal_submit_to_start_seconds",
    kind=Kind.HISTOGRAM,
    unit="seconds",
    text="From the submission of a job until processes of its tasks have begun; first attempts.",
    classic=(-10, 20),
)

NODES: Final = Metric(name="hal_nodes", kind=Kind.GAUGE, text="Nodes, by state.", labels=(NODE_STATE,))
AGENTS: Final = Metric(name="hal_agents_connected", kind=Kind.GAUGE, text="Nodes whose agents are connected.")
CAPACITY: Final = Metric(
    name="hal_resource_capacity", kind=Kind.GAUGE, text="What nodes that are up have.", labels=(RESOURCE,)
)
ALLOCATED: Final = Metric(
    name="hal_resource_allocated", kind=Kind.GAUGE, text="What attempts hold, on any node.", labels=(RESOURCE,)
)
FREE: Final = Metric(
    name="hal_resource_free", kind=Kind.GAUGE, text="What is free on nodes that are up.", labels=(RESOURCE,)
)

REQUESTS: Final = Metric(
    name="hal_rest_requests_total",
    kind=Kind.COUNTER,
    text="Requests that were answered, by operation and status.",
    labels=(OPERATION, STATUS),
)
REQUEST: Final = Metric(
    name="hal_rest_request_seconds",
    kind=Kind.HISTOGRAM,
    unit="seconds",
    text="From the head of a request to the head of its answer, by operation; those that wait for something included.",
    labels=(Label("operation", "as of `hal_rest_requests_total`", 64),),
    classic=(-10, 5),
)

FEED: Final = Label("feed", "`attempts` or `events`", 2)
FEED_NEWEST: Final = Metric(
    name="hal_feed_newest", kind=Kind.GAUGE, text="Sequence number of the newest entry of a feed.", labels=(FEED,)
)
READER_LAG: Final = Metric(
    name="hal_feed_reader_lag",
    kind=Kind.GAUGE,
    text="Entries of a feed that a registered reader has not read; they are kept until it has.",
    labels=(Label("reader", "the name of a registered reader", MAX_READERS), FEED),
    for_operators=True,
)
WATCHERS: Final = Metric(name="hal_feed_watchers", kind=Kind.GAUGE, text="Connections that follow the event feed now.")

ADVICE_KEYS: Final = Metric(
    name="hal_advice_keys",
    kind=Kind.GAUGE,
    text="Keys of advice that are held.",
    labels=(Label("kind", "a kind of advice", MAX_KINDS),),
    for_operators=True,
)
ADVICE_AGE: Final = Metric(
    name="hal_advice_age_seconds",
    kind=Kind.GAUGE,
    unit="seconds",
    text="How long ago advice was put last.",
    labels=(Label("kind", "a kind of advice", MAX_KINDS),),
    for_operators=True,
)
PLANE: Final = Metric(
    name="hal_plane_in_service",
    kind=Kind.GAUGE,
    text="0 while a plane of this controller is out of service.",
    labels=(Label("plane", "the name of a plane", 16),),
)
ANNOUNCED: Final = Metric(
    name="hal_announced_plane_up",
    kind=Kind.GAUGE,
    text="1 while a plane announces itself, as its process does; 0 for a day once it has ceased to without saying so.",
    labels=(Label("plane", "the name of a plane", 2 * MAX_ANNOUNCED),),
)
CERTIFICATE: Final = Metric(
    name="hal_certificate_expiry_timestamp_seconds",
    kind=Kind.GAUGE,
    unit="seconds",
    text="When a certificate of this controller ends, in seconds since 1970; read once a minute at most.",
    labels=(Label("certificate", "`authority`, `wire` (for agents), `rest`, `site` (`server.tls_cert`)", 4),),
)

LIMIT_USED: Final = Metric(
    name="hal_limit_used_ratio",
    kind=Kind.GAUGE,
    unit="ratio",
    text="The largest part of a limit that is used, of those for whom it counts apart.",
    labels=(Label("limit", "the name of a limit of the policy", 200),),
)
HOME_FREE: Final = Metric(
    name="hal_home_free_ratio",
    kind=Kind.GAUGE,
    unit="ratio",
    text="The free part of the disk of HAL_HOME, looked at once a minute at most.",
)

LEADING: Final = (
    DURABLE,
    WAITING_CALLS,
    STORE_SIZE,
    JOBS,
    TASKS,
    NODES,
    AGENTS,
    CAPACITY,
    ALLOCATED,
    FREE,
    FEED_NEWEST,
    READER_LAG,
    WATCHERS,
    ADVICE_KEYS,
    ADVICE_AGE,
    PLANE,
    ANNOUNCED,
    OLDEST_WAIT,
    LIMIT_USED,
)
"""Views of what only a leader knows: a follower does not show them."""
CONTROLLER: Final = (
    BUILD,
    LEADER,
    EPOCH,
    CYCLE,
    SLICE,
    GROUP,
    COMMIT,
    COMMIT_FAILURES,
    FAULTS,
    FLUSH,
    SUBMITTED,
    JOBS_ENDED,
    ATTEMPTS_STARTED,
    ATTEMPTS_ENDED,
    QUEUE_WAIT,
    SUBMIT_TO_START,
    REQUESTS,
    REQUEST,
    CERTIFICATE,
    HOME_FREE,
    *LEADING,
    LAG,
    SCRAPE,
    *PROCESS,
)
"""All of them."""
