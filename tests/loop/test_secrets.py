"""A night with keys from everywhere: interrupted, refused, killed, finished. Nothing it leaves behind holds one."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import pytest

from tests.loop.scenario import events_of, state_of, wait_for, write_task
from tests.loop.test_providers import answer
from tests.loopback import Asked, Fault, Loopback

BY_FILE, BY_ENV, BY_COMMAND = "sk-file-8d1f0c", "sk-env-55ab21", "sk-command-77e3d9"
KEYS = (BY_FILE, BY_ENV, BY_COMMAND)


@dataclass
class Night:
    """What was seen of it.

    Attributes:
        folder: of the task, its runs and everything else that was written, temporary files included.
        said: stdout and stderr of every command.
        stop_s: seconds from Ctrl-C until the run was stopped and saved: with a request that hangs, and in a back-off.
        cores: whether the kernel wrote a core file: of our process, and of another in its place.
        environments: of children, by command line.
        seen: keys that the servers were sent.
    """

    folder: Path
    said: list[str] = field(default_factory=list)
    stop_s: list[float] = field(default_factory=list)
    cores: tuple[bool, bool] = (False, False)
    environments: dict[bytes, bytes] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Night:
    folder, vault = tmp_path_factory.mktemp("night"), tmp_path_factory.mktemp("vault")
    (folder / "tmp").mkdir()
    for name, key in (("file", BY_FILE), ("command", BY_COMMAND)):
        (vault / name).write_text(f"{key}\n")
        (vault / name).chmod(0o600)
    found = Night(folder)
    script = Script(found)
    with Loopback(script) as server:
        claude = {"provider": "anthropic", "model": "claude-sonnet-4-5", "base_url": server.base_url}
        gpt = {"provider": "openai", "model": "gpt-5.1", "base_url": server.v1_url, "api_key_env": "NIGHT_KEY"}
        haiku = {"model": "claude-haiku-4-5", "api_key_command": f"cat {vault / 'command'}"}
        llm = {**claude, "api_key_file": str(vault / "file"), "record": "recorded", "roles": {"branch": [gpt, haiku]}}
        config = write_task(folder, llm, ablate=False)

        process = _begin(folder, "run", "--config", str(config))
        _until_asked(server, 1, process)
        _interrupt(process, found)

        script.mode = "busy"
        process = _begin(folder, "resume", "runs/latest", "--debug")
        wait_for(folder, "request_retried", process)
        _interrupt(process, found)

        script.mode = "denied"
        process = _begin(folder, "resume", "runs/latest", "--debug")
        _end(process, found, 4)

        script.mode = "hang"
        asked = server.count
        process = _begin(folder, "resume", "runs/latest", cores=True)
        _until_asked(server, asked + 1, process)
        process.send_signal(signal.SIGABRT)
        other = subprocess.Popen([sys.executable, "-c", "import os; os.abort()"], cwd=vault, preexec_fn=_allow_cores)
        found.cores = (_dumped(process), _dumped(other))
        found.said.append(_output(process))

        script.mode = "answer"
        process = _begin(folder, "resume", "runs/latest")
        with _watching_children(process.pid, found.environments):
            _end(process, found, 0)
    return found


class Script:
    """A server that quotes the key it was sent wherever it complains."""

    def __init__(self, night: Night) -> None:
        self.mode = "hang"
        self._night = night
        self._complained = 0

    def __call__(self, asked: Asked) -> str | Fault:
        key = asked.headers.get("x-api-key") or asked.headers["authorization"].removeprefix("Bearer ")
        self._night.seen.add(key)
        if self.mode == "hang":
            return Fault("silent")
        if self.mode == "busy":
            error = {"type": "overloaded_error", "message": f"too busy for {key}"}
            return Fault("status", 529, error, headers={"retry-after": "30"})
        if self.mode == "denied":
            return Fault("status", 401, {"type": "authentication_error", "message": f"invalid key {key}"})
        self._complained += 1
        if self._complained <= 3:
            return Fault("status", 500, {"message": f"{key} met a bug"}, headers={"retry-after-ms": "10"})
        return answer(asked)


def test_ctrl_c_ends_a_hanging_request_and_a_long_back_off_at_once(night: Night) -> None:
    assert len(night.stop_s) == 2
    assert max(night.stop_s) < 1


def test_the_night_ends_well_with_every_key_used(night: Night) -> None:
    assert state_of(night.folder).status == "finished"
    assert night.seen == set(KEYS)
    assert state_of(night.folder).cost.retried >= 3


def test_no_key_is_in_anything_that_was_written(night: Night) -> None:
    """Events, prompts, replies, recordings, reports, databases, builds, logs and temporary files."""
    files = [path for path in night.folder.rglob("*") if path.is_file()]
    files += [path for path in Path(os.environ["XDG_CACHE_HOME"]).rglob("*") if path.is_file()]
    names = {path.name for path in files}
    assert {"events.jsonl", "state.json", "report.html", "memory.db", "iter1-plan-0.json"} <= names
    # A program holds no text, but a key in it would be in one piece all the same.
    assert [(path, key) for path in files for key in KEYS if key.encode() in path.read_bytes()] == []


def test_no_key_is_in_anything_that_was_said_tracebacks_included(night: Night) -> None:
    said = "\n".join(night.said)
    assert "Traceback" in said
    assert "invalid key [key]" in said
    assert [key for key in KEYS if key in said] == []


def test_no_child_is_given_a_key(night: Night) -> None:
    assert len(night.environments) > 3
    assert [line for line, environ in night.environments.items() if any(key.encode() in environ for key in KEYS)] == []


def test_a_crash_leaves_no_core_file(night: Night) -> None:
    ours, others = night.cores
    if not others:
        pytest.skip("this machine writes no core files")
    assert not ours


def _begin(folder: Path, *arguments: str, cores: bool = False) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "agent", *arguments],
        cwd=folder,
        env={**os.environ, "NIGHT_KEY": BY_ENV, "TMPDIR": str(folder / "tmp")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_allow_cores if cores else None,
    )


def _allow_cores() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)


def _until_asked(server: Loopback, count: int, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 400
    while server.count < count and process.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    assert server.count >= count
    time.sleep(0.1)


def _interrupt(process: subprocess.Popen[str], night: Night) -> None:
    began = time.time()
    process.send_signal(signal.SIGINT)
    _end(process, night, 130)
    saved = events_of(night.folder, "paused")[-1]["at"]
    night.stop_s.append(datetime.fromisoformat(saved).timestamp() - began)


def _end(process: subprocess.Popen[str], night: Night, code: int) -> None:
    night.said.append(_output(process))
    assert process.returncode == code, night.said[-1]


def _output(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=240)
    return f"{out}\n{err}"


def _dumped(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> bool:
    """Whether the kernel says that a process which was killed left a core file."""
    _, status = os.waitpid(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return os.WCOREDUMP(status)


@contextmanager
def _watching_children(parent: int, found: dict[bytes, bytes]) -> Iterator[None]:
    """Note the environment of every process below `parent` while the block lasts."""
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            for process in _below(parent):
                try:
                    line = (process / "cmdline").read_bytes()
                    environ = (process / "environ").read_bytes()
                except OSError:
                    continue  # it has ended
                # Between fork and exec a child is its parent still.
                if line and line != _line(parent):
                    found[line] = found.get(line, b"") + environ
            time.sleep(0.01)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _below(parent: int) -> list[Path]:
    parents: dict[int, int] = {}
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                parents[int(process.name)] = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
    found: set[int] = set()
    more = {parent}
    while more:
        more = {pid for pid, above in parents.items() if above in more} - found
        found |= more
    return [Path(f"/proc/{pid}") for pid in found]
