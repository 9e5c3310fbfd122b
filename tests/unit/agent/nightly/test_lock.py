"""Two crontab lines, a reboot, a process id given out again: there is one night at a time, and never none."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agent.errors import UnfitEnvironment
from agent.nightly.lock import LOCK, only_night

HOLD = "import sys\nfrom pathlib import Path\nfrom agent.nightly.lock import only_night\n"
HOLD += "with only_night(Path(sys.argv[1])):\n    print('held', flush=True)\n    sys.stdin.read()\n"


def holder(folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_night_is_refused_by_a_line_that_names_the_first(tmp_path: Path) -> None:
    process = holder(tmp_path)
    with pytest.raises(UnfitEnvironment, match=f"process {process.pid}, since"), only_night(tmp_path):
        pass
    process.send_signal(signal.SIGKILL)
    process.wait()
    with only_night(tmp_path):  # what a killed night leaves holds nobody up
        pass


def test_what_an_earlier_boot_wrote_names_nobody_who_lives_now(tmp_path: Path) -> None:
    """The lock itself cannot outlive its process; the words in the file could lie."""
    process = holder(tmp_path)
    lock = tmp_path / LOCK
    told = json.loads(lock.read_text())
    for change in ({"boot": "another"}, {"ticks": told["ticks"] + 1}, {"pid": os.getpid()}):
        lock.write_text(json.dumps({**told, **change}))
        with pytest.raises(UnfitEnvironment, match=r"running there already; wait"), only_night(tmp_path):
            pass
    lock.write_text("half a li")
    with pytest.raises(UnfitEnvironment, match="running there already; wait"), only_night(tmp_path):
        pass
    process.kill()
    process.wait()


def test_other_folders_have_nights_of_their_own(tmp_path: Path) -> None:
    with only_night(tmp_path / "a"), only_night(tmp_path / "b"):
        pass


def test_a_process_that_the_night_started_does_not_hold_its_lock(tmp_path: Path) -> None:
    with only_night(tmp_path):
        child = subprocess.Popen(["sleep", "60"])
    with only_night(tmp_path):
        pass
    child.kill()
    child.wait()
