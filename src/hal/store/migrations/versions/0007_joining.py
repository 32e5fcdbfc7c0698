"""Join tokens, and the certificates issued to nodes.

Revises: 0006
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

INT = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Nobody has joined over the network so far."""
    op.create_table(
        "join_tokens",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("secret_hash", sa.Text, nullable=False),
        sa.Column("node", sa.Text, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("created_ms", INT, nullable=False),
        sa.Column("expires_ms", INT, nullable=False),
        sa.Column("used_ms", INT),
        sa.Column("used_by", sa.Text, nullable=False),
        sa.Column("revoked_ms", INT),
    )
    op.create_table(
        "certificates",
        sa.Column("serial", sa.Text, primary_key=True),
        sa.Column("node", sa.Text, nullable=False),
        sa.Column("issued_ms", INT, nullable=False),
        sa.Column("expires_ms", INT, nullable=False),
        sa.Column("revoked_ms", INT),
    )


def downgrade() -> None:
    """Every node on another machine must join again."""
    op.drop_table("certificates")
    op.drop_table("join_tokens")
