"""What sanitizers found of a kernel before, on disk, by all that it depends on: a baseline is the same in every run.

Only answers are kept, of tools that give the same one every time: one that had none, or lost its own report, is asked
again, and races are looked for anew in every run, since what is missed once must not be held against others for ever.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from profiling.gpu_tools import tool_version
from profiling.sanitizers.findings import CERTAIN, GPU_TOOLS, LOST_REPORT, Finding, Outcome, Tool, Unavailable
from profiling.shared_file import write_whole
from profiling.types import Case, Problem

_ADAPTER = TypeAdapter(tuple[Finding, ...])


@dataclass(frozen=True, slots=True)
class Kept:
    """Outcomes of one kernel.

    Attributes:
        folder: where they lie, out of reach of candidates.
        about: the kernel's build and source name, the device and its driver, and how it is called.
    """

    folder: Path
    about: Sequence[str]

    def load(self, tool: Tool, problem: Problem, case: Case) -> tuple[Finding, ...] | None:
        """What the tool found at this case, nothing where it was clean; None where it is not known."""
        file = self._file(tool, problem, case)
        if file is not None:
            with contextlib.suppress(OSError, ValidationError):
                return _ADAPTER.validate_json(file.read_bytes())
        return None

    def save(self, tool: Tool, problem: Problem, case: Case, outcome: Outcome) -> None:
        """Keep an answer.

        Raises:
            ToolchainError: the folder cannot be written.
        """
        file = self._file(tool, problem, case)
        if file is None or isinstance(outcome, Unavailable) or any(found.kind == LOST_REPORT for found in outcome):
            return
        write_whole(file, _ADAPTER.dump_json(outcome))

    def _file(self, tool: Tool, problem: Problem, case: Case) -> Path | None:
        """By everything that the answer depends on; None where nothing is kept."""
        if tool not in CERTAIN:
            return None
        # A compiler's sanitizers are its own, and the build's key names the compiler.
        release = tool_version("compute-sanitizer") if tool in GPU_TOOLS else "the compiler's"
        if release is None:
            return None
        reference = b"" if problem.reference is None else problem.reference.read_bytes()  # it may make the inputs
        asked = [version("roofclimb"), *self.about, tool, release, sorted(case.dims.items()), repr(case.arguments)]
        digest = hashlib.sha256(json.dumps(asked).encode() + b"\0" + reference)
        return self.folder / f"{digest.hexdigest()}.json"
