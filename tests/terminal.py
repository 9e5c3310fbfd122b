"""A real pseudo-terminal and what a person would see on it."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyte

_DEADLINE_S = 60.0


class Terminal:
    """A process on a terminal of `columns` by `rows`, with the screen as an emulator draws it.

    Attributes:
        raw: all bytes that came.
    """

    def __init__(
        self,
        command: Sequence[str],
        cwd: Path,
        columns: int = 100,
        rows: int = 30,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._leader, follower = os.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._screen = pyte.HistoryScreen(columns, rows, history=5000, ratio=1.0)
        self._stream = pyte.ByteStream(self._screen)
        self.raw = b""
        known = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "LINES", "FORCE_COLOR")}
        self.process = subprocess.Popen(
            command,
            cwd=cwd,
            stdin=follower,
            stdout=follower,
            stderr=follower,
            env={**known, "TERM": "xterm-256color", **(env or {})},
            start_new_session=True,
            preexec_fn=_own_terminal,
        )
        os.close(follower)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._leader)

    @property
    def shown(self) -> str:
        """The screen as it is now, without the blanks at the ends of lines."""
        return "\n".join(line.rstrip() for line in self._screen.display).rstrip()

    @property
    def scrolled(self) -> str:
        """All lines: what has scrolled away, then the screen."""
        columns = range(self._screen.columns)
        past = ("".join(line[x].data for x in columns).rstrip() for line in self._screen.history.top)
        return "\n".join([*past, self.shown])

    @property
    def cursor_hidden(self) -> bool:
        """Whether a shell would come back to a terminal without a cursor."""
        return self._screen.cursor.hidden

    def press_ctrl_c(self) -> None:
        """As the key does: the terminal sends SIGINT to the process group in front."""
        os.write(self._leader, b"\x03")

    def resize(self, columns: int, rows: int) -> None:
        """As a window manager does."""
        fcntl.ioctl(self._leader, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._screen.resize(rows, columns)
        self.process.send_signal(signal.SIGWINCH)

    def read(self, seconds: float) -> None:
        """Draw what comes within this time."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not self._read_some(left):
                return

    def until(self, seen: Callable[[Terminal], bool], what: str) -> None:
        """Draw until `seen`."""
        end = time.monotonic() + _DEADLINE_S
        while not seen(self):
            if time.monotonic() > end or not self._read_some(0.1):
                if seen(self):
                    return
                raise AssertionError(f"{what} never came; the screen was:\n{self.scrolled}")

    def wait(self) -> int:
        """Draw until the process ends; its exit code."""
        self.until(lambda t: t.process.poll() is not None, "the end")
        self.read(0.2)
        return self.process.wait()

    def _read_some(self, seconds: float) -> bool:
        """False once nobody holds the other end any more."""
        if not select.select([self._leader], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self._leader, 65536)
        except OSError:
            time.sleep(0.05)
            return self.process.poll() is None
        self.raw += data
        self._stream.feed(data)
        return True


def _own_terminal() -> None:
    """Ctrl-C reaches a process only from its controlling terminal, and none that was started to ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def agent(*arguments: str) -> list[str]:
    """The command line, as a user calls it."""
    return [sys.executable, "-m", "agent", *arguments]
