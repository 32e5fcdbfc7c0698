"""What keeps new work away from a node, and what its agent told about it.

Revises: 0004
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nothing keeps work away from the nodes that are known."""
    op.add_column("nodes", sa.Column("about", sa.Text, nullable=False, server_default="{}"))


def downgrade() -> None:
    """Who closed a node, and why, is lost."""
    op.drop_column("nodes", "about")
