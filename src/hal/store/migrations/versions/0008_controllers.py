"""The controllers that share a store; each announces itself.

Revises: 0007
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

INT = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Controllers announce themselves when they start."""
    op.create_table(
        "controllers",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("rest", sa.Text, nullable=False),
        sa.Column("wire", sa.Text, nullable=False),
        sa.Column("pid", INT, nullable=False),
        sa.Column("epoch", INT, nullable=False),
        sa.Column("since_ms", INT, nullable=False),
        sa.Column("heard_ms", INT, nullable=False),
        sa.Column("secret_hash", sa.Text, nullable=False),
    )


def downgrade() -> None:
    """Drop the table; it is not needed to run jobs."""
    op.drop_table("controllers")
