"""A record says whether its methods were a plan of their own, or part of a larger one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add it; what was written before goes on to count as a plan of its own."""
    op.add_column("roofclimb_records", sa.Column("in_company", sa.Boolean, nullable=False, server_default=sa.false()))
