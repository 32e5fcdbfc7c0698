"""Periodic jobs, and what became of their due times.

Revises: 0014
"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

INT = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """There are none yet."""
    op.create_table(
        "periodic_jobs",
        sa.Column("id", INT, primary_key=True, autoincrement=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("created_ms", INT, nullable=False),
        sa.Column("created_by", sa.Text, nullable=False),
        sa.Column("changed_ms", INT, nullable=False),
        sa.Column("on_system", sa.Boolean(create_constraint=False), nullable=False),
        sa.Column("held_by", sa.Text, nullable=False),
        sa.Column("next_ms", INT),
        sa.Column("runs", INT, nullable=False),
        sa.Column("live", sa.Text, nullable=False),
        sa.UniqueConstraint("user", "name", name="periodic_jobs_named"),
    )
    op.create_table(
        "periodic_runs",
        sa.Column("periodic", INT, sa.ForeignKey("periodic_jobs.id"), primary_key=True, autoincrement=False),
        sa.Column("number", INT, primary_key=True, autoincrement=False),
        sa.Column("due_ms", INT, nullable=False),
        sa.Column("at_ms", INT, nullable=False),
        sa.Column("manual", sa.Boolean(create_constraint=False), nullable=False),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("job", INT),
        sa.Column("times", INT, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "periodic_runs_due",
        "periodic_runs",
        ["periodic", "due_ms"],
        unique=True,
        sqlite_where=sa.text("NOT manual"),
        postgresql_where=sa.text("NOT manual"),
    )


def downgrade() -> None:
    """They are forgotten."""
    op.drop_table("periodic_runs")
    op.drop_table("periodic_jobs")
