"""`memory stats` and `memory prune`, and what `memory import` reads: the upkeep of a memory."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from agent.errors import ConfigError
from memory.exchange import ExchangeError, parse
from memory.legacy import LegacyError, is_legacy, read_legacy
from memory.migrate import HEAD
from memory.scope import describe
from memory.types import StoredRecord
from memory.wire import Entry
from prompts.catalogue import load_catalogue


def read_document(text: bytes, name: str, written: datetime, arch: str | None) -> tuple[Sequence[Entry], Sequence[str]]:
    """The checked entries of an exchange document or of an older tool's file, and what was left out of the latter.

    Raises:
        ConfigError: it is neither, or holds something that is not valid.
    """
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    try:
        if is_legacy(document):
            found = read_legacy(document, written=written, arch=arch, canonical=canonical_ids())
            return found.entries, found.left_out
        if arch is not None:
            raise ConfigError("--arch is for a file of the older layout; this one names its architectures itself")
        return parse(text), ()
    except (ExchangeError, LegacyError) as error:
        raise ConfigError(f"{name}: {error}; nothing was imported") from error


def canonical_ids() -> Callable[[str], str]:
    """What turns an older tool's tag into a method id: the catalogue's that ends so, else the tag in our letters."""
    endings: dict[str, list[str]] = {}
    for method_id in dict.fromkeys(m.id for m in load_catalogue().methods):
        endings.setdefault(method_id.partition(".")[2], []).append(method_id)

    def canonical(tag: str) -> str:
        word = "_".join("".join(c if c.isascii() and c.isalnum() else " " for c in tag.lower()).split())[:100]
        ids = endings.get(word, [])
        return ids[0] if len(ids) == 1 else word or "unnamed"

    return canonical


def to_prune(
    records: Sequence[StoredRecord], older_than_days: float | None, ids: Sequence[int], now: datetime | None = None
) -> tuple[StoredRecord, ...]:
    """Those of the records that are to be forgotten.

    Args:
        records: that match the filters.
        older_than_days: only what was written before; None for any age.
        ids: only these; none for all.
        now: None for the present.
    """
    limit = None
    if older_than_days is not None:
        limit = (now or datetime.now(timezone.utc)) - timedelta(days=older_than_days)
    return tuple(
        stored
        for stored in records
        if (limit is None or datetime.fromisoformat(stored.created) < limit) and (not ids or stored.id in ids)
    )


def statistics(records: Sequence[StoredRecord], url: str) -> tuple[dict[str, Any], str]:
    """How much a memory holds and of what, as data and as text."""
    outcomes: Counter[str] = Counter(stored.record.outcome for stored in records)
    scopes: dict[str, Counter[str]] = {}
    for stored in records:
        scopes.setdefault(describe(stored.record.scope), Counter())[stored.record.outcome] += 1
    methods = Counter(method for stored in records for method in stored.record.strategy.methods)
    times = sorted(stored.created for stored in records)
    runs = {stored.record.run for stored in records}
    data: dict[str, Any] = {
        "url": url,
        "revision": HEAD,
        "records": len(records),
        "runs": len(runs),
        "outcomes": dict(outcomes),
        "together": sum(stored.record.together for stored in records),
        "lessons": sum(bool(stored.record.lesson) for stored in records),
        "oldest": times[0] if times else None,
        "newest": times[-1] if times else None,
        "scopes": {scope: dict(found) for scope, found in sorted(scopes.items())},
        "methods": dict(methods.most_common()),
    }
    lines = [f"{url}: records {len(records)}, runs {len(runs)}"]
    if records:
        lines.append(f"  from {times[0][:19]} to {times[-1][:19]}, revision {HEAD}")
        lines.append(f"  {_counts(outcomes)}; {data['together']} only together, {data['lessons']} with a lesson")
        lines += [f"  {scope}: {_counts(found)}" for scope, found in sorted(scopes.items())]
        lines += [f"  {method}: {count}" for method, count in methods.most_common(10)]
    return data, "\n".join(lines)


def _counts(outcomes: Counter[str]) -> str:
    return ", ".join(f"{outcomes[name]} {name}" for name in ("positive", "negative", "rejected") if outcomes[name])
