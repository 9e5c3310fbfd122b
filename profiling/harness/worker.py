"""One candidate's process: started behind walls, asked for calls, stopped between them, killed before judging."""

from __future__ import annotations

import os
import secrets
import select
import signal
import socket
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from profiling.harness import protocol
from profiling.harness.arena import PAGE, Arena, memory_total
from profiling.harness.launcher import Inherited, Launcher
from profiling.harness.mappings import Mappings
from profiling.types import HarnessFault, Limits

_START_S = 20.0
_POLL_MS = 20
_STOP_S = 5.0
_FAULTED = 71  # kFaulted of profiling/native/runner.cpp: what is wrong stands on the last line that it printed
_STDERR_BYTES = 4096
_OUTPUT_BYTES = 1 << 20  # the file-size limit in walls.cpp
_PROCESS_CPU_CLOCK = 2  # see clock_getcpuclockid(3): the low bits of a clock id made from a process id
_STILL = frozenset("TtZX")


class CandidateFailure(Exception):
    """The candidate crashed, hung, hogged or lied. The message says what and where.

    Attributes:
        evidence: the end of what it wrote to its output.
    """

    def __init__(self, reason: str, evidence: str = "") -> None:
        super().__init__(reason)
        self.evidence = evidence


@dataclass(frozen=True, slots=True)
class Reply:
    """Calls by the worker's own clock, and the whole exchange by ours, in nanoseconds.

    Ours leaves out the time in which the worker, or we, could have run but had to wait for a core, as the kernel
    accounts for it: on a busy machine that would drown everything else. It is never less than what all the worker's
    threads ran over the cores they have, so a thread cannot hide in that wait. `waited_ns` is the worker's part of it.
    """

    calls: list[protocol.Call]
    outside_ns: int
    waited_ns: int


