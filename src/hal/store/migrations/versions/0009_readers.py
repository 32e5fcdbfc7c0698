"""Ends of attempts are numbered in commit order; readers of the feeds are registered.

Revises: 0008
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

INT = sa.BigInteger().with_variant(sa.Integer, "sqlite")
ENDED = sa.text("ended_seq IS NOT NULL")
INDEXES = (
    ("attempts_ended", ["ended_seq"]),
    ("attempts_ended_by_state", ["state", "ended_seq"]),
    ("attempts_ended_by_job", ["job_id", "ended_seq"]),
    ("attempts_ended_by_user", ["user", "ended_seq"]),
    ("attempts_ended_by_node", ["node", "ended_seq"]),
)


def upgrade() -> None:
    """Attempts that ended before are numbered by the instant of their end."""
    op.add_column("attempts", sa.Column("node", sa.Text))
    op.add_column("attempts", sa.Column("user", sa.Text))
    op.add_column("attempts", sa.Column("ended_seq", INT))
    op.add_column("attempts", sa.Column("recorded_ms", INT))
    op.add_column("commits", sa.Column("last_end", INT, nullable=False, server_default=sa.text("0")))
    op.create_table(
        "gang_nodes",
        sa.Column("job_id", INT, primary_key=True, autoincrement=False),
        sa.Column("task", INT, primary_key=True, autoincrement=False),
        sa.Column("attempt", INT, primary_key=True, autoincrement=False),
        sa.Column("node", sa.Text, primary_key=True),
        sa.Column("ended_seq", INT, nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id", "task", "attempt"], ["attempts.job_id", "attempts.task", "attempts.attempt"], ondelete="CASCADE"
        ),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "readers",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("created_ms", INT, nullable=False),
        sa.Column("heard_ms", INT, nullable=False),
        sa.Column("attempts", INT),
        sa.Column("events", INT),
    )
    for statement in _NUMBER[op.get_bind().dialect.name]:
        op.execute(statement)
    op.execute(
        "UPDATE commits SET last_end = (SELECT coalesce(max(ended_seq), 0) FROM attempts) "
        "WHERE number = (SELECT max(number) FROM commits)"
    )
    op.create_index("gang_nodes_ended", "gang_nodes", ["node", "ended_seq"])
    for name, columns in INDEXES:
        op.create_index(name, "attempts", columns, sqlite_where=ENDED, postgresql_where=ENDED)


def downgrade() -> None:
    """Ends have no numbers, readers are forgotten."""
    for name, _ in INDEXES:
        op.drop_index(name, "attempts")
    op.drop_table("gang_nodes")
    op.drop_table("readers")
    op.drop_column("commits", "last_end")
    for name in ("recorded_ms", "ended_seq", "user", "node"):
        op.drop_column("attempts", name)


_ENDS = (
    'UPDATE attempts SET ended_seq = n.seq, recorded_ms = n.ended_ms, "user" = n.person FROM ('
    'SELECT a.job_id, a.task, a.attempt, a.ended_ms, j."user" AS person, '
    "row_number() OVER (ORDER BY a.ended_ms, a.job_id, a.task, a.attempt) AS seq "
    "FROM attempts a JOIN jobs j ON j.id = a.job_id WHERE a.ended_ms IS NOT NULL) AS n "
    "WHERE attempts.job_id = n.job_id AND attempts.task = n.task AND attempts.attempt = n.attempt"
)
_GANGS = "INSERT INTO gang_nodes (job_id, task, attempt, node, ended_seq) "
_NUMBER = {
    "sqlite": (
        "UPDATE attempts SET node = json_extract(nodes, '$[0]')",
        _ENDS,
        _GANGS + "SELECT a.job_id, a.task, a.attempt, n.value, a.ended_seq FROM attempts a, json_each(a.nodes) n "
        "WHERE a.ended_seq IS NOT NULL AND n.key > 0",
    ),
    "postgresql": (
        "UPDATE attempts SET node = nodes::json ->> 0",
        _ENDS,
        _GANGS + "SELECT a.job_id, a.task, a.attempt, n.value, a.ended_seq FROM attempts a, "
        "json_array_elements_text(a.nodes::json) WITH ORDINALITY AS n(value, place) "
        "WHERE a.ended_seq IS NOT NULL AND n.place > 1",
    ),
}
