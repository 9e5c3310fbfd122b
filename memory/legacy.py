"""An older tool's memory, `global_strategy_memory.json`, read as records of ours; what it cannot show teaches nothing.

Its layout: `version`, `scopes` -> scope key -> `meta` (backend, arch, source_file, dims_args) and the buckets
`positive`, `negative`, `rejected` -> fingerprint -> `tags`, `first_iteration`, `last_iteration`, `count`,
`last_outcome`, `last_reason`, `evidence` (`baseline_median_ms`, `current_median_ms`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import PurePosixPath
from typing import Annotated, Any

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from memory.faults import is_environment
from memory.scope import derive_family, shape_class
from memory.types import Outcome, Record, Scope, Strategy
from memory.wire import Entry, entry_of, first_error

NOISE = 0.02
"""Its medians come from one run each, with no interval: ratios within this are no evidence."""

_BACKENDS = ("cuda", "cutlass", "triton", "cpp")
# Reasons that say something of the kernel; all others are faults of the machine or the tool, or cannot be told apart.
_KERNEL_FAULTS = ("correctness_failed", "compile", "build_failed")
_PLACEHOLDERS = frozenset({"baseline", "unlabeled_strategy", "fill_me_tag"})
_DIM = re.compile(r"-{0,2}([A-Za-z_]\w*)=(\d{1,18})")
_ARCH = re.compile(r"sm_\d+[a-z]?|x86_64|aarch64")


class LegacyError(Exception):
    """A file of that layout that cannot be read. One line: which scope, which field, what is wrong."""


class _Loose(BaseModel):
    # Its versions added fields as they went.
    model_config = ConfigDict(frozen=True, extra="ignore")


def _none_is_empty(value: object) -> object:
    return {} if value is None else value


class _Evidence(_Loose):
    base_ms: Annotated[float | None, Field(validation_alias=AliasChoices("baseline_median_ms", "baseline_ms"))] = None
    ms: Annotated[float | None, Field(validation_alias=AliasChoices("current_median_ms", "current_ms"))] = None


class _Item(_Loose):
    tags: tuple[str, ...]
    first_iteration: int = 0
    last_iteration: int = 0
    count: int = 1
    last_reason: str = ""
    evidence: Annotated[_Evidence, BeforeValidator(_none_is_empty)] = _Evidence()


_Bucket = Annotated[dict[str, _Item], BeforeValidator(_none_is_empty)]


class _Scope(_Loose):
    meta: Annotated[dict[str, Any], BeforeValidator(_none_is_empty)] = {}
    positive: _Bucket = {}
    negative: _Bucket = {}
    rejected: _Bucket = {}


class _Document(_Loose):
    version: int = 1
    updated_at: str = ""
    scopes: dict[str, _Scope]


@dataclass(frozen=True, slots=True)
class Legacy:
    """What a file of that layout holds: entries to import, and in one line each what was left out and why."""

    entries: tuple[Entry, ...]
    left_out: tuple[str, ...]


def is_legacy(document: object) -> bool:
    """Whether a JSON document looks like one of that layout."""
    return isinstance(document, dict) and "format" not in document and isinstance(document.get("scopes"), dict)


def read_legacy(
    document: Mapping[str, Any], *, written: datetime, arch: str | None, canonical: Callable[[str], str]
) -> Legacy:
    """The entries of a document.

    Args:
        document: the parsed JSON.
        written: when it was written, if it does not say so itself.
        arch: the architecture of scopes that name none.
        canonical: the method id that a tag stands for.

    Raises:
        LegacyError: a wrong or missing field.
    """
    try:
        parsed = _Document.model_validate(document)
    except ValidationError as error:
        raise LegacyError(first_error(error.errors())) from error
    created = _time(parsed.updated_at) or written
    entries: list[Entry] = []
    left_out: list[str] = []
    for key, scope in parsed.scopes.items():
        where = _scope(key, scope.meta, arch)
        if isinstance(where, str):
            left_out.append(f"scope {key[:80]!r}: {where}")
            continue
        run = f"imported_{hashlib.sha1(key.encode('utf-8', 'replace'), usedforsecurity=False).hexdigest()[:8]}"
        found: dict[tuple[str, int], Entry] = {}
        for outcome, item in _in_order(scope):
            made = _record(where, run, outcome, item, canonical)
            if isinstance(made, str):
                left_out.append(f"{outcome} {' + '.join(item.tags)[:80]!r}: {made}")
                continue
            try:
                entry = entry_of(made, created)
            except ValueError as error:
                raise LegacyError(f"scope {key[:80]!r}: {error}") from error
            found[entry.fingerprint, entry.iteration] = entry
        entries += found.values()
    return Legacy(tuple(entries), tuple(left_out))


def _in_order(scope: _Scope) -> Sequence[tuple[Outcome, _Item]]:
    """All items, the later iteration last: it is what the tool came to believe."""
    buckets: tuple[tuple[Outcome, dict[str, _Item]], ...] = (
        ("positive", scope.positive),
        ("negative", scope.negative),
        ("rejected", scope.rejected),
    )
    return sorted(((o, i) for o, bucket in buckets for i in bucket.values()), key=lambda found: found[1].last_iteration)


def _scope(key: str, meta: Mapping[str, Any], arch: str | None) -> Scope | str:
    """The scope, or why there is none."""
    parts = key.split("__")
    backend = str(meta.get("backend") or parts[0]).lower()
    if backend not in _BACKENDS:
        return f"names no backend of ours ({', '.join(_BACKENDS)})"
    said = str(meta.get("arch") or (parts[3] if len(parts) > 3 else ""))
    found = said if _ARCH.fullmatch(said) else arch
    if found is None:
        return "names no architecture; give one with --arch"
    source = str(meta.get("kernel_type") or meta.get("source_file") or (parts[1] if len(parts) > 1 else key))
    return Scope(derive_family(PurePosixPath(source.replace("\\", "/")).stem), backend, found, shape_class(_dims(meta)))


def _dims(meta: Mapping[str, Any]) -> dict[str, int]:
    given = meta.get("dims_args") or meta.get("dims") or {}
    pairs = [f"{name}={value}" for name, value in given.items()] if isinstance(given, Mapping) else list(given)
    matches = [match for pair in pairs if (match := _DIM.fullmatch(str(pair)))]
    return {match[1]: int(match[2]) for match in matches}


def _record(where: Scope, run: str, outcome: Outcome, item: _Item, canonical: Callable[[str], str]) -> Record | str:
    """The record, or why the item teaches nothing."""
    tags = [tag for tag in item.tags if tag.strip()]
    if not tags or set(tags) & _PLACEHOLDERS:
        return "names no strategy"
    reason = item.last_reason
    effect = base_ms = ms = None
    if outcome == "rejected":
        if is_environment(reason) or not any(fault in reason for fault in _KERNEL_FAULTS):
            return f"{reason or 'no reason'}: not shown to be the kernel's fault"
    else:
        base_ms, ms = item.evidence.base_ms, item.evidence.ms
        if not base_ms or not ms or base_ms < 0 or ms < 0:
            return "no measurement against the kernel it was applied to"
        effect = base_ms / ms
        if 1 / (1 + NOISE) < effect < 1 + NOISE:
            return f"{base_ms:g} to {ms:g} ms is within noise ({NOISE:.0%})"
        outcome = "positive" if effect > 1 else "negative"
        reason = f"{reason}, {base_ms:g} to {ms:g} ms, one median each"
    return Record(
        scope=where,
        strategy=Strategy(tuple(dict.fromkeys(canonical(tag) for tag in tags))),
        outcome=outcome,
        effect=effect,
        effect_low=None,
        effect_high=None,
        reason=f"imported: {reason}; seen {item.count} times",
        run=run,
        iteration=max(1, item.last_iteration),
        noise=NOISE,
        base_ms=base_ms,
        ms=ms,
    )


def _time(text: str) -> datetime | None:
    """When it says that it was written; a time without a zone is taken for UTC."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=timezone.utc)
