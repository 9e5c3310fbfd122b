"""A process that works on a run as far as anybody who looks on can tell: it holds the log and appends to it when told.

The events are those of the made-up run in `tests/unit/agent/event_log.py`; journal, lock and files are real.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from agent import events as ev
from agent.events import Event
from agent.journal import Journal
from tests.unit.agent import event_log

_LATER_SESSIONS = tuple(f"later{number}" for number in range(10))


def all_events(run_id: str) -> list[Event]:
    """The made-up run, in order, under another name."""
    started, *rest = [*event_log.opening(), *event_log.first_iteration(), *event_log.second_iteration()]
    assert isinstance(started, ev.RunStarted)
    return [started.model_copy(update={"run_id": run_id}), *rest, *event_log.ending()]


def write_run(folder: Path, events: Sequence[Event] | None = None) -> Path:
    """A whole run as it lies there when its process has ended: log, config, report and kernels."""
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(json.dumps({"search": {"iterations": 2}, "budget": {"minutes": 30, "usd": 5}}))
    (folder / "report.html").write_text("<!doctype html><title>report</title><h1>The report</h1>")
    (folder / "summary.md").write_text("# The summary\n")
    for name in ("baseline", "best"):
        (folder / name).mkdir()
        (folder / name / "kernel.cpp").write_text(f"// the {name} kernel\nvoid solve();\n")
    stamped = event_log.stamped(all_events(folder.name) if events is None else events)
    (folder / "events.jsonl").write_text("".join(event.model_dump_json() + "\n" for event in stamped))
    return folder


class Writer:
    """The process, from the outside. `append(n)` has it log its next `n` events."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            write_run(folder, [])
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.writer", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def append(self, count: int) -> None:
        """Log the next events."""
        self._tell(f"append {count}")

    def append_until(self, kind: str) -> None:
        """Log the next events, up to and with the first of this type."""
        self._tell(f"until {kind}")

    def pause(self, status: str, exit_code: int) -> None:
        """Log that the session ended, and end."""
        self._tell(f"pause {status} {exit_code}")
        self.kill()

    def end(self) -> None:
        """Log what is left, and end."""
        self.append(1000)
        self.kill()

    def kill(self) -> None:
        """End as by SIGKILL."""
        self.process.kill()
        self.process.communicate()

    def _tell(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()
        self._answer()

    def _answer(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "done\n"


def _work(folder: Path) -> None:
    journal = Journal(folder)
    known = [e for e in journal.events if not isinstance(e, ev.Paused) and e.key not in _LATER_SESSIONS]
    rest = all_events(folder.name)[len(known) :]
    if journal.events:  # resumed
        number = sum(isinstance(e, ev.SessionStarted) for e in journal.events)
        environment = event_log.ENVIRONMENT
        rest.insert(0, ev.SessionStarted(key=f"later{number}", device_id=event_log.DEVICE.id, environment=environment))
    print("done", flush=True)
    for line in sys.stdin:
        word, *arguments = line.split()
        if word == "pause":
            status, code = arguments
            said = {"key": "0", "status": status, "reason": "stopped by a signal", "exit_code": int(code)}
            journal.append(ev.Paused.model_validate(said))
            count = 0
        elif word == "append":
            count = int(arguments[0])
        else:
            count = next(i for i, e in enumerate(rest) if getattr(e, "type", "") == arguments[0]) + 1
        for event in rest[:count]:
            journal.append(event)
        rest = rest[count:]
        print("done", flush=True)


if __name__ == "__main__":
    _work(Path(sys.argv[1]))
