"""The one checked form of a record outside Python: database rows and exchange files are read and written through it."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Annotated, Literal

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from memory.fingerprint import fingerprint
from memory.types import Record, Scope, StoredRecord, Strategy

LESSON_WORDS = 60

Name = Annotated[str, Field(min_length=1, max_length=200)]
Effect = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class ScopeEntry(_Model):
    """A `Scope`."""

    family: Name
    backend: Name
    arch: Name
    shape_class: Name

    @field_validator("*")
    @classmethod
    def _printable(cls, value: str) -> str:
        return _printable(value)


class StrategyEntry(_Model):
    """A `Strategy`: at least one method, none twice."""

    methods: Annotated[tuple[Name, ...], Field(min_length=1)]
    parameters: dict[str, dict[str, JsonValue]] = {}

    @field_validator("methods")
    @classmethod
    def _distinct(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) < len(value):
            raise _problem("a method is listed twice")
        return tuple(_printable(method) for method in value)


class Entry(_Model):
    """A record with the time it was written and its fingerprint, which has to be the one its strategy gives.

    A check across fields belongs to the later field, so that a message names one.
    """

    created: AwareDatetime
    scope: ScopeEntry
    strategy: StrategyEntry
    fingerprint: str
    outcome: Literal["positive", "negative", "rejected"]
    effect: Effect | None
    effect_low: Effect | None
    effect_high: Effect | None
    reason: str
    run: Name
    iteration: Annotated[int, Field(ge=1)]
    versions: dict[str, str] = {}
    lesson: str = ""

    @field_validator("fingerprint")
    @classmethod
    def _of_the_strategy(cls, value: str, info: ValidationInfo) -> str:
        scope, strategy = info.data.get("scope"), info.data.get("strategy")
        if isinstance(scope, ScopeEntry) and isinstance(strategy, StrategyEntry):
            expected = fingerprint(scope.backend, Strategy(strategy.methods, strategy.parameters))
            if value != expected:
                raise _problem(f"is {value!r}, but this strategy's fingerprint is {expected!r}")
        return value

    @field_validator("effect")
    @classmethod
    def _fits_the_outcome(cls, value: float | None, info: ValidationInfo) -> float | None:
        outcome = info.data.get("outcome")
        if outcome == "rejected" and value is not None:
            raise _problem("a rejected strategy was never measured, so it has no effect")
        if outcome in ("positive", "negative") and value is None:
            raise _problem(f"a {outcome} outcome comes from a measurement, so its effect is needed")
        if outcome == "positive" and value is not None and value <= 1:
            raise _problem(f"a positive outcome is faster than before, and {value:g} is not")
        return value

    @field_validator("effect_high")
    @classmethod
    def _is_an_interval(cls, high: float | None, info: ValidationInfo) -> float | None:
        if not {"effect", "effect_low"} <= info.data.keys():
            return high
        effect, low = info.data["effect"], info.data["effect_low"]
        if (low is None) != (high is None):
            raise _problem("an interval needs both its ends or none")
        if low is not None and high is not None and (effect is None or not low <= effect <= high):
            raise _problem(f"the interval [{low:g}, {high:g}] does not hold the effect {effect}")
        return high

    @field_validator("run")
    @classmethod
    def _run(cls, value: str) -> str:
        return _printable(value)

    @field_validator("lesson")
    @classmethod
    def _short(cls, value: str) -> str:
        if len(value.split()) > LESSON_WORDS:
            raise _problem(f"a lesson has at most {LESSON_WORDS} words")
        return value

    @property
    def created_text(self) -> str:
        """When, in UTC, in the one form that sorts as text."""
        return self.created.astimezone(timezone.utc).isoformat(timespec="microseconds")

    def record(self) -> Record:
        """The record inside."""
        scope = self.scope
        return Record(
            scope=Scope(scope.family, scope.backend, scope.arch, scope.shape_class),
            strategy=Strategy(self.strategy.methods, self.strategy.parameters),
            outcome=self.outcome,
            effect=self.effect,
            effect_low=self.effect_low,
            effect_high=self.effect_high,
            reason=self.reason,
            run=self.run,
            iteration=self.iteration,
            versions=self.versions,
            lesson=self.lesson,
        )

    def stored(self, record_id: int) -> StoredRecord:
        """The record with its id, fingerprint and time."""
        return StoredRecord(record_id, self.fingerprint, self.created_text, self.record())


def entry_of(record: Record, created: datetime) -> Entry:
    """A record ready to be written: reason and lesson on one line, the lesson cut to 60 words.

    Raises:
        ValueError: one line that names the field, for a record that no outcome can have.
    """
    scope, strategy = record.scope, record.strategy
    try:
        # Through JSON, so that what is compared, written and read back is one and the same.
        parameters = json.loads(json.dumps({name: dict(given) for name, given in strategy.parameters.items()}))
        return Entry(
            created=created,
            fingerprint=fingerprint(scope.backend, strategy),
            scope=ScopeEntry(
                family=scope.family, backend=scope.backend, arch=scope.arch, shape_class=scope.shape_class
            ),
            strategy=StrategyEntry(methods=tuple(strategy.methods), parameters=parameters),
            outcome=record.outcome,
            effect=record.effect,
            effect_low=record.effect_low,
            effect_high=record.effect_high,
            reason=_one_line(record.reason),
            run=record.run,
            iteration=record.iteration,
            versions=dict(record.versions),
            lesson=_shortened(record.lesson),
        )
    except ValidationError as error:
        raise ValueError(f"this record cannot be remembered: {first_error(error.errors())}") from error
    except TypeError as error:
        raise ValueError(f"this record cannot be remembered: field strategy.parameters: {error}") from error


def first_error(errors: list[ErrorDetails]) -> str:
    """One line for the first of pydantic's errors: `field effect: …`, or the message alone where no field is named."""
    error = errors[0]
    place = ".".join(str(part) for part in error["loc"])
    return f"field {place}: {error['msg']}" if place else error["msg"]


def _problem(message: str) -> PydanticCustomError:
    return PydanticCustomError("record", "{message}", {"message": message})


def _printable(value: str) -> str:
    if not value.isprintable() or value != value.strip():
        raise _problem("holds line breaks, control characters or blanks at its ends")
    return value


def _one_line(text: str) -> str:
    """Compiler output may hold undecodable bytes and NUL, which databases refuse."""
    return " ".join(text.encode("utf-8", "replace").decode("utf-8").replace("\0", " ").split())


def _shortened(lesson: str) -> str:
    words = _one_line(lesson).split(" ")
    return " ".join(words) if len(words) <= LESSON_WORDS else " ".join(words[:LESSON_WORDS]) + "…"
