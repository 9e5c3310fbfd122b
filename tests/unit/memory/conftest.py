"""The databases that memory is tested on: SQLite, and PostgreSQL as a real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memory.store import Store
from tests.unit.memory.postgres import NoServer, Server, server


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    try:
        with server() as running:
            yield running
    except NoServer as error:
        pytest.skip(str(error))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "made" / "on" / "use" / "memory.db"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, file: Path) -> str:
    """An empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{file}"
    running: Server = request.getfixturevalue("postgres")
    return running.new_database()


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with Store(url) as opened:
        yield opened


@pytest.fixture
def sqlite_store(file: Path) -> Iterator[Store]:
    with Store(f"sqlite:///{file}") as opened:
        yield opened
