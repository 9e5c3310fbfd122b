"""The oracle as the controller sees it: a process that answers requests, within limits that it names itself."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from pydantic import ValidationError

from backends.process import clean_environment, kill_group
from backends.types import ToolchainError
from profiling.harness import wire
from profiling.types import HarnessFault, TaskError

_START_S = 120.0
_ORACLE_ENVIRONMENT = {
    "PYTHONDONTWRITEBYTECODE": "1",  # a reference may lie in a run folder
    "OMP_WAIT_POLICY": "passive",  # threads that wait for work must not run beside a worker
    # Tensors come and go all the time: memory that is given back to the system costs page faults again.
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
}
_FAULTS: Mapping[str, type[Exception]] = {"task": TaskError, "machine": ToolchainError, "harness": HarnessFault}
_ROOT = Path(__file__).parents[2]
# Not `-m`: it puts the working folder first on the path, and a user's `torch.py` there must not be taken for ours.
_SERVE = "import sys; sys.path[:] = filter(None, sys.path); from profiling.harness.oracle import main; main()"


class OracleProcess:
    """The oracle behind its pipes.

    Args:
        environment: what it sees beside the usual.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=clean_environment({"PYTHONPATH": str(_ROOT), **_ORACLE_ENVIRONMENT, **environment}),
            start_new_session=True,
        )
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._errors: deque[bytes] = deque(maxlen=40)
        self._readers = [
            threading.Thread(target=self._read_replies, args=(self._process.stdout,), daemon=True),
            threading.Thread(target=self._read_errors, args=(self._process.stderr,), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _read_replies(self, stream: IO[bytes]) -> None:
        with stream:
            for line in stream:
                self._lines.put(line)
        self._lines.put(b"")

    def _read_errors(self, stream: IO[bytes]) -> None:
        with stream:
            while line := stream.readline(4096):
                self._errors.append(line)

    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def ask(self, request: wire.Request) -> wire.Reply:
        """One request, one reply. Raises TaskError or HarnessFault."""
        stdin = self._process.stdin
        assert stdin is not None
        phase = wire.Phase(name="start", limit_s=_START_S)
        try:
            stdin.write(request.model_dump_json().encode() + b"\n")
            stdin.flush()
        except (BrokenPipeError, ValueError) as error:
            raise HarnessFault(f"the oracle is gone: {self._last_words()}") from error
        while True:
            try:
                line = self._lines.get(timeout=phase.limit_s)
            except queue.Empty:
                self.close()
                raise self._overdue(phase) from None
            reply = self._parse(line, phase)
            if isinstance(reply, wire.Phase):
                phase = reply
            elif isinstance(reply, wire.Failed):
                raise _FAULTS[reply.fault](reply.message)
            else:
                return reply

    def _parse(self, line: bytes, phase: wire.Phase) -> wire.Reply:
        if not line:
            self._process.wait()
            how = f"ended with status {self._process.returncode} {self._last_words()}".rstrip()
            self.close()
            if phase.name == "reference":
                raise TaskError(f"the reference took its process down: it {how}")
            raise HarnessFault(f"the oracle {how}")
        try:
            return wire.REPLY.validate_json(line)
        except ValidationError as error:
            self.close()
            raise HarnessFault(f"the oracle sent what is no reply: {line[:200]!r}") from error

    def _overdue(self, phase: wire.Phase) -> TaskError | HarnessFault:
        if phase.name == "reference":
            return TaskError(
                f"the reference gave no answer within {phase.limit_s:.0f} s: it hangs or needs smaller dims"
            )
        return HarnessFault(f"the oracle gave no answer within {phase.limit_s:.0f} s ({phase.name})")

    def _last_words(self) -> str:
        for reader in self._readers[1:]:
            reader.join(2.0)
        lines = [line.decode(errors="replace").strip() for line in self._errors]
        return next((f"({line})" for line in reversed(lines) if line), "")

    def close(self) -> None:
        """Kill it: its workers end with it."""
        if self._process.poll() is None:
            kill_group(self._process.pid)
        self._process.wait()
        if self._process.stdin is not None:
            try:
                self._process.stdin.close()
            except BrokenPipeError:
                pass
        for reader in self._readers:
            reader.join(2.0)
