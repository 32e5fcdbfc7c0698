"""What the people whom a job notifies have been told.

Revises: 0015
"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

INT = sa.BigInteger().with_variant(sa.Integer, "sqlite")
OPEN = sa.text("open")


def upgrade() -> None:
    """No job notifies anybody yet."""
    op.create_table(
        "notices",
        sa.Column("job_id", INT, sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True, autoincrement=False),
        sa.Column("open", sa.Boolean(create_constraint=False), nullable=False),
        sa.Column("start_ms", INT),
        sa.Column("end_ms", INT),
        sa.Column("restarts", INT, nullable=False),
        sa.Column("ended_seq", INT, nullable=False),
    )
    op.create_index("notices_open", "notices", ["job_id"], sqlite_where=OPEN, postgresql_where=OPEN)


def downgrade() -> None:
    """It is forgotten."""
    op.drop_table("notices")
