"""What a user loses when builds ahead go wrong: a candidate built twice, never, in another's place, or not at all."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest

from agent.ahead import Ahead, build_all
from agent.contract import Contract
from agent.executors.local import LocalExecutor
from backends.cpp import CppBackend
from backends.process import run_process
from backends.types import BuildSpec, Built, Rejected, ToolchainError
from profiling.device import gpu_worker_cores

CORES = gpu_worker_cores()[:1]
KERNEL = 'extern "C" void solve(float* x, int n) { for (int i = 0; i < n; ++i) x[i] += 1; }\n'


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
        if source.name == "wrong.cu":
            return Rejected("build", f"{source.name} {spec.define}")
        return Built(source, source.name, (), "", 0.0, cached=False)


def write(folder: Path, *names: str) -> list[Path]:
    for name in names:
        (folder / name).write_text(name)
    return [folder / name for name in names]


def unread(built: Built) -> None:
    pass


def taken(future: Future[Built | Rejected] | None) -> Built | Rejected:
    assert future is not None
    return future.result(30.0)


def wait_until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30.0
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_was_begun_is_waited_for_and_what_was_not_is_left_to_the_caller(tmp_path: Path) -> None:
    builds = Builds()
    ahead = Ahead(builds, unread, CORES)
    first, second = write(tmp_path, "wrong.cu", "second.cu")
    ahead.start([(first, BuildSpec()), (second, BuildSpec())])
    builds.has_begun.wait(30.0)
    assert ahead.take(second, BuildSpec()) is None  # one core: still waiting for the first
    assert ahead.take(first, BuildSpec(define={"RC_X": "0"})) is None
    builds.may_end.set()
    assert taken(ahead.take(first, BuildSpec())) == Rejected("build", "wrong.cu {}")
    assert ahead.take(first, BuildSpec()) is None
    ahead.close()
    assert builds.begun == ["wrong.cu"]


def test_a_kernel_that_was_rewritten_is_another_one(tmp_path: Path) -> None:
    builds = Builds()
    builds.may_end.set()
    ahead = Ahead(builds, unread, CORES)
    (source,) = write(tmp_path, "kernel.cu")
    ahead.start([(source, BuildSpec())])
    source.write_text("something else")
    assert ahead.take(source, BuildSpec()) is None
    ahead.close()


def test_a_broken_compiler_comes_up_where_the_build_is_asked_for(tmp_path: Path) -> None:
    builds = Builds()
    builds.may_end.set()
    ahead = Ahead(builds, unread, CORES)
    (source,) = write(tmp_path, "broken.cu")
    ahead.start([(source, BuildSpec())])
    builds.has_begun.wait(30.0)
    future = ahead.take(source, BuildSpec())
    assert future is not None
    with pytest.raises(ToolchainError, match="no compiler"):
        future.result(30.0)
    ahead.close()


def test_without_spare_cores_nothing_is_built_ahead(tmp_path: Path) -> None:
    builds = Builds()
    ahead = Ahead(builds, unread, ())
    (source,) = write(tmp_path, "kernel.cu")
    ahead.start([(source, BuildSpec())])
    assert ahead.take(source, BuildSpec()) is None
    ahead.close()
    assert builds.begun == []


def test_what_is_built_is_read_while_it_is_wanted(tmp_path: Path) -> None:
    builds, read = Builds(), list[str]()
    ahead = Ahead(builds, lambda built: read.append(built.key), CORES)
    unwanted, wanted = ((path, BuildSpec()) for path in write(tmp_path, "unwanted.cu", "wanted.cu"))
    ahead.start([unwanted, wanted])
    builds.has_begun.wait(30.0)
    ahead.start([wanted])
    builds.may_end.set()
    wait_until(lambda: bool(read))
    ahead.close()
    assert read == ["wanted.cu"]


def test_builds_ahead_stand_behind_all_else_on_the_cores_that_they_were_given(tmp_path: Path) -> None:
    found: list[tuple[str, set[int]]] = []

    def build(source: Path, spec: BuildSpec) -> Built | Rejected:
        found.append((run_process(["nice"], timeout_s=30.0).stdout.strip(), os.sched_getaffinity(0)))
        return Rejected("build", "")

    before = os.nice(0), os.sched_getaffinity(0)
    ahead = Ahead(build, unread, CORES)
    (source,) = write(tmp_path, "kernel.cu")
    ahead.start([(source, BuildSpec())])
    wait_until(lambda: bool(found))
    ahead.close()
    assert found == [(str(min(19, before[0] + 10)), set(CORES))]
    assert (os.nice(0), os.sched_getaffinity(0)) == before


def test_a_refusal_ahead_is_no_verdict(tmp_path: Path) -> None:
    """A compiler that stood behind others ran into its time limit, say."""
    builds = Builds()
    builds.may_end.set()
    ahead = Ahead(builds, unread, CORES)
    wrong, right, other = ((path, BuildSpec()) for path in write(tmp_path, "wrong.cu", "right.cu", "other.cu"))
    ahead.start([wrong, right])
    wait_until(lambda: len(builds.begun) == 2)
    asked: list[str] = []

    def in_earnest(source: Path) -> Built | Rejected:
        asked.append(source.name)
        return Built(source, "in earnest", (), "", 0.0, cached=False)

    executor = LocalExecutor(lambda task: in_earnest(task.source), None, 1)
    found = build_all([wrong, right, other], ahead, executor)
    executor.close()
    ahead.close()
    assert [built.key for built in found if isinstance(built, Built)] == ["in earnest", "right.cu", "in earnest"]
    assert asked == ["other.cu", "wrong.cu"]


def test_equal_kernels_are_built_once(tmp_path: Path) -> None:
    """With one method, without it is without all."""
    builds = Builds()
    builds.may_end.set()
    (tmp_path / "other").mkdir()
    one, same, off = (tmp_path / "kernel.cu", tmp_path / "other" / "kernel.cu", BuildSpec(define={"RC_X": "0"}))
    one.write_text(KERNEL)
    same.write_text(KERNEL)
    ahead = Ahead(builds, unread, ())
    executor = LocalExecutor(lambda task: builds(task.source, task.spec), None, 2)
    found = build_all([(one, off), (same, off), (one, BuildSpec())], ahead, executor)
    executor.close()
    assert (len(found), builds.begun) == (3, ["kernel.cu", "kernel.cu"])
    assert found[0] is found[1]


def test_a_compiler_that_is_not_needed_any_more_is_killed_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """g++ stands still at a header that is a pipe until it is killed; then the same kernel builds."""
    (source,) = write(tmp_path, "kernel.cpp")
    source.write_text(f'#include "slow.h"\n{KERNEL}')
    plain, slow, cache = tmp_path / "plain.cpp", tmp_path / "slow.h", tmp_path / "cache"
    plain.write_text(KERNEL)
    backend = CppBackend()
    contract = Contract(backend, backend.signature(plain, BuildSpec()), ())
    os.mkfifo(slow)
    begun: list[Path] = []

    def build(path: Path, spec: BuildSpec) -> Built | Rejected:
        begun.append(path)
        return contract.build(path, spec, cache)

    ahead = Ahead(build, unread, CORES)
    ahead.start([(source, BuildSpec())])
    pipe = opened(slow)
    ahead.start([(plain, BuildSpec())])
    with pytest.raises(BrokenPipeError):
        wait_until(lambda: os.write(pipe, b"\n") == 0)
    os.close(pipe)
    assert ahead.take(source, BuildSpec()) is None
    wait_until(lambda: begun == [source, plain])
    assert isinstance(taken(ahead.take(plain, BuildSpec())), Built)  # its core is free again
    assert len(list(cache.iterdir())) == 1
    slow.unlink()
    slow.write_text("")
    executor = LocalExecutor(lambda task: build(task.source, task.spec), None, 1)
    built = build_all([(source, BuildSpec())], ahead, executor)[0]
    executor.close()
    ahead.close()
    assert isinstance(built, Built)
    assert not built.cached


def test_a_run_that_ends_does_not_wait_for_compilers(tmp_path: Path) -> None:
    (source,) = write(tmp_path, "kernel.cpp")
    source.write_text(f'#include "slow.h"\n{KERNEL}')
    os.mkfifo(tmp_path / "slow.h")
    ahead = Ahead(lambda path, spec: CppBackend().build(path, spec, tmp_path / "cache"), unread, CORES)
    ahead.start([(source, BuildSpec(timeout_s=60.0))])
    pipe = opened(tmp_path / "slow.h")
    start = time.monotonic()
    ahead.close()
    assert time.monotonic() - start < 20.0
    os.close(pipe)
    shutil.rmtree(tmp_path / "cache")


def opened(pipe: Path) -> int:
    """The writing end, once somebody reads."""
    deadline = time.monotonic() + 30.0
    while True:
        try:
            return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            assert time.monotonic() < deadline, "nobody reads"
            time.sleep(0.01)
