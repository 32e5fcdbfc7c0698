"""When and for whom an attempt was taken back.

Revises: 0003
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """What runs now was never taken back."""
    op.add_column("attempts", sa.Column("taking", sa.Text))


def downgrade() -> None:
    """Who was taken back, and how long it was suspended, is lost."""
    op.drop_column("attempts", "taking")
