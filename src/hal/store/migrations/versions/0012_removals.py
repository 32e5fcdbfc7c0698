"""When attempts or outputs of ended jobs were removed, and by which rule.

Revises: 0011
"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

INT = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Of what was removed before, it is not known."""
    op.create_table(
        "removals",
        sa.Column("job_id", INT, sa.ForeignKey("jobs.id"), primary_key=True, autoincrement=False),
        sa.Column("at_ms", INT, nullable=False),
        sa.Column("rule", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    """What was removed stays removed."""
    op.drop_table("removals")
