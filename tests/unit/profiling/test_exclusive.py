"""Two runs on one machine must take turns to time, or each bills the other's work to its kernels."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from profiling.exclusive import LOCK, exclusive_timing, lock_file

HOLDER = """
import sys
from pathlib import Path
from profiling.exclusive import exclusive_timing
with exclusive_timing(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def holder(lock: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_a_second_process_waits_and_a_killed_one_lets_go(tmp_path: Path) -> None:
    first, second = holder(tmp_path / "lock"), None
    try:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        second = holder(tmp_path / "lock")
        assert second.stdin is not None
        assert second.stdout is not None
        second.stdin.close()
        assert second.poll() is None
        first.kill()
        assert second.stdout.readline() == "held\n"
        assert second.wait(30) == 0
        with exclusive_timing(tmp_path / "lock"):
            pass
    finally:
        for process in (first, second):
            if process is not None:
                process.kill()
                process.wait()


def test_a_wait_tells_why_and_ends_when_the_run_is_stopped(tmp_path: Path) -> None:
    """Ctrl-C during another run's hour of timing must not be an hour late."""
    told: list[str] = []
    first = holder(tmp_path / "lock")
    try:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        with (
            pytest.raises(InterruptedError),
            exclusive_timing(tmp_path / "lock", lambda: bool(told), lambda: told.append("waiting")),
        ):
            pass
    finally:
        first.kill()
        first.communicate()
    assert told == ["waiting"]


def test_other_users_and_other_temporary_folders_find_the_same_lock(tmp_path: Path) -> None:
    code = "import os; os.umask(0o077)\n" + HOLDER
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "lock")], stdin=subprocess.DEVNULL, capture_output=True, check=True
    )
    assert done.stdout == b"held\n"
    assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o644
    where = subprocess.run(
        [sys.executable, "-c", "from profiling.exclusive import LOCK; print(LOCK)"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert where.stdout == f"{LOCK}\n"


def test_each_gpu_has_a_lock_of_its_own() -> None:
    """Eight runs on eight GPUs must not take turns; two on one GPU must, and so must what times the CPU."""
    one, other = (f"GPU-{os.getpid()}-{n}" for n in (1, 2))
    code = HOLDER.replace("Path(sys.argv[1])", "gpu=sys.argv[1]")
    first = subprocess.Popen(
        [sys.executable, "-c", code, one], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        with exclusive_timing(gpu=other, stopped=lambda: True):
            pass
        with pytest.raises(InterruptedError), exclusive_timing(gpu=one, stopped=lambda: True):
            pass
        assert len({lock_file(one), lock_file(other), lock_file(None)}) == 3
        assert lock_file(None) == LOCK
    finally:
        first.kill()
        first.communicate()
        for gpu in (one, other):
            lock_file(gpu).unlink(missing_ok=True)


@pytest.mark.parametrize("uuid", ["", "../x", "GPU-1/../../etc", "GPU 1"])
def test_what_is_no_uuid_names_no_lock(uuid: str) -> None:
    """A file name is made of it."""
    with pytest.raises(ValueError, match="UUID"):
        lock_file(uuid)
