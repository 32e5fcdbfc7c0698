"""Versions of the policy. They contain what hal.toml declared, so the tables for that are dropped.

Revises: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

INT = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """The controller imports hal.toml as version 1 when it starts."""
    op.create_table(
        "policies",
        sa.Column("version", INT, primary_key=True, autoincrement=False),
        sa.Column("at_ms", INT, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("note", sa.Text, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
    )
    for name in ("queues", "accounts", "users"):
        op.drop_table(name)


def downgrade() -> None:
    """All versions of the policy are lost."""
    op.create_table(
        "queues", sa.Column("name", sa.Text, primary_key=True), sa.Column("config", sa.Text, nullable=False)
    )
    for name in ("accounts", "users"):
        op.create_table(name, sa.Column("name", sa.Text, primary_key=True))
    op.drop_table("policies")
