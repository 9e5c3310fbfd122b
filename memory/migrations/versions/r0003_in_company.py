"""A record says whether its methods were a plan of their own, or part of a larger one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from memory.company import shares

revision = "0003"
down_revision = "0002"

_RECORDS = sa.table(
    "roofclimb_records",
    *(sa.column(name) for name in ("id", "run", "iteration", "family", "backend", "arch", "shape_class", "in_company")),
)
_METHODS = sa.table("roofclimb_methods", sa.column("record_id"), sa.column("method"))


def upgrade() -> None:
    """Add it; of what was written before it is told from what stands beside it."""
    op.add_column("roofclimb_records", sa.Column("in_company", sa.Boolean, nullable=False, server_default=sa.false()))
    connection = op.get_bind()
    methods: dict[int, set[str]] = {}
    for number, method in connection.execute(sa.select(_METHODS.c.record_id, _METHODS.c.method)):
        methods.setdefault(number, set()).add(method)
    c = _RECORDS.c
    rows = connection.execute(
        sa.select(c.id, c.run, c.iteration, c.family, c.backend, c.arch, c.shape_class).order_by(c.id)
    ).all()
    found = shares((tuple(row[1:]), frozenset(methods.get(row[0], ()))) for row in rows)
    for row, is_share in zip(rows, found, strict=True):
        if is_share:
            connection.execute(sa.update(_RECORDS).where(c.id == row[0]).values(in_company=sa.true()))
