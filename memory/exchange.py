"""Strategy memory as a JSON document, for people, for backups and for another machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from memory.company import shares
from memory.store import Store
from memory.types import StoredRecord
from memory.wire import Entry, entry_of, first_error


class ExchangeError(Exception):
    """A document that cannot be imported. One line: which entry (from 0), which field, what is wrong."""


class Document(BaseModel):
    """The exchange document. Ids stay out of it: they belong to one database."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    format: Literal["roofclimb-memory"]
    version: Literal[1, 2, 3]
    records: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did. `known` entries were there already and kept their content."""

    new: int
    known: int


def export_text(records: Iterable[StoredRecord]) -> str:
    """The records as an exchange document, ending in a newline."""
    entries = tuple(entry_of(stored.record, datetime.fromisoformat(stored.created)) for stored in records)
    document = Document(format="roofclimb-memory", version=3, records=entries)
    return document.model_dump_json(indent=2) + "\n"


def parse(text: str | bytes) -> tuple[Entry, ...]:
    """The checked entries of a document.

    Raises:
        ExchangeError: not JSON, not ours, a newer version, an unknown, missing or wrong field.
    """
    try:
        found = Document.model_validate_json(text)
    except ValidationError as error:
        raise ExchangeError(_line(error.errors())) from error
    if found.version >= 3:
        return found.records
    told = shares(((e.run, e.iteration, e.scope), frozenset(e.strategy.methods)) for e in found.records)
    return tuple(e.model_copy(update={"in_company": x}) for e, x in zip(found.records, told, strict=True))


def import_entries(store: Store, entries: Sequence[Entry]) -> Imported:
    """Write all entries with the times they carry, or none. Importing again changes nothing.

    Raises:
        StoreError: the database refused; nothing was written.
    """
    _, new = store.restore(entries)
    return Imported(new=new, known=len(entries) - new)


def _line(errors: list[ErrorDetails]) -> str:
    # A document of another kind or version is wrong in many places; that it is another kind is what to say.
    errors.sort(key=lambda error: error["loc"][:1] not in (("format",), ("version",)))
    place = errors[0]["loc"]
    if len(place) < 2:
        return first_error(errors)
    return f"entry {place[1]}, {first_error([{**errors[0], 'loc': place[2:]}])}"
