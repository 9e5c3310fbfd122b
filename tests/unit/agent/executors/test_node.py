"""What a user loses when a node does another thing than the run would: bytes in and bytes out, no cluster needed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.executors import node
from agent.executors.orders import evaluate_order, stored
from agent.executors.wire import REPLY, BuildReply, EvaluateReply, Refused
from backends.types import Built, Rejected
from tests.loop.scenario import BROKEN, HEAD, WRONG, kernel
from tests.unit.agent.executors.bench import Bench

pytestmark = pytest.mark.timed


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench.make(tmp_path_factory.mktemp("task"))


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A node's own cache."""
    before, cache = os.environ["XDG_CACHE_HOME"], tmp_path_factory.mktemp("node")
    os.environ["XDG_CACHE_HOME"] = str(cache)
    yield cache / "roofclimb"
    os.environ["XDG_CACHE_HOME"] = before


def test_a_build_there_is_the_build_here(bench: Bench, there: Path, tmp_path: Path) -> None:
    source = kernel(2).replace("0.0f", "ZERO").replace("extern", '#include "zero.h"\nextern', 1)
    task = bench.written("good", source)
    order, contents = bench.writer.build(task)
    assert str(bench.folder) not in order.model_dump_json()
    reply = REPLY.validate_json(node.build(order.model_dump_json().encode(), contents.__getitem__))
    assert isinstance(reply, BuildReply), reply
    built = stored(reply, tmp_path / "parcels")
    assert isinstance(built, Built)
    assert built.artifact.is_relative_to(tmp_path)
    here = bench.task.backend.build(task.source, task.spec, tmp_path / "builds")
    assert isinstance(here, Built)
    assert here.artifact.read_bytes() == built.artifact.read_bytes()
    assert here.key == built.key


@pytest.mark.parametrize(
    ("name", "source", "stage"),
    [
        ("broken", BROKEN, "build"),
        ("other", f"{HEAD.replace('int N', 'long N')} {{ y[0] = 0; }}\n", "signature"),
        ("spy", f'#include "/srv/secret.h"\n{HEAD} {{}}\n', "build"),
    ],
)
def test_a_kernel_that_is_wrong_there_is_a_value(
    bench: Bench, there: Path, tmp_path: Path, name: str, source: str, stage: str
) -> None:
    order, contents = bench.writer.build(bench.written(name, source))
    reply = REPLY.validate_json(node.build(order.model_dump_json().encode(), contents.__getitem__))
    assert isinstance(reply, BuildReply), reply
    found = stored(reply, tmp_path)
    assert isinstance(found, Rejected)
    assert found.stage == stage


def test_another_version_or_compiler_is_refused_before_anything_is_done(bench: Bench, there: Path) -> None:
    order, contents = bench.writer.build(bench.written("versions", WRONG))
    older = json.dumps({**json.loads(order.model_dump_json()), "version": "0.0.1", "unheard_of": 1}).encode()
    tools = order.model_copy(update={"toolchain": {**order.toolchain, "g++": "g++ 1.0"}}).model_dump_json().encode()
    for sent, said in ((older, "and the run 0.0.1"), (tools, "and g++ 1.0 for the run")):
        reply = REPLY.validate_json(node.build(sent, contents.__getitem__))
        assert isinstance(reply, Refused)
        assert said in reply.reason


def test_an_evaluation_there_gives_verdict_and_the_best_kernels_time_there(bench: Bench, there: Path) -> None:
    (description, known) = bench.writer.bench(bench.setting)
    wrong = bench.task.backend.build(bench.written("wrong", WRONG).source, bench.task.spec, bench.folder / "home")
    assert isinstance(wrong, Built)
    for built, verdicts in ((bench.baseline, {"pass", "suspect"}), (wrong, {"fail"})):
        order, contents = evaluate_order(description, known, built, bench.baseline)
        reply = REPLY.validate_json(node.evaluate(order.model_dump_json().encode(), contents.__getitem__))
        assert isinstance(reply, EvaluateReply), reply
        assert reply.evaluation.verdict in verdicts
        assert reply.base_ms > 0
    assert len(list((there / "harness").glob("harness-*"))) == 1  # the second found the first's harness open
    elsewhere = description.model_copy(update={"device": "another CPU"})
    order, contents = evaluate_order(elsewhere, known, bench.baseline, bench.baseline)
    reply = REPLY.validate_json(node.evaluate(order.model_dump_json().encode(), contents.__getitem__))
    assert isinstance(reply, Refused)
    assert "executor.resources" in reply.reason
    node.give_back()
    assert list((there / "harness").glob("harness-*")) == []
