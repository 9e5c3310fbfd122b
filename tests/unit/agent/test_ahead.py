"""What a user loses when builds ahead go wrong: a candidate built twice, never, or another one in its place."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from agent.ahead import Ahead
from backends.types import BuildSpec, Built, Rejected, ToolchainError
from profiling.device import gpu_worker_cores

CORES = gpu_worker_cores()[:1]


class Builds:
    """Builds by name, when they may."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.has_begun, self.may_end = threading.Event(), threading.Event()

    def __call__(self, source: Path, spec: BuildSpec) -> Built | Rejected:
        self.begun.append(source.name)
        self.has_begun.set()
        self.may_end.wait(30.0)
        if source.name == "broken.cu":
            raise ToolchainError("no compiler")
        return Rejected("build", f"{source.name} {spec.define}")


def write(folder: Path, *names: str) -> list[Path]:
    for name in names:
        (folder / name).write_text(name)
    return [folder / name for name in names]


def test_what_was_begun_is_waited_for_and_what_was_not_is_left_to_the_caller(tmp_path: Path) -> None:
    builds = Builds()
    ahead = Ahead(builds, CORES)
    first, second = write(tmp_path, "first.cu", "second.cu")
    ahead.start([(first, BuildSpec()), (second, BuildSpec())])
    builds.has_begun.wait(30.0)
    assert ahead.take(second, BuildSpec()) is None  # one core: still waiting for the first
    assert ahead.take(first, BuildSpec(define={"RC_X": "0"})) is None
    builds.may_end.set()
    assert ahead.take(first, BuildSpec()) == Rejected("build", "first.cu {}")
    assert ahead.take(first, BuildSpec()) is None
    ahead.close()
    assert builds.begun == ["first.cu"]


def test_a_kernel_that_was_rewritten_is_another_one(tmp_path: Path) -> None:
    builds = Builds()
    builds.may_end.set()
    ahead = Ahead(builds, CORES)
    (source,) = write(tmp_path, "kernel.cu")
    ahead.start([(source, BuildSpec())])
    source.write_text("something else")
    assert ahead.take(source, BuildSpec()) is None
    ahead.close()


def test_a_broken_compiler_comes_up_where_the_build_is_asked_for(tmp_path: Path) -> None:
    builds = Builds()
    builds.may_end.set()
    ahead = Ahead(builds, CORES)
    (source,) = write(tmp_path, "broken.cu")
    ahead.start([(source, BuildSpec())])
    builds.has_begun.wait(30.0)
    with pytest.raises(ToolchainError, match="no compiler"):
        ahead.take(source, BuildSpec())
    ahead.close()


def test_without_spare_cores_nothing_is_built_ahead(tmp_path: Path) -> None:
    builds = Builds()
    ahead = Ahead(builds, ())
    (source,) = write(tmp_path, "kernel.cu")
    ahead.start([(source, BuildSpec())])
    assert ahead.take(source, BuildSpec()) is None
    ahead.close()
    assert builds.begun == []
