"""What a user loses when processes cannot be ended: cores, or a verdict that an ended one never gave."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path

import pytest

from backends.process import Completed, Ended, Ending, run_process


def governed(ending: Ending, *argv: str) -> Completed:
    with ending.governs():
        return run_process(argv, timeout_s=60.0)


def test_an_ended_process_is_killed_with_all_of_its_group_and_says_nothing(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    ending = Ending()
    with ThreadPoolExecutor(1) as pool:
        # The one in the background holds the output open: only its death lets the runner go on at once.
        future = pool.submit(governed, ending, "sh", "-c", f"sleep 60 & touch {begun}; sleep 60")
        deadline = time.monotonic() + 30.0
        while not begun.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        start = time.monotonic()
        ending.end()
        with pytest.raises(Ended):
            future.result(30.0)
        assert time.monotonic() - start < 4.0


def test_after_the_end_nothing_begins(tmp_path: Path) -> None:
    ending = Ending()
    ending.end()
    with pytest.raises(Ended):
        governed(ending, "touch", str(tmp_path / "begun"))
    assert not (tmp_path / "begun").exists()


def test_it_governs_its_own_thread_and_those_with_its_context_alone() -> None:
    ending, outcomes = Ending(), list[object]()

    def run() -> None:
        try:
            outcomes.append(run_process(["true"], timeout_s=60.0).returncode)
        except Ended as ended:
            outcomes.append(type(ended))

    with ending.governs():
        ending.end()
        threads = [threading.Thread(target=run), threading.Thread(target=copy_context().run, args=(run,))]
        for thread in threads:
            thread.start()
            thread.join()
    run()
    assert outcomes == [0, Ended, 0]
