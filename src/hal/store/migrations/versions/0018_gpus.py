"""Which GPUs of its nodes an attempt holds.

Revises: 0017
"""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """No earlier attempt was given certain ones."""
    op.add_column("attempts", sa.Column("gpus", sa.Text))


def downgrade() -> None:
    """They are counted again."""
    op.drop_column("attempts", "gpus")
