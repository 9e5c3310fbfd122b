"""`memory list|show|export|import`: strategy memory on the command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
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
    with _opened(url, create=False) as store:
        stored = store.get(record_id)
    if stored is None:
        raise ConfigError(f"no record {record_id} in {_shown(url)}; `memory list` shows the ids")
    record = stored.record
    details = {
        "fingerprint": stored.fingerprint,
        "created": stored.created,
        "parameters": json.dumps(record.strategy.parameters),
        "reason": record.reason,
        "lesson": record.lesson,
        "versions": json.dumps(dict(record.versions)),
    }
    lines = [_line(stored), *(f"  {name + ':':<13}{value}" for name, value in details.items())]
    return _as_json(stored), "\n".join(lines)


@memory_group.command("export")
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


@memory_group.command("import")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@_url
@command
def import_(file: Path, url: str) -> Result:
    """Add the records of the JSON document FILE (`-` for stdin): all or none; again changes nothing."""
    from memory.exchange import ExchangeError, import_entries, parse

    try:
        entries = parse(_read(file))
    except ExchangeError as error:
        raise ConfigError(f"{file}: {error}; nothing was imported") from error
    with _opened(url, create=True) as store:
        done = import_entries(store, entries)
    data = {"url": _shown(url), "imported": done.new, "known": done.known}
    return data, f"{done.new} records imported, {done.known} were there already"


@contextmanager
def _opened(url: str, *, create: bool) -> Iterator[Store]:
    from memory.errors import StoreError, StoreMissing
    from memory.store import Store

    try:
        with Store(url, create=create) as store:
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


def _write(file: Path, text: str) -> None:
    """All of the text or nothing of it: a backup that is cut short would be worse than none."""
    from agent.atomic import write_atomic

    try:
        write_atomic(file, text)
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror}") from error
