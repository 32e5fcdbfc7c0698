"""Join tokens with which several machines can join, and labels that those get.

Revises: 0010
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

INT = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Every token so far is for one machine, and gives it no label."""
    op.add_column("join_tokens", sa.Column("uses", INT, nullable=False, server_default=sa.text("1")))
    op.add_column("join_tokens", sa.Column("used", INT, nullable=False, server_default=sa.text("0")))
    op.add_column("join_tokens", sa.Column("labels", sa.Text, nullable=False, server_default="{}"))
    op.execute("UPDATE join_tokens SET used = 1 WHERE used_ms IS NOT NULL")
    op.add_column("certificates", sa.Column("token", sa.Text, nullable=False, server_default=sa.text("''")))
    op.add_column("certificates", sa.Column("labels", sa.Text, nullable=False, server_default="{}"))


def downgrade() -> None:
    """A token that was used is used up; nodes lose the labels of their tokens when they dial again."""
    for table, name in (
        ("certificates", "labels"),
        ("certificates", "token"),
        ("join_tokens", "labels"),
        ("join_tokens", "used"),
        ("join_tokens", "uses"),
    ):
        op.drop_column(table, name)
