"""The port at which the ranks of an attempt meet.

Revises: 0018
"""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Earlier attempts have none."""
    op.add_column("attempts", sa.Column("port", sa.Integer()))


def downgrade() -> None:
    """Their ranks meet where they were told."""
    op.drop_column("attempts", "port")
