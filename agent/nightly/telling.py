"""`on_finish`: a command that is told what the night came to. It can fail or hang, and the night's result stands."""

from __future__ import annotations

import shlex

from agent.nightly.summary import NightSummary
from agent.report import fmt
from backends.process import run_process


def tell(command: str, timeout_s: float, summary: NightSummary) -> str | None:
    """Run the command, without a shell and without our keys, with the summary as JSON on its standard input.

    Args:
        command: as a shell would split it.
        timeout_s: then it and all it started are killed.
        summary: of the night.

    Returns:
        Why it failed, in one line; None where it did not.
    """
    try:
        done = run_process(shlex.split(command), timeout_s=timeout_s, stdin=summary.model_dump_json() + "\n")
    except (ValueError, IndexError) as error:
        return f"on_finish `{command}` cannot be read: {error}"
    except OSError as error:
        return f"on_finish `{command}` cannot be run: {error.strerror}"
    if done.timed_out:
        return f"on_finish `{command}` did not end within {timeout_s:g} s and was killed"
    if done.returncode != 0:
        last = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "")
        said = fmt.one_line(last)[:200]
        return f"on_finish `{command}` ended with exit code {done.returncode}{': ' if said else ''}{said}"
    return None
