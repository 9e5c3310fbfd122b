"""A record keeps its run's noise, both times, and whether its methods help only together; Alembic keeps the version."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add them; what was written before has none of them."""
    for name in ("noise", "base_ms", "ms"):
        op.add_column("roofclimb_records", sa.Column(name, sa.Double))
    op.add_column("roofclimb_records", sa.Column("together", sa.Boolean, nullable=False, server_default=sa.false()))
    op.drop_table("roofclimb_schema")
