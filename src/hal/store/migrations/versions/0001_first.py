"""The first tables: jobs, task ranges (`task_spans`), attempts, nodes, the event feed, commits, leader.

Revises: nothing
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

INT = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def _int(name: str, *, key: bool = False, null: bool = False, refers: str = "") -> "sa.Column[int]":
    references = [sa.ForeignKey(refers)] if refers else []
    return sa.Column(name, INT, *references, primary_key=key, nullable=null and not key, autoincrement=False)


def _text(name: str, *, key: bool = False, null: bool = False, unique: bool = False) -> "sa.Column[str]":
    return sa.Column(name, sa.Text, primary_key=key, nullable=null and not key, unique=unique or None)


def upgrade() -> None:
    """Create everything."""
    op.create_table("specs", _int("id", key=True), _text("body"))
    op.create_table(
        "jobs",
        _int("id", key=True),
        _int("spec_id", refers="specs.id"),
        _text("name"),
        _text("queue"),
        _text("account"),
        _text("user"),
        _int("priority"),
        _text("state"),
        _int("tasks"),
        _int("nodes"),
        _int("walltime_ms", null=True),
        _int("submit_ms"),
        _int("eligible_ms"),
        _int("start_ms", null=True),
        _int("end_ms", null=True),
        sa.Column("hold", sa.Boolean(create_constraint=False), nullable=False),
        _text("trace_id"),
        _text("reason"),
        _int("pending"),
        _int("held"),
        _int("active"),
        _int("running"),
        _int("succeeded"),
        _int("failed"),
        _int("timed_out"),
        _int("cancelled"),
        _int("exit_code", null=True),
        _int("restarts"),
        _int("version"),
    )
    op.create_index("jobs_by_state", "jobs", ["state", "id"])
    live = sa.text("end_ms IS NULL")
    op.create_index("jobs_live", "jobs", ["id"], sqlite_where=live, postgresql_where=live)
    op.create_table(
        "job_labels",
        _int("job_id", key=True, refers="jobs.id"),
        _text("label", key=True),
        _text("value"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "task_spans",
        _int("job_id", key=True, refers="jobs.id"),
        _int("first", key=True),
        _int("count"),
        _text("state"),
        _int("attempt"),
        _int("retries"),
        _int("eligible_ms"),
        _text("reason"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "attempts",
        _int("job_id", key=True, refers="jobs.id"),
        _int("task", key=True),
        _int("attempt", key=True),
        _text("state"),
        _text("nodes"),
        _text("token"),
        _int("allocated_ms"),
        _int("retries"),
        _int("started_ms", null=True),
        _int("ended_ms", null=True),
        _text("cause"),
        _int("exit_code", null=True),
        _int("signal", null=True),
        _text("usage", null=True),
        _text("message"),
        _text("steps"),
        sqlite_with_rowid=False,
    )
    active = sa.text("ended_ms IS NULL")
    op.create_index(
        "attempts_active",
        "attempts",
        ["job_id", "task", "attempt"],
        sqlite_where=active,
        postgresql_where=active,
    )
    op.create_table(
        "nodes",
        _text("name", key=True),
        _text("capacity"),
        _text("labels"),
        _text("state"),
        _text("boot_id"),
        _text("reason"),
        _int("last_seen_ms"),
        _text("notes"),
    )
    op.create_table("queues", _text("name", key=True), _text("config"))
    op.create_table("accounts", _text("name", key=True))
    op.create_table("users", _text("name", key=True))
    op.create_table(
        "events",
        _int("seq", key=True),
        _int("at_ms"),
        _text("kind"),
        _text("cause"),
        _text("trace_id"),
        _text("jobs"),
        _int("job_min"),
        _int("job_max"),
        _text("payload"),
    )
    op.create_table(
        "commits",
        _int("number", key=True),
        _text("id", unique=True),
        _int("at_ms"),
        _int("first_seq"),
        _int("last_seq"),
    )
    op.create_table(
        "idempotency",
        _text("key", key=True),
        _int("at_ms"),
        _text("fingerprint"),
        sa.Column("response", sa.LargeBinary, nullable=False),
    )
    op.create_table("leader", _int("id", key=True), _int("epoch"), _text("holder"), _int("taken_ms"))
    op.create_table("meta", _text("key", key=True), _text("value"))


def downgrade() -> None:
    """Drop everything; what was stored is lost."""
    names = ("meta", "leader", "idempotency", "commits", "events", "users", "accounts", "queues", "nodes")
    for name in (*names, "attempts", "task_spans", "job_labels", "jobs", "specs"):
        op.drop_table(name)
