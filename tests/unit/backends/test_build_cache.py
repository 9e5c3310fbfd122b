"""What a user loses: a disk that fills up, night after night, with what killed runs left and nobody uses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from backends.build_cache import load, private_folder, store, tidy

ROOT = Path(__file__).resolve().parents[3]
HOLD = """import sys, time
from pathlib import Path
from backends.build_cache import private_folder
with private_folder(Path(sys.argv[1]), sys.argv[2]) as folder:
    (folder / "data").write_text("x")
    print(folder, flush=True)
    time.sleep(60)
"""
DAY = 86400.0


def holder(cache: Path, prefix: str) -> tuple[subprocess.Popen[str], Path]:
    """A process that works in a scratch folder of `cache`, and the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(cache), prefix], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def stored(cache: Path, key: str) -> Path:
    with private_folder(cache) as work:
        (work / "kernel.so").write_text("code")
        return store(cache, key, work / "kernel.so", ("g++",), "")


def aged(folder: Path, days: float) -> None:
    then = time.time() - days * DAY
    os.utime(folder, (then, then))


def test_scratch_of_a_killed_process_goes_and_that_of_a_living_one_stays(tmp_path: Path) -> None:
    held = [holder(tmp_path, prefix) for prefix in (".build-", "harness-")]
    try:
        tidy(tmp_path)
        assert all((folder / "data").exists() for _, folder in held)
        for process, _ in held:
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert all(folder.exists() for _, folder in held)
        with private_folder(tmp_path) as mine:
            assert list(tmp_path.iterdir()) == [mine]
    finally:
        for process, _ in held:
            process.kill()
            process.communicate()


def test_a_scratch_folder_in_this_process_is_not_tidied_away(tmp_path: Path) -> None:
    with private_folder(tmp_path, "harness-") as mine:
        tidy(tmp_path)
        assert mine.is_dir()
    assert list(tmp_path.iterdir()) == []


def test_builds_unused_for_a_month_go_and_those_in_use_stay(tmp_path: Path) -> None:
    """Use counts, not the age of the build: the baseline of a kernel is built once and used for years."""
    old, used, young = (stored(tmp_path, digit * 64).parent for digit in "0ab")
    for folder, days in ((old, 31), (used, 31), (young, 29)):
        aged(folder, days)
    assert load(tmp_path, used.name, "kernel.so") is not None
    tidy(tmp_path)
    assert set(tmp_path.iterdir()) == {used, young}


def test_what_is_not_of_the_cache_is_left_alone(tmp_path: Path) -> None:
    """XDG_CACHE_HOME may point anywhere."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "harness-notes.txt").write_text("mine")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".build-link").symlink_to(tmp_path / "elsewhere")
    aged(tmp_path / "notes", 400)
    before = set(tmp_path.iterdir())
    tidy(tmp_path)
    assert set(tmp_path.iterdir()) == before
