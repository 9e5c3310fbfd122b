"""What a user loses: a candidate that wins with a library that the task does not allow."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.config import load_config
from agent.task import build_candidates, prepare_task
from backends.types import Built, Rejected
from tests.loop.scenario import write_task


@pytest.mark.parametrize("allowed", ["[]", "[openblas]"])
def test_a_kernel_that_opens_libraries_itself_is_rejected(allowed: str, tmp_path: Path) -> None:
    """A name under `allow.libraries` allows linking it, not opening any other."""
    settings = {"provider": "replay", "answers": "answers"}
    task = prepare_task(load_config(write_task(tmp_path, settings), [f"task.allow.libraries={allowed}"]))
    body = task.baseline.read_text(encoding="utf-8")
    source = tmp_path / "candidate.cpp"
    source.write_text(
        "#include <dlfcn.h>\nvoid* keep;\n"
        '__attribute__((constructor)) static void open() { keep = dlopen("libopenblas.so.0", 2); }\n' + body,
        encoding="utf-8",
    )
    found, honest = build_candidates(task, [(source, task.spec), (task.baseline, task.spec)], tmp_path / "cache", 2)
    assert found == Rejected("load", "calls dlopen: libraries come from task.allow.libraries alone")
    assert isinstance(honest, Built), honest
