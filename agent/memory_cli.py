"""`memory list|show|explain|export|import|prune|stats`: strategy memory on the command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agent.command import OneLineGroup, Result, command
from agent.errors import ConfigError

if TYPE_CHECKING:
    from memory.store import Store
    from memory.types import Outcome, StoredRecord

# SQLAlchemy and pydantic are imported by the commands: `--help` of the whole program stays fast.


class _NothingYet(ConfigError):
    """There is no memory yet: an error for those who want a record, an empty list for those who list."""


def _default_url() -> str:
    from memory.store import DEFAULT_URL

    return DEFAULT_URL


_url = click.option(
    "--url",
    default=_default_url,
    help="SQLAlchemy URL of the memory; by default .roofclimb/memory.db in the working directory.",
)


@click.group("memory", cls=OneLineGroup)
def memory_group() -> None:
    """What earlier runs learned: which strategies worked where, and which did not."""


@memory_group.command("list")
@_url
@click.option("--family", help="Only this operator family (gemm, softmax, …).")
@click.option("--backend", help="Only this backend (cpp, cuda, cutlass, triton).")
@click.option("--arch", help="Only this architecture (x86_64, sm_90, …).")
@click.option("--outcome", type=click.Choice(["positive", "negative", "rejected"]), help="Only this outcome.")
@click.option("--method", help="Only strategies with this method.")
@click.option("--run", help="Only this run.")
@click.option("--limit", type=click.IntRange(min=1), help="Only the newest so many.")
@command
def list_records(
    url: str,
    family: str | None,
    backend: str | None,
    arch: str | None,
    outcome: Outcome | None,
    method: str | None,
    run: str | None,
    limit: int | None,
) -> Result:
    """List records, oldest first."""
    records: tuple[StoredRecord, ...] = ()
    try:
        with _opened(url, create=False) as store:
            records = store.query(
                family=family, backend=backend, arch=arch, outcome=outcome, method=method, run=run, limit=limit
            )
        if not records:
            click.echo(f"no such record in {_shown(url)}", err=True)
    except _NothingYet as error:
        click.echo(str(error), err=True)
    data = {"url": _shown(url), "records": [_as_json(stored) for stored in records]}
    return data, "\n".join(_line(stored) for stored in records)


@memory_group.command("show")
@click.argument("record_id", type=int, metavar="ID")
@_url
@command
def show(record_id: int, url: str) -> Result:
    """Show one record in full."""
    from memory.sanitise import shown_parameters

    with _opened(url, create=False) as store:
        stored = store.get(record_id)
    if stored is None:
        raise ConfigError(f"no record {record_id} in {_shown(url)}; `memory list` shows the ids")
    record = stored.record
    times = record.base_ms is not None and record.ms is not None
    details = {
        "fingerprint": stored.fingerprint,
        "created": stored.created,
        "parameters": shown_parameters(record.strategy.methods, record.strategy.parameters),
        "together": "these methods help only together" if record.together else "",
        "in company": "their share of a larger plan's effect" if record.in_company else "",
        "reason": record.reason,
        "times": f"{record.base_ms:g} ms before, {record.ms:g} ms with it" if times else "",
        "noise": "" if record.noise is None else f"gains under {record.noise:.3f} were not claimed",
        "lesson": record.lesson,
        "versions": json.dumps(dict(record.versions)),
    }
    lines = [_line(stored), *(f"  {name + ':':<13}{value}" for name, value in details.items() if value)]
    return _as_json(stored), "\n".join(lines)


@memory_group.command("export", short_help="Write all records as one JSON document.")
@click.argument("file", type=click.Path(path_type=Path), required=False)
@_url
@command
def export(file: Path | None, url: str) -> Result:
    """Write all records as one JSON document to FILE, or to stdout without one."""
    from memory.exchange import export_text

    with _opened(url, create=False) as store:
        records = store.query()
    text = export_text(records)
    if file is None:
        return json.loads(text), text.removesuffix("\n")
    _write(file, text)
    data = {"url": _shown(url), "file": str(file), "records": len(records)}
    return data, f"{len(records)} records written to {file}"


@memory_group.command("import", short_help="Add the records of a JSON document.")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@_url
@click.option("--arch", help="For an older tool's file: the architecture of scopes that name none (sm_90, x86_64).")
@command
def import_(file: Path, url: str, arch: str | None) -> Result:
    """Add the records of the JSON document FILE (`-` for stdin): all or none; again changes nothing.

    An older tool's `global_strategy_memory.json` is read too; what it cannot show is left out and named.
    """
    from agent.memory_upkeep import read_document
    from memory.exchange import import_entries

    entries, left_out = read_document(_read(file), str(file), _written(file), arch)
    with _opened(url, create=True) as store:
        done = import_entries(store, entries)
    for line in left_out:
        click.echo(f"left out: {line}", err=True)
    data = {"url": _shown(url), "imported": done.new, "known": done.known}
    if left_out:
        data["left_out"] = list(left_out)
    more = f", {len(left_out)} left out" if left_out else ""
    return data, f"{done.new} records imported, {done.known} were there already{more}"


@memory_group.command("explain", short_help="What a run of a task would be told now, and why.")
@click.argument("task", metavar="TASK")
@click.option("--url", help="SQLAlchemy URL of the memory; by default the task's own `memory.url`.")
@click.option("--arch", help="As if on this architecture (sm_90, x86_64, …); by default this machine's.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key of the task file.")
@command
def explain(task: str, url: str | None, arch: str | None, overrides: tuple[str, ...]) -> Result:
    """Print what a run of TASK (a file, or a shipped one's name) would be told now, and why."""
    from agent.config import load_config
    from agent.faults import as_exit_codes
    from agent.memory_explain import explain as explained
    from agent.memory_explain import where
    from agent.paths import find_config

    config = load_config(find_config(task), overrides)
    with as_exit_codes():
        found = where(config, arch)
    records: tuple[StoredRecord, ...] = ()
    used = url or config.memory.url
    try:
        with _opened(used, create=False) as store:
            records = store.query()
    except _NothingYet as error:
        click.echo(str(error), err=True)
    data, text = explained(config, found, records)
    return {"url": _shown(used), **data}, text


@memory_group.command("prune")
@_url
@click.option(
    "--older-than", type=click.FloatRange(min=0), metavar="DAYS", help="Only records older than so many days."
)
@click.option("--id", "ids", type=int, multiple=True, help="Only this record; may be given again.")
@click.option("--family", help="Only this operator family.")
@click.option("--backend", help="Only this backend.")
@click.option("--arch", help="Only this architecture.")
@click.option("--outcome", type=click.Choice(["positive", "negative", "rejected"]), help="Only this outcome.")
@click.option("--method", help="Only strategies with this method.")
@click.option("--run", help="Only this run.")
@click.option("--save", type=click.Path(path_type=Path), help="Write what is forgotten here first; `import` takes it.")
@click.option("--yes", is_flag=True, help="Do it; without this it is only listed.")
@command
def prune(
    url: str,
    older_than: float | None,
    ids: tuple[int, ...],
    family: str | None,
    backend: str | None,
    arch: str | None,
    outcome: Outcome | None,
    method: str | None,
    run: str | None,
    save: Path | None,
    yes: bool,
) -> Result:
    """Forget records: those that match all that is given. Without --yes they are only listed."""
    from agent.memory_upkeep import to_prune
    from memory.exchange import export_text

    filters = {"family": family, "backend": backend, "arch": arch, "outcome": outcome, "method": method, "run": run}
    if older_than is None and not ids and not any(filters.values()):
        raise ConfigError("memory prune: say which records, for example --older-than 365, --run NAME or --id 7")
    with _opened(url, create=False) as store:
        matching = store.query(family=family, backend=backend, arch=arch, outcome=outcome, method=method, run=run)
        doomed = to_prune(matching, older_than, ids)
        if save is not None and doomed:
            _write(save, export_text(doomed))
        if yes:
            store.delete([stored.id for stored in doomed])
    lines = [_line(stored) for stored in doomed]
    lines.append(f"{len(doomed)} records {'forgotten' if yes else 'would be forgotten; --yes does it'}")
    data = {"url": _shown(url), "forgotten": yes, "records": [_as_json(stored) for stored in doomed]}
    return data, "\n".join(lines)


@memory_group.command("stats")
@_url
@command
def stats(url: str) -> Result:
    """Count what the memory holds: by outcome, scope and method."""
    from agent.memory_upkeep import statistics

    with _opened(url, create=False) as store:
        return statistics(store.query(), _shown(url))


@contextmanager
def _opened(url: str, *, create: bool) -> Iterator[Store]:
    from memory.errors import StoreError, StoreMissing
    from memory.store import Store

    try:
        with Store(url, create=create) as store:
            if store.migrated is not None:
                click.echo(store.migrated, err=True)
            yield store
    except StoreMissing as error:
        raise _NothingYet(str(error)) from error
    except StoreError as error:
        raise ConfigError(str(error)) from error


def _shown(url: str) -> str:
    from memory.store import shown_url

    return shown_url(url)


def _as_json(stored: StoredRecord) -> dict[str, object]:
    return asdict(stored.record) | {"id": stored.id, "fingerprint": stored.fingerprint, "created": stored.created}


def _line(stored: StoredRecord) -> str:
    from memory.recall import evidence

    record = stored.record
    return f"{stored.id:>6}  {record.outcome:<8}  {' + '.join(record.strategy.methods)}: {evidence(record)}"


def _read(file: Path) -> bytes:
    try:
        return sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror or error}") from error


def _written(file: Path) -> datetime:
    """When the file was last written; for stdin, now."""
    seconds = None if str(file) == "-" else file.stat().st_mtime
    return datetime.now(timezone.utc) if seconds is None else datetime.fromtimestamp(seconds, timezone.utc)


def _write(file: Path, text: str) -> None:
    """All of the text or nothing of it: a backup that is cut short would be worse than none."""
    from agent.atomic import write_atomic

    try:
        write_atomic(file, text)
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror}") from error
