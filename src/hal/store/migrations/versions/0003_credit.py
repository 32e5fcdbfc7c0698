"""Attempts on credit: sent to their node before a slot is free there.

Revises: 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """No earlier attempt was on credit."""
    op.add_column(
        "attempts",
        sa.Column("credit", sa.Boolean(create_constraint=False), nullable=False, server_default=sa.false()),
    )
