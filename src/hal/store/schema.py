"""The tables. Portable between SQLite and PostgreSQL; `migrations/` creates them, and a test compares the two.

Times are milliseconds since 1970, JSON is text, states are their names. Cost: the number of rows follows the number of
jobs and attempts, never the number of pending tasks (`task_ranges`).
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    false,
    text,
)

metadata = MetaData()

INT = BigInteger().with_variant(Integer, "sqlite")
"""64 bits; SQLite's own INTEGER, so that a primary key is the row id."""

specs = Table(
    "specs",
    metadata,
    Column("id", INT, primary_key=True, autoincrement=False),
    Column("body", Text, nullable=False),
)
"""Canonical JSON of a JobSpec; shared by equal jobs that were submitted together."""

jobs = Table(
    "jobs",
    metadata,
    Column("id", INT, primary_key=True, autoincrement=False),
    Column("spec_id", INT, ForeignKey("specs.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("queue", Text, nullable=False),
    Column("account", Text, nullable=False),
    Column("user", Text, nullable=False),
    Column("priority", INT, nullable=False),
    Column("state", Text, nullable=False),
    Column("tasks", INT, nullable=False),
    Column("nodes", INT, nullable=False),
    Column("walltime_ms", INT),
    Column("submit_ms", INT, nullable=False),
    Column("eligible_ms", INT, nullable=False),
    Column("start_ms", INT),
    Column("end_ms", INT),
    Column("hold", Boolean(create_constraint=False), nullable=False),
    Column("trace_id", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("pending", INT, nullable=False),
    Column("held", INT, nullable=False),
    Column("active", INT, nullable=False),
    Column("running", INT, nullable=False),
    Column("succeeded", INT, nullable=False),
    Column("failed", INT, nullable=False),
    Column("timed_out", INT, nullable=False),
    Column("cancelled", INT, nullable=False),
    Column("exit_code", INT),
    Column("restarts", INT, nullable=False),
    Column("version", INT, nullable=False),
    Column("removed", INT, nullable=False, server_default=text("0")),
    Index("jobs_by_state", "state", "id"),
    Index("jobs_by_spec", "spec_id"),
)
"""`removed` is what has been removed of an ended job (`Removed`)."""
Index(
    "jobs_live",
    jobs.c.id,
    sqlite_where=text("end_ms IS NULL"),
    postgresql_where=text("end_ms IS NULL"),
)

Index(
    "jobs_ended",
    jobs.c.removed,
    jobs.c.queue,
    jobs.c.end_ms,
    jobs.c.id,
    jobs.c.tasks,
    sqlite_where=text("end_ms IS NOT NULL"),
    postgresql_where=text("end_ms IS NOT NULL"),
)
"""Finds the jobs of a queue that ended first, and counts jobs and tasks, without looking at a job."""

removals = Table(
    "removals",
    metadata,
    Column("job_id", INT, ForeignKey("jobs.id"), primary_key=True, autoincrement=False),
    Column("at_ms", INT, nullable=False),
    Column("rule", Text, nullable=False),
    sqlite_with_rowid=False,
)
"""When attempts or outputs of a job were removed last, also after it has run again; by which rule."""

job_labels = Table(
    "job_labels",
    metadata,
    Column("job_id", INT, ForeignKey("jobs.id"), primary_key=True, autoincrement=False),
    Column("label", Text, primary_key=True),
    Column("value", Text, nullable=False),
    sqlite_with_rowid=False,
)

task_ranges = Table(
    "task_spans",
    metadata,
    Column("job_id", INT, ForeignKey("jobs.id"), primary_key=True, autoincrement=False),
    Column("first", INT, primary_key=True, autoincrement=False),
    Column("count", INT, nullable=False),
    Column("state", Text, nullable=False),
    Column("attempt", INT, nullable=False),
    Column("retries", INT, nullable=False),
    Column("eligible_ms", INT, nullable=False),
    Column("reason", Text, nullable=False),
    sqlite_with_rowid=False,
)

attempts = Table(
    "attempts",
    metadata,
    Column("job_id", INT, ForeignKey("jobs.id"), primary_key=True, autoincrement=False),
    Column("task", INT, primary_key=True, autoincrement=False),
    Column("attempt", INT, primary_key=True, autoincrement=False),
    Column("state", Text, nullable=False),
    Column("nodes", Text, nullable=False),
    Column("token", Text, nullable=False),
    Column("allocated_ms", INT, nullable=False),
    Column("retries", INT, nullable=False),
    Column("started_ms", INT),
    Column("ended_ms", INT),
    Column("cause", Text, nullable=False),
    Column("exit_code", INT),
    Column("signal", INT),
    Column("usage", Text),
    Column("message", Text, nullable=False),
    Column("steps", Text, nullable=False),
    Column("credit", Boolean(create_constraint=False), nullable=False, server_default=false()),
    Column("taking", Text),
    Column("gpus", Text),
    Column("port", Integer),
    Column("node", Text),
    Column("user", Text),
    Column("ended_seq", INT),
    Column("recorded_ms", INT),
    sqlite_with_rowid=False,
)
"""`node` is that of rank 0. The last three are set when the attempt ends: `ended_seq` numbers all ends in commit order,
from 1 without gaps; `recorded_ms` is the instant of that commit, which never descends with the number."""

Index(
    "attempts_active",
    attempts.c.job_id,
    attempts.c.task,
    attempts.c.attempt,
    sqlite_where=text("ended_ms IS NULL"),
    postgresql_where=text("ended_ms IS NULL"),
)
Index(
    "attempts_many",
    attempts.c.job_id,
    attempts.c.task,
    attempts.c.attempt,
    sqlite_where=text("attempt > 10"),
    postgresql_where=text("attempt > 10"),
)
"""Finds tasks with many attempts; no less than so many are kept of a task (`removal.LEAST_ATTEMPTS`)."""
for _name, _columns in (
    ("attempts_ended", (attempts.c.ended_seq,)),
    ("attempts_ended_by_state", (attempts.c.state, attempts.c.ended_seq)),
    ("attempts_ended_by_job", (attempts.c.job_id, attempts.c.ended_seq)),
    ("attempts_ended_by_user", (attempts.c.user, attempts.c.ended_seq)),
    ("attempts_ended_by_node", (attempts.c.node, attempts.c.ended_seq)),
):
    Index(
        _name,
        *_columns,
        sqlite_where=text("ended_seq IS NOT NULL"),
        postgresql_where=text("ended_seq IS NOT NULL"),
    )

gang_nodes = Table(
    "gang_nodes",
    metadata,
    Column("job_id", INT, primary_key=True, autoincrement=False),
    Column("task", INT, primary_key=True, autoincrement=False),
    Column("attempt", INT, primary_key=True, autoincrement=False),
    Column("node", Text, primary_key=True),
    Column("ended_seq", INT, nullable=False),
    ForeignKeyConstraint(
        ["job_id", "task", "attempt"], ["attempts.job_id", "attempts.task", "attempts.attempt"], ondelete="CASCADE"
    ),
    Index("gang_nodes_ended", "node", "ended_seq"),
    sqlite_with_rowid=False,
)
"""Nodes of ranks 1 and up of attempts that have ended; they are removed with their attempt."""

removed_tasks = Table(
    "removed_tasks",
    metadata,
    Column("job_id", INT, ForeignKey("jobs.id"), primary_key=True, autoincrement=False),
    Column("first", INT, primary_key=True, autoincrement=False),
    Column("count", INT, nullable=False),
    Column("going", Boolean(create_constraint=False), nullable=False),
    sqlite_with_rowid=False,
)
"""Tasks that were removed of an ended job that stays; disjoint ranges. `going` until their attempts are deleted."""
Index(
    "removed_tasks_going",
    removed_tasks.c.job_id,
    removed_tasks.c.first,
    sqlite_where=text("going"),
    postgresql_where=text("going"),
)

readers = Table(
    "readers",
    metadata,
    Column("name", Text, primary_key=True),
    Column("user", Text, nullable=False),
    Column("created_ms", INT, nullable=False),
    Column("heard_ms", INT, nullable=False),
    Column("attempts", INT),
    Column("events", INT),
)
"""Who follows the ends of attempts, the events, or both: up to which sequence number each has read; null where it does
not follow."""

nodes = Table(
    "nodes",
    metadata,
    Column("name", Text, primary_key=True),
    Column("capacity", Text, nullable=False),
    Column("labels", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("boot_id", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("last_seen_ms", INT, nullable=False),
    Column("notes", Text, nullable=False),
    Column("about", Text, nullable=False, server_default="{}"),
)

forgets = Table(
    "forgets",
    metadata,
    Column("node", Text, primary_key=True),
    Column("job_id", INT, primary_key=True, autoincrement=False),
    Column("attempt", INT, primary_key=True, autoincrement=False),
    Column("first", INT, primary_key=True, autoincrement=False),
    Column("count", INT, nullable=False),
    sqlite_with_rowid=False,
)
"""What a node must still delete: the files of that attempt number of `count` tasks from `first` on; attempt 0: of the
whole job; node '': of the whole job, on each of its nodes, which are still to be named. A row goes when the node says
that it is done, or with the node; the job may be gone before."""

policies = Table(
    "policies",
    metadata,
    Column("version", INT, primary_key=True, autoincrement=False),
    Column("at_ms", INT, nullable=False),
    Column("user", Text, nullable=False),
    Column("note", Text, nullable=False),
    Column("document", Text, nullable=False),
)
"""Every stored version of the policy, as canonical JSON; the newest applies."""

join_tokens = Table(
    "join_tokens",
    metadata,
    Column("id", Text, primary_key=True),
    Column("secret_hash", Text, nullable=False),
    Column("node", Text, nullable=False),
    Column("user", Text, nullable=False),
    Column("created_ms", INT, nullable=False),
    Column("expires_ms", INT, nullable=False),
    Column("used_ms", INT),
    Column("used_by", Text, nullable=False),
    Column("revoked_ms", INT),
    Column("uses", INT, nullable=False, server_default=text("1")),
    Column("used", INT, nullable=False, server_default=text("0")),
    Column("labels", Text, nullable=False, server_default="{}"),
    Column("role", Text, nullable=False, server_default=text("'agent'")),
)
"""Of a token, only the SHA-256 of its secret is stored."""

certificates = Table(
    "certificates",
    metadata,
    Column("serial", Text, primary_key=True),
    Column("node", Text, nullable=False),
    Column("issued_ms", INT, nullable=False),
    Column("expires_ms", INT, nullable=False),
    Column("revoked_ms", INT),
    Column("token", Text, nullable=False, server_default=text("''")),
    Column("labels", Text, nullable=False, server_default="{}"),
    Column("role", Text, nullable=False, server_default=text("'agent'")),
)
"""The unexpired certificates that this HAL's authority has issued on request; `node` is the name, whatever the role."""

events = Table(
    "events",
    metadata,
    Column("seq", INT, primary_key=True, autoincrement=False),
    Column("at_ms", INT, nullable=False),
    Column("kind", Text, nullable=False),
    Column("cause", Text, nullable=False),
    Column("trace_id", Text, nullable=False),
    Column("jobs", Text, nullable=False),
    Column("job_min", INT, nullable=False),
    Column("job_max", INT, nullable=False),
    Column("payload", Text, nullable=False),
)
"""`jobs` is a list of ranges [first, last], so that an event about any number of jobs is one small row; `job_min`
and `job_max` are 0 when it is about none."""

commits = Table(
    "commits",
    metadata,
    Column("number", INT, primary_key=True, autoincrement=False),
    Column("id", Text, nullable=False, unique=True),
    Column("at_ms", INT, nullable=False),
    Column("first_seq", INT, nullable=False),
    Column("last_seq", INT, nullable=False),
    Column("last_end", INT, nullable=False, server_default=text("0")),
)
"""In commit order. The newest is never trimmed: sequence numbers of events and of ends, and time, continue from it."""

idempotency = Table(
    "idempotency",
    metadata,
    Column("key", Text, primary_key=True),
    Column("at_ms", INT, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("response", LargeBinary, nullable=False),
)

leader = Table(
    "leader",
    metadata,
    Column("id", INT, primary_key=True, autoincrement=False),
    Column("epoch", INT, nullable=False),
    Column("holder", Text, nullable=False),
    Column("taken_ms", INT, nullable=False),
    Column("expires_ms", INT, nullable=False, server_default=text("0")),
    Column("rest", Text, nullable=False, server_default=text("''")),
    Column("wire", Text, nullable=False, server_default=text("''")),
)
"""One row, id 1; read inside every commit. `expires_ms` is by the database's own clock; `rest` and `wire` are where
clients and agents reach the leader."""

controllers = Table(
    "controllers",
    metadata,
    Column("id", Text, primary_key=True),
    Column("version", Text, nullable=False),
    Column("rest", Text, nullable=False),
    Column("wire", Text, nullable=False),
    Column("pid", INT, nullable=False),
    Column("epoch", INT, nullable=False),
    Column("since_ms", INT, nullable=False),
    Column("heard_ms", INT, nullable=False),
    Column("secret_hash", Text, nullable=False),
)
"""The controllers that share this store, leader and followers. Each announces itself, outside any group (see
`controllers`)."""

periodic_jobs = Table(
    "periodic_jobs",
    metadata,
    Column("id", INT, primary_key=True, autoincrement=False),
    Column("user", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("created_ms", INT, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("changed_ms", INT, nullable=False),
    Column("on_system", Boolean(create_constraint=False), nullable=False),
    Column("held_by", Text, nullable=False),
    Column("next_ms", INT),
    Column("runs", INT, nullable=False),
    Column("live", Text, nullable=False),
    UniqueConstraint("user", "name", name="periodic_jobs_named"),
)
"""`body` is canonical JSON of a PeriodicSpec; `next_ms` is the next due time, null if there is none; `runs` counts what
was ever entered in its history; `live` lists its jobs that had not ended when it last submitted one."""

periodic_runs = Table(
    "periodic_runs",
    metadata,
    Column("periodic", INT, ForeignKey("periodic_jobs.id"), primary_key=True, autoincrement=False),
    Column("number", INT, primary_key=True, autoincrement=False),
    Column("due_ms", INT, nullable=False),
    Column("at_ms", INT, nullable=False),
    Column("manual", Boolean(create_constraint=False), nullable=False),
    Column("outcome", Text, nullable=False),
    Column("job", INT),
    Column("times", INT, nullable=False),
    Column("reason", Text, nullable=False),
    sqlite_with_rowid=False,
)
"""What became of due times, by number from 1; no due time is in it twice, so none is submitted twice."""
Index(
    "periodic_runs_due",
    periodic_runs.c.periodic,
    periodic_runs.c.due_ms,
    unique=True,
    sqlite_where=text("NOT manual"),
    postgresql_where=text("NOT manual"),
)

notices = Table(
    "notices",
    metadata,
    Column("job_id", INT, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True, autoincrement=False),
    Column("open", Boolean(create_constraint=False), nullable=False),
    Column("start_ms", INT),
    Column("end_ms", INT),
    Column("restarts", INT, nullable=False),
    Column("ended_seq", INT, nullable=False),
)
"""Jobs that notify somebody, and what of them was told: their columns as they were then, and up to which end of an
attempt; `open` while the job has not ended, or its end was not told."""
Index("notices_open", notices.c.job_id, sqlite_where=text("open"), postgresql_where=text("open"))

meta = Table(
    "meta",
    metadata,
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
)
