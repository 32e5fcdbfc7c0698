"""Tasks that were removed of ended jobs.

Revises: 0016
"""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

INT = sa.BigInteger().with_variant(sa.Integer, "sqlite")
GOING = sa.text("going")


def upgrade() -> None:
    """No task is removed yet."""
    op.create_table(
        "removed_tasks",
        sa.Column("job_id", INT, sa.ForeignKey("jobs.id"), primary_key=True, autoincrement=False),
        sa.Column("first", INT, primary_key=True, autoincrement=False),
        sa.Column("count", INT, nullable=False),
        sa.Column("going", sa.Boolean(create_constraint=False), nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "removed_tasks_going", "removed_tasks", ["job_id", "first"], sqlite_where=GOING, postgresql_where=GOING
    )


def downgrade() -> None:
    """Those whose attempts are not deleted yet are seen again."""
    op.drop_table("removed_tasks")