class Worker:
    """A worker, started but not waited for: `ready` does that, so that several may start at once.

    It is stopped (SIGSTOP) whenever it has nothing to do, so that nothing works between calls.

    Args:
        launcher: starts its process.
        artifact: the candidate.
        arena: the slots to map.
        cores: the cores it may run on.
        limits: seconds of one call, resident bytes.
        named: whether it must know what the arguments are called.

    Raises:
        HarnessFault: its process could not be started.
    """

    def __init__(
        self,
        launcher: Launcher,
        artifact: Path,
        arena: Arena,
        cores: Sequence[int],
        limits: Limits,
        *,
        named: bool = False,
    ) -> None:
        self._limits = limits
        self._memory = limits.memory_bytes or memory_total() // 2
        self._pid, self._end = 0, -1
        self._allowed, self._named = tuple(cores), named
        self._channel, channel = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        try:
            self._process = launcher.launch(artifact, Inherited(channel.fileno(), arena.fd), len(cores))
        except BaseException:
            self._channel.close()
            raise
        finally:
            channel.close()
        self._output, self._status = self._process.ends.output, self._process.ends.status
        self._mappings = Mappings(artifact, self._process.expects)
        self._hello, self._load = secrets.randbits(64), secrets.randbits(64)
        self._send(arena.layout.setup(self._hello, arena.slots, self._allowed, named=named))
        self._send(protocol.load_frame(self._load))

    def _send(self, frame: bytes) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # it is gone: waiting for its answer will say so
            self._channel.send(frame)

    def ready(self) -> None:
        """Wait until the candidate is loaded.

        Raises:
            HarnessFault: it did not start, before any candidate code ran.
            CandidateFailure: the candidate could not be loaded.
        """
        try:
            self.layers = protocol.read_hello(self._receive(time.monotonic() + _START_S), self._hello)
        except (CandidateFailure, protocol.BadFrame) as error:
            raise HarnessFault(f"a worker did not start: {error} {self.evidence()}".rstrip()) from error
        limit = self._limits.call_s
        try:
            message = protocol.read_loaded(self._receive(time.monotonic() + limit), self._load)
        except CandidateFailure as error:
            raise CandidateFailure(f"{error} while being loaded", self.evidence()) from error
        except protocol.BadFrame as error:
            raise CandidateFailure(f"sent {error} while being loaded") from error
        if message is not None:
            raise CandidateFailure(f"cannot be loaded: {message}")
        self.pause()
        library = self._mappings.loaded(self._pid)
        if library is not None:
            raise CandidateFailure(f"loaded {library} without being linked against it")

    def rebind(self, arena: Arena) -> None:
        """From now on call with the arguments of the arena's new layout. For workers on a GPU alone."""
        self._send(arena.layout.setup(secrets.randbits(64), arena.slots, self._allowed, named=self._named))

    def run(
        self,
        first: int,
        count: int,
        where: str,
        lead_us: int = 0,
        *,
        flush: bool = False,
        together: bool = False,
        take: Callable[[], None] | None = None,
    ) -> Reply:
        """Let it run calls on slots [first, first + count), and stop it as the reply comes.

        Args:
            first, count: which.
            where: what the calls are, for a failure's reason.
            lead_us, flush: on a GPU, how a call begins that is timed (profiling/native/gpu.h).
            together: on a GPU, whether one time is taken of all of them.
            take: takes the outputs home as the reply comes, before our clock is read: on a GPU work may go on while
                every thread stands still, and what is not done by then is wrong.

        Raises:
            CandidateFailure: no good reply.
        """
        token = secrets.randbits(64)
        limit = self._limits.call_s * count
        try:
            self._channel.send(protocol.run_frame(token, first, count, lead_us, flush=flush, together=together))
            waited, ours, ran = self._waited_ns(), _own_waited_ns(), self._ran_ns()
            start = time.perf_counter_ns()
            self._signal(signal.SIGCONT)
            frame = self._receive(time.monotonic() + limit)
            if take is not None:
                take()
            outside = time.perf_counter_ns() - start
            self.pause()
            waited, ours = self._waited_ns() - waited, _own_waited_ns() - ours
            outside = max(outside - waited - ours, (self._ran_ns() - ran) // len(self._allowed))
            calls = protocol.read_done(frame, token, count)
        except (CandidateFailure, BrokenPipeError, ConnectionResetError) as error:
            reason = str(error) if isinstance(error, CandidateFailure) else self._ending()
            raise CandidateFailure(f"{reason} in {where}", self.evidence()) from error
        except protocol.BadFrame as error:
            raise CandidateFailure(f"sent {error} in {where}", self.evidence()) from error
        if os.fstat(self._output).st_size >= _OUTPUT_BYTES:
            raise CandidateFailure(f"printed more than {_OUTPUT_BYTES >> 20} MiB in {where}")
        library = self._mappings.called(self._pid)
        if library is not None:
            raise CandidateFailure(f"loaded {library} in {where}")
        bad = next((c.code for c in calls if c.code != 0), None)
        if bad is not None:
            raise CandidateFailure(f"solve returned {bad} in {where}", self.evidence())
        return Reply(calls, outside, waited)

    def pause(self) -> None:
        """Stop every thread of it, and wait until they stand still."""
        self._signal(signal.SIGSTOP)
        deadline = time.monotonic() + _STOP_S
        while not self._is_still():
            if time.monotonic() > deadline:
                raise CandidateFailure("could not be stopped")

    def _is_still(self) -> bool:
        try:
            threads = os.listdir(f"/proc/{self._pid}/task")
        except FileNotFoundError:
            return True
        for thread in threads:
            try:
                with open(f"/proc/{self._pid}/task/{thread}/stat", "rb") as file:
                    state = file.read().rpartition(b")")[2].split()[0]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if state.decode() not in _STILL:
                return False
        return True

    def _waited_ns(self) -> int:
        """Time that the main thread could have run but had no core."""
        return _schedstat_waited(f"/proc/{self._pid}/schedstat")

    def _ran_ns(self) -> int:
        """Processor time of all the worker's threads, ended ones too."""
        try:
            return time.clock_gettime_ns(~self._pid << 3 | _PROCESS_CPU_CLOCK)
        except OSError:
            return 0

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._pid, number)
        except ProcessLookupError:
            pass

    def _receive(self, deadline: float) -> bytes:
        """The next frame. The sender must be the worker itself; its memory is watched meanwhile."""
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        while not poll.poll(_POLL_MS):
            if time.monotonic() > deadline:
                raise CandidateFailure("exceeded its time limit")
            self._check_memory()
        try:
            frame, ancillary, _, _ = self._channel.recvmsg(protocol.MAX_FRAME, socket.CMSG_SPACE(12))
        except ConnectionResetError:
            frame = b""
        if not frame:
            raise CandidateFailure(self._ending())
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
                pid = struct.unpack("=3i", data[:12])[0]
                self._learn(pid)
                if pid != self._pid:
                    raise CandidateFailure("let another process answer")
        return frame

    def _learn(self, pid: int) -> None:
        """The worker says its number in its first frame."""
        if not self._pid:
            self._pid = pid
            with suppress(OSError):  # it is gone, or the kernel has none
                self._end = os.pidfd_open(pid)

    def _check_memory(self) -> None:
        if not self._pid:
            return
        try:
            resident = int(Path(f"/proc/{self._pid}/statm").read_text(encoding="utf-8").split()[1]) * PAGE
        except (FileNotFoundError, ProcessLookupError, IndexError):
            return
        if resident > self._memory:
            raise CandidateFailure(f"used more than its {self._memory / 2**30:.2f} GiB of memory")

    def _ending(self) -> str:
        """How the worker ended."""
        poll = select.poll()
        poll.register(self._status, select.POLLIN)
        data = os.read(self._status, 4) if poll.poll(_STOP_S * 1000) else b""
        if len(data) < 4:
            return "ended without a word"
        code = os.waitstatus_to_exitcode(int.from_bytes(data, "little"))
        if code == _FAULTED:
            return (self.evidence().splitlines() or ["failed"])[-1].strip()
        if code >= 0:
            return f"ended its process with status {code}"
        try:
            return f"crashed: {signal.Signals(-code).name}"
        except ValueError:
            return f"crashed: signal {-code}"

    def evidence(self) -> str:
        """The end of what it printed."""
        size = os.fstat(self._output).st_size
        data = os.pread(self._output, _STDERR_BYTES, max(0, size - _STDERR_BYTES))
        return data.decode(errors="replace").strip()

    def doom(self) -> None:
        """Have it killed without waiting for its end, so that several may end at once."""
        if self._pid:
            self._signal(signal.SIGKILL)

    def kill(self) -> None:
        """End it and all it started, and wait for that. Safe to call twice."""
        if self._status < 0:
            return
        self.doom()
        self._process.end()
        # The end of the status pipe says that the namespace's first process is ending, and so all in it.
        poll = select.poll()
        poll.register(self._status, select.POLLIN)
        while poll.poll(_STOP_S * 1000) and os.read(self._status, 64):
            pass
        if self._end >= 0:  # only then is its memory given back, on a GPU too
            poll = select.poll()
            poll.register(self._end, select.POLLIN)
            poll.poll(_STOP_S * 1000)
            os.close(self._end)
        self._channel.close()
        self._process.ends.close()
        self._status = -1


def _own_waited_ns() -> int:
    return _schedstat_waited("/proc/thread-self/schedstat")


def _schedstat_waited(path: str) -> int:
    """Nanoseconds on a run queue, 0 where the kernel does not count them."""
    try:
        with open(path, "rb") as file:
            return int(file.read().split()[1])
    except (OSError, IndexError):
        return 0
