"""What retention has removed of ended jobs, and what nodes must still delete.

Revises: 0009
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

INT = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Nothing has been removed so far."""
    op.add_column("jobs", sa.Column("removed", INT, nullable=False, server_default=sa.text("0")))
    ended = sa.text("end_ms IS NOT NULL")
    columns = ["removed", "queue", "end_ms", "id", "tasks"]
    op.create_index("jobs_ended", "jobs", columns, sqlite_where=ended, postgresql_where=ended)
    op.create_index("jobs_by_spec", "jobs", ["spec_id"])
    op.create_table(
        "forgets",
        sa.Column("node", sa.Text, primary_key=True),
        sa.Column("job_id", INT, primary_key=True, autoincrement=False),
        sa.Column("attempt", INT, primary_key=True, autoincrement=False),
        sa.Column("first", INT, primary_key=True, autoincrement=False),
        sa.Column("count", INT, nullable=False),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    """Jobs that were being removed come back; nodes keep the files of jobs that are gone."""
    op.drop_table("forgets")
    op.drop_index("jobs_by_spec", "jobs")
    op.drop_index("jobs_ended", "jobs")
    op.drop_column("jobs", "removed")
