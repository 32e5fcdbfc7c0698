"""When and for whom an attempt was preempted.

Revises: 0003
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """No attempt has been preempted so far."""
    op.add_column("attempts", sa.Column("taking", sa.Text))


def downgrade() -> None:
    """Lose which attempts were preempted, and how long they were suspended."""
    op.drop_column("attempts", "taking")
