"""Many runs on one memory, and runs that are killed."""

from __future__ import annotations

import multiprocessing
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from memory.store import Store
from tests.unit.memory.records import record
from tests.unit.memory.writer import open_together

ROOT = Path(__file__).parents[3]


def _writer(url: str, name: str, batches: int, size: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.unit.memory.writer", url, name, str(batches), str(size)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def test_ten_processes_writing_at_once_lose_nothing(url: str) -> None:
    """Ten runs of one night, the first of which makes the file: nobody knows which is first."""
    writers = [_writer(url, f"run_{at}", batches=10, size=3) for at in range(10)]
    for writer in writers:
        writer.communicate(timeout=100)
    assert [writer.returncode for writer in writers] == [0] * 10
    with Store(url) as store:
        per_run = Counter(found.record.run for found in store.query())
    assert per_run == {f"run_{at}": 30 for at in range(10)}


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_first_users_at_the_same_moment_all_get_in(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """SQLite does not wait for its locks while a new file becomes WAL: the second of two runs would end at once."""
    context = multiprocessing.get_context("spawn")
    urls = [f"sqlite:///{tmp_path}/{at}.db" for at in range(20)]
    if kind == "postgresql":
        urls = [request.getfixturevalue("postgres").new_database() for _ in range(5)]
    barrier = context.Barrier(4)
    users = [context.Process(target=open_together, args=(barrier, urls)) for _ in range(4)]
    for user in users:
        user.start()
    for user in users:
        user.join(timeout=100)
    assert [user.exitcode for user in users] == [0] * 4


def test_a_write_that_is_killed_leaves_all_or_nothing(url: str) -> None:
    """The next night would learn from half an iteration, or find its memory locked or broken."""
    size = 200
    with Store(url):
        pass
    for attempt in range(3):
        run = f"run_{attempt}"
        writer = _writer(url, run, batches=1000, size=size)
        assert writer.stdout is not None
        for line in writer.stdout:
            if line == "writing 2\n":
                break
        time.sleep(0.05 * attempt)
        writer.kill()
        writer.communicate(timeout=100)
        assert writer.returncode == -signal.SIGKILL
        with Store(url) as store:
            per_iteration = Counter(found.record.iteration for found in store.query(run=run))
            assert set(per_iteration.values()) == {size}
            assert per_iteration[1] == size
            store.add([record(run=run, iteration=5000)])
