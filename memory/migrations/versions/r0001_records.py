"""The first tables: records, their methods, and a version of our own."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make them."""
    op.create_table(
        "roofclimb_records",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("created", sa.String(40), nullable=False),
        sa.Column("run", sa.String(200), nullable=False),
        sa.Column("iteration", sa.Integer, nullable=False),
        sa.Column("family", sa.String(200), nullable=False),
        sa.Column("backend", sa.String(200), nullable=False),
        sa.Column("arch", sa.String(200), nullable=False),
        sa.Column("shape_class", sa.String(200), nullable=False),
        sa.Column("fingerprint", sa.String(16), nullable=False, index=True),
        sa.Column("parameters", sa.JSON, nullable=False),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.Column("effect", sa.Double),
        sa.Column("effect_low", sa.Double),
        sa.Column("effect_high", sa.Double),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("versions", sa.JSON, nullable=False),
        sa.Column("lesson", sa.Text, nullable=False),
        sa.UniqueConstraint(
            *("run", "iteration", "fingerprint", "family", "backend", "arch", "shape_class"), name="one_outcome"
        ),
        sa.CheckConstraint("outcome IN ('positive', 'negative', 'rejected')", name="known_outcome"),
        sa.CheckConstraint("(outcome = 'rejected') = (effect IS NULL)", name="effect_is_measured"),
        sa.Index("by_scope", "family", "backend", "arch", "shape_class"),
    )
    op.create_table(
        "roofclimb_methods",
        sa.Column("record_id", sa.Integer, sa.ForeignKey("roofclimb_records.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("method", sa.String(200), nullable=False, index=True),
    )
    schema = op.create_table(
        "roofclimb_schema",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.CheckConstraint("id = 1", name="one_row"),
    )
    op.bulk_insert(schema, [{"id": 1, "version": 1}])
