"""An index of tasks with many attempts.

Revises: 0012
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Few rows are in it."""
    many = sa.text("attempt > 10")
    columns = ["job_id", "task", "attempt"]
    op.create_index("attempts_many", "attempts", columns, sqlite_where=many, postgresql_where=many)


def downgrade() -> None:
    """The rows stay."""
    op.drop_index("attempts_many", "attempts")
