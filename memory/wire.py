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
from memory.sanitise import LONGEST_LESSON, LONGEST_PARAMETERS, LONGEST_REASON, LONGEST_RUN, LONGEST_VALUE, clean_text
from memory.types import Record, Scope, StoredRecord, Strategy

LESSON_WORDS = 60

Name = Annotated[str, Field(min_length=1, max_length=200)]
# Prompts show them: a name is a word, and no sentence.
Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]*$", max_length=100)]
Effect = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class ScopeEntry(_Model):
    """A `Scope`."""

    family: Word
    backend: Word
    arch: Word
    shape_class: Word


class StrategyEntry(_Model):
    """A `Strategy`: at least one method, none twice."""

    methods: Annotated[tuple[Word, ...], Field(min_length=1, max_length=64)]
    parameters: dict[str, dict[str, JsonValue]] = {}

    @field_validator("methods")
    @classmethod
    def _distinct(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) < len(value):
            raise _problem("a method is listed twice")
        return value

    @field_validator("parameters")
    @classmethod
    def _bounded(cls, value: dict[str, dict[str, JsonValue]]) -> dict[str, dict[str, JsonValue]]:
        if len(json.dumps(value)) > LONGEST_PARAMETERS:
            raise _problem(f"takes more than {LONGEST_PARAMETERS} characters")
        return value


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
    noise: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    base_ms: Effect | None = None
    ms: Effect | None = None
    together: bool = False
    in_company: bool = False

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
        if clean_text(value, LONGEST_RUN) != value:
            raise _problem("is no run's name: it holds control characters or marks of a prompt, or is too long")
        return value

    @field_validator("reason")
    @classmethod
    def _reason(cls, value: str) -> str:
        return clean_text(value, LONGEST_REASON)

    @field_validator("versions")
    @classmethod
    def _versions(cls, value: dict[str, str]) -> dict[str, str]:
        return {clean_text(k, LONGEST_VALUE): clean_text(v, LONGEST_RUN) for k, v in list(value.items())[:20]}

    @field_validator("lesson")
    @classmethod
    def _short(cls, value: str) -> str:
        if len(value.split()) > LESSON_WORDS:
            raise _problem(f"a lesson has at most {LESSON_WORDS} words")
        return clean_text(value, LONGEST_LESSON)

    @field_validator("together")
    @classmethod
    def _of_several(cls, value: bool, info: ValidationInfo) -> bool:
        strategy = info.data.get("strategy")
        if value and isinstance(strategy, StrategyEntry) and len(strategy.methods) < 2:
            raise _problem("one method cannot be needed together with itself")
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
            noise=self.noise,
            base_ms=self.base_ms,
            ms=self.ms,
            together=self.together,
            in_company=self.in_company,
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
        # Through JSON, so that what is compared, written and read back is the same; a server knows no NaN in it.
        given = json.dumps({name: dict(values) for name, values in strategy.parameters.items()})
        parameters = json.loads(given, parse_constant=lambda constant: str(float(constant)))
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
            reason=record.reason,
            run=clean_text(record.run, LONGEST_RUN) or "unnamed",
            iteration=record.iteration,
            versions=dict(record.versions),
            lesson=_shortened(record.lesson),
            noise=record.noise,
            base_ms=record.base_ms,
            ms=record.ms,
            together=record.together,
            in_company=record.in_company,
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


def _shortened(lesson: str) -> str:
    words = lesson.split()
    return " ".join(words) if len(words) <= LESSON_WORDS else " ".join(words[:LESSON_WORDS]) + "…"
