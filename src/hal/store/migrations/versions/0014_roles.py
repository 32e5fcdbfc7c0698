"""Join tokens and certificates of other roles than agents.

Revises: 0013
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """All so far are of agents."""
    for table in ("join_tokens", "certificates"):
        op.add_column(table, sa.Column("role", sa.Text, nullable=False, server_default=sa.text("'agent'")))


def downgrade() -> None:
    """Those of other roles are gone: an older HAL would take them for nodes'."""
    for table in ("certificates", "join_tokens"):
        op.execute(f"DELETE FROM {table} WHERE role <> 'agent'")
        op.drop_column(table, "role")
