"""The tables of strategy memory, and how an entry becomes a row and back."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, CheckConstraint, ForeignKey, Index, String, Text, UniqueConstraint, false
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from memory.wire import Entry

REVISION_TABLE = "roofclimb_revision"
FIRST_SCHEMA_TABLE = "roofclimb_schema"
"""What said the version before there were revisions."""


class Base(DeclarativeBase):
    """All tables; their names carry a prefix because a fleet's database may hold other things too."""


class MethodRow(Base):
    """One method of a record's strategy, in the strategy's order."""

    __tablename__ = "roofclimb_methods"

    record_id: Mapped[int] = mapped_column(ForeignKey("roofclimb_records.id", ondelete="CASCADE"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    method: Mapped[str] = mapped_column(String(200), index=True)


class RecordRow(Base):
    """One record. `created` is UTC, ISO 8601 with microseconds, so that it sorts as text."""

    __tablename__ = "roofclimb_records"

    id: Mapped[int] = mapped_column(primary_key=True)
    created: Mapped[str] = mapped_column(String(40))
    run: Mapped[str] = mapped_column(String(200))
    iteration: Mapped[int]
    family: Mapped[str] = mapped_column(String(200))
    backend: Mapped[str] = mapped_column(String(200))
    arch: Mapped[str] = mapped_column(String(200))
    shape_class: Mapped[str] = mapped_column(String(200))
    fingerprint: Mapped[str] = mapped_column(String(16), index=True)
    parameters: Mapped[dict[str, dict[str, Any]]] = mapped_column(JSON)
    outcome: Mapped[str] = mapped_column(String(16))
    effect: Mapped[float | None]
    effect_low: Mapped[float | None]
    effect_high: Mapped[float | None]
    reason: Mapped[str] = mapped_column(Text)
    versions: Mapped[dict[str, str]] = mapped_column(JSON)
    lesson: Mapped[str] = mapped_column(Text)
    noise: Mapped[float | None]
    base_ms: Mapped[float | None]
    ms: Mapped[float | None]
    together: Mapped[bool] = mapped_column(server_default=false())
    in_company: Mapped[bool] = mapped_column(server_default=false())

    methods: Mapped[list[MethodRow]] = relationship(order_by=MethodRow.position, lazy="selectin")

    __table_args__ = (
        # One outcome of one strategy in one iteration: a resumed run that writes again changes nothing.
        UniqueConstraint(
            *("run", "iteration", "fingerprint", "family", "backend", "arch", "shape_class"), name="one_outcome"
        ),
        CheckConstraint("outcome IN ('positive', 'negative', 'rejected')", name="known_outcome"),
        CheckConstraint("(outcome = 'rejected') = (effect IS NULL)", name="effect_is_measured"),
        Index("by_scope", "family", "backend", "arch", "shape_class"),
    )


def row_of(entry: Entry) -> RecordRow:
    """The row that holds the entry."""
    return RecordRow(
        created=entry.created_text,
        run=entry.run,
        iteration=entry.iteration,
        family=entry.scope.family,
        backend=entry.scope.backend,
        arch=entry.scope.arch,
        shape_class=entry.scope.shape_class,
        fingerprint=entry.fingerprint,
        parameters=entry.strategy.parameters,
        outcome=entry.outcome,
        effect=entry.effect,
        effect_low=entry.effect_low,
        effect_high=entry.effect_high,
        reason=entry.reason,
        versions=entry.versions,
        lesson=entry.lesson,
        noise=entry.noise,
        base_ms=entry.base_ms,
        ms=entry.ms,
        together=entry.together,
        in_company=entry.in_company,
        methods=[MethodRow(position=at, method=method) for at, method in enumerate(entry.strategy.methods)],
    )


def entry_of_row(row: RecordRow) -> Entry:
    """The entry a row holds. Raises ValueError (pydantic's, but for the time) for a row that no `row_of` made."""
    return Entry.model_validate(
        {
            "created": datetime.fromisoformat(row.created),
            "scope": {
                "family": row.family,
                "backend": row.backend,
                "arch": row.arch,
                "shape_class": row.shape_class,
            },
            "strategy": {"methods": tuple(method.method for method in row.methods), "parameters": row.parameters},
            "fingerprint": row.fingerprint,
            "outcome": row.outcome,
            "effect": row.effect,
            "effect_low": row.effect_low,
            "effect_high": row.effect_high,
            "reason": row.reason,
            "run": row.run,
            "iteration": row.iteration,
            "versions": row.versions,
            "lesson": row.lesson,
            "noise": row.noise,
            "base_ms": row.base_ms,
            "ms": row.ms,
            "together": row.together,
            "in_company": row.in_company,
        }
    )
