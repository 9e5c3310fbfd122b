"""A run that is killed at every one of its events: `python -m tests.loop.chain RUN_DIR`.

One process forks a session after the other. A session dies by SIGKILL as soon as an event is on disk that was not killed at
before, and every second one already as it starts. The last one, which meets nothing new, ends the run.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from agent.events import AnyEvent, SessionStarted
from agent.session import proceed

TIMES = 2  # an event that comes again after a kill (a request that was in flight) is killed at again, twice in a row


class Killer:
    """Progress that kills its own process once the log holds something new."""

    def __init__(self, at_once: bool) -> None:
        self._at_once = at_once
        self._seen: Counter[tuple[str, str]] = Counter()

    def catch_up(self, past: Sequence[AnyEvent]) -> None:
        """What stands in the log was killed at before, but for what was written before progress listens."""
        self._seen.update((e.type, e.key) for e in past)
        if past and (past[-1].type in ("run_started", "shapes_drawn")):
            mark = Path(sys.argv[1]) / f".killed-{past[-1].type}"
            if not mark.exists():
                mark.touch()
                self._die()

    def __call__(self, event: AnyEvent) -> None:
        """Die at it, if it is new enough."""
        self._seen[(event.type, event.key)] += 1
        if isinstance(event, SessionStarted):
            if self._at_once:
                self._die()
        elif self._seen[(event.type, event.key)] <= TIMES:
            self._die()

    def activity(self, text: str) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing is held."""

    @staticmethod
    def _die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def main(folder: Path) -> None:
    """Run the chain; the number of kills goes to stdout."""
    kills = 0
    while True:
        pid = os.fork()
        if pid == 0:
            try:
                proceed(folder, lambda _: Killer(at_once=kills % 2 == 1))
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
