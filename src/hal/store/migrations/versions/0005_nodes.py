"""What keeps new work away from a node, and the facts that its agent reported.

Revises: 0004
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nothing keeps work away from the known nodes."""
    op.add_column("nodes", sa.Column("about", sa.Text, nullable=False, server_default="{}"))


def downgrade() -> None:
    """Lose who closed a node, and why."""
    op.drop_column("nodes", "about")
