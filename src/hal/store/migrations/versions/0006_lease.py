"""The leader's lease, and where the leader can be reached.

Revises: 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

INT = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """A former leader has no lease, so its leadership has ended. The row exists from now on, so that takers can lock
    it."""
    op.add_column("leader", sa.Column("expires_ms", INT, nullable=False, server_default=sa.text("0")))
    for name in ("rest", "wire"):
        op.add_column("leader", sa.Column(name, sa.Text, nullable=False, server_default=sa.text("''")))
    op.execute(
        "INSERT INTO leader (id, epoch, holder, taken_ms) SELECT 1, 0, '', 0 WHERE NOT EXISTS (SELECT 1 FROM leader)"
    )


def downgrade() -> None:
    """Leaders have no lease."""
    for name in ("wire", "rest", "expires_ms"):
        op.drop_column("leader", name)
