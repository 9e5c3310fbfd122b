"""Two runs on one machine must take turns to time, or each bills the other's work to its kernels."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from profiling.exclusive import exclusive_timing

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
