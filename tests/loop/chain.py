"""A run that is killed at every one of its events: `python -m tests.loop.chain RUN_DIR`.

One process forks a session after the other. A session dies by SIGKILL once an event is on disk that was not killed at
before, every second one as soon as it has taken the run up. The last one meets nothing new, and ends the run.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from agent.events import AnyEvent, SessionStarted
from agent.session import proceed

UNHEARD = ("run_started", "shapes_drawn")  # logged before progress listens


class Killer:
    """Progress that kills its own process once the log holds something new, or as soon as the session has begun."""

    def __init__(self, folder: Path, at_once: bool) -> None:
        self._folder = folder
        self._at_once = at_once
        self._seen: set[tuple[str, str]] = set()

    def catch_up(self, past: Sequence[AnyEvent]) -> None:
        """What stands in the log was killed at before."""
        self._seen.update((e.type, e.key) for e in past)
        unheard = past[-1].type in UNHEARD
        if self._at_once or (unheard and not (self._folder / ".killed").exists()):
            (self._folder / ".killed").touch()
            self._die()

    def __call__(self, event: AnyEvent) -> None:
        """Die at it, if it is new enough."""
        later_session = isinstance(event, SessionStarted) and event.key != "0"
        if not later_session and (event.type, event.key) not in self._seen:
            self._die()

    def activity(self, text: str) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing is held."""

    @staticmethod
    def _die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def main(folder: Path) -> None:
    """Run the chain; how many kills it took, and how the last session ended, goes to stdout."""
    kills = 0
    while True:
        pid = os.fork()
        if pid == 0:
            killer = Killer(folder, at_once=kills % 2 == 1)
            try:
                proceed(folder, lambda _, killer=killer: killer)  # type: ignore[misc]
                os._exit(0)
            except BaseException as error:
                print(repr(error), file=sys.stderr, flush=True)
                os._exit(1)
        _, status = os.waitpid(pid, 0)
        if not os.WIFSIGNALED(status):
            print(json.dumps({"kills": kills, "exit": os.waitstatus_to_exitcode(status)}))
            return
        kills += 1


if __name__ == "__main__":
    main(Path(sys.argv[1]))
