"""A night that a test starts as cron does, follows by its logs, kills, and starts again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[1]
MEASURED = ("ceilings_measured", "task_checked", "exploits_played", "aa_measured", "evaluated", "profiled", "compared")
# What a person who reads the timeline wants to know of.
_TOLD = ("night_opened", "surveyed", "session_started", "evaluated", "compared", "run_ended", "tried", "night_ended")
_POLL_S, _ENDS_WITHIN_S = 0.02, 30.0


def as_cron_does(variables: Mapping[str, str], *arguments: str) -> list[str]:
    """`nightly` with these variables, with where the code lies, and with nothing else of this environment."""
    given = [f"{name}={value}" for name, value in {"PYTHONPATH": str(ROOT), **variables}.items()]
    return ["env", "-i", *given, sys.executable, "-m", "agent", "nightly", *arguments]


@dataclass
class Sittings:
    """The processes that work on one night, one after the other; none outlives the call that started it.

    What the logs tell is printed as it comes: `pytest -s` shows the timeline.

    Attributes:
        runs: where the night and its runs go.
        within_s: how long one process may take.
    """

    runs: Path
    within_s: float
    _began: float = field(default_factory=time.monotonic)
    _told: dict[Path, int] = field(default_factory=dict)
    _kept: dict[Path, list[str]] = field(default_factory=dict)

    def killed_when(self, command: Sequence[str], seen: Callable[[], bool]) -> str:
        """Start the night, kill its process group once something is seen, and see its run die; its standard error."""
        with self._process(command) as (process, _, errors):
            self._until(process, errors, lambda: seen() and len(_descendants(process.pid)) > 0)
            family = _descendants(process.pid)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=_ENDS_WITHIN_S)
            self._tell("SIGKILL")
            end = time.monotonic() + _ENDS_WITHIN_S
            while left := _alive(family):
                assert time.monotonic() < end, f"outlived the night: {[_command_line(pid) for pid in left]}"
                time.sleep(_POLL_S)
            self._kept = self._with_all_kept()
            return _text(errors)

    def to_its_end(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Start the night and let it end."""
        with self._process(command) as (process, out, errors):
            self._until(process, errors, lambda: process.poll() is not None)
            self._tell(f"exit code {process.returncode}")
            return subprocess.CompletedProcess(list(command), process.returncode, _text(out), _text(errors))

    def assert_nothing_lost_or_done_twice(self) -> None:
        """What stood in the logs at each kill stands there still; nothing is measured or answered a second time."""
        for log, lines in self._with_all_kept().items():
            if log.name == "events.jsonl":
                _assert_nothing_twice(log, [json.loads(line) for line in lines])

    def _with_all_kept(self) -> dict[Path, list[str]]:
        now = logs_of(self.runs)
        for log, lines in self._kept.items():
            assert now[log][: len(lines)] == lines, f"{log}: what was logged before a kill is gone"
        return now

    @contextmanager
    def _process(self, command: Sequence[str]) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes], IO[bytes]]]:
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:  # a pipe nobody reads would fill
            process = subprocess.Popen(command, cwd="/", stdout=out, stderr=errors, start_new_session=True)
            self._tell(f"start, process {process.pid}")
            try:
                yield process, out, errors
            finally:
                family = _descendants(process.pid)
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                for pid in _alive(family):
                    os.kill(pid, signal.SIGKILL)

    def _until(self, process: subprocess.Popen[bytes], errors: IO[bytes], seen: Callable[[], bool]) -> None:
        """Until something is seen. Logs are read only when they have grown: looking must not slow what is measured."""
        end, looked = time.monotonic() + self.within_s, list[int]()
        while True:
            ended, sizes = process.poll() is not None, _sizes(self.runs)
            if ended or sizes != looked:
                looked = sizes
                self._follow()
                if seen():
                    return
            assert not ended, f"ended with {process.returncode} before that was seen:\n{_text(errors)}"
            assert time.monotonic() < end, f"not seen within {self.within_s:g} s:\n{_text(errors)}"
            time.sleep(_POLL_S)

    def _follow(self) -> None:
        for log, lines in logs_of(self.runs).items():
            for line in lines[self._told.get(log, 0) :]:
                event = json.loads(line)
                if event["type"] in _TOLD:
                    self._tell(f"{log.parent.name}  {event['type']} {event['key']}")
            self._told[log] = len(lines)

    def _tell(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:7.1f} s  {text}", flush=True)


def logs_of(runs: Path) -> dict[Path, list[str]]:
    """The whole lines of the logs of a night and its runs; a run that cannot be measured may go at any time."""
    found: dict[Path, list[str]] = {}
    for path in sorted([*runs.glob("night_*/night.jsonl"), *runs.glob("run_*/events.jsonl")]):
        with suppress(FileNotFoundError):
            found[path] = path.read_bytes().decode(errors="replace").split("\n")[:-1]
    return found


def _sizes(runs: Path) -> list[int]:
    with suppress(FileNotFoundError):
        return [path.stat().st_size for path in sorted([*runs.glob("night_*/*.jsonl"), *runs.glob("run_*/*.jsonl")])]
    return []


def holding(runs: Path, *words: str) -> list[str]:
    """Names of the folders in whose log some line has all the words."""
    return [log.parent.name for log, lines in logs_of(runs).items() if any(all(w in li for w in words) for li in lines)]


def _assert_nothing_twice(log: Path, events: Sequence[Mapping[str, Any]]) -> None:
    counted = Counter((e["type"], e["key"]) for e in events if e["type"] in (*MEASURED, "reply_received"))
    assert [what for what, times in counted.items() if times > 1] == [], log
    answered: set[str] = set()
    for event in events:
        if event["type"] == "reply_received":
            answered.add(event["key"])
        assert event["type"] != "request_sent" or event["key"] not in answered, f"{log}: {event['key']} asked for again"


def _descendants(pid: int) -> dict[int, str]:
    """What a process started, and what that started: process ids, and when each began (ids are given out again)."""
    stats = {int(path.name): _stat(int(path.name)) for path in Path("/proc").iterdir() if path.name.isdigit()}
    found: dict[int, str] = {}
    newest = [pid]
    while newest:
        newest = [child for child, stat in stats.items() if stat and int(stat[1]) in newest and child not in found]
        found |= {child: stats[child][19] for child in newest}
    return found


def _alive(family: Mapping[int, str]) -> list[int]:
    """Those of them that have not ended."""
    stats = {pid: _stat(pid) for pid in family}
    return [pid for pid, stat in stats.items() if stat and stat[0] not in "ZX" and stat[19] == family[pid]]


def _stat(pid: int) -> list[str]:
    """State, parent, …, and at 19 the start; nothing where there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")
