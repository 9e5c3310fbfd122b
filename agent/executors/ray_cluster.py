"""A Ray cluster: every build is a CPU task, every evaluation a GPU task, and a lost node costs a retry.

JSON goes both ways, and files by digest. What Ray itself serialises is bytes and its own references, never anything
that a candidate made.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import socket
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from agent.config_executor import ExecutorSection
from agent.elsewhere import Elsewhere
from agent.errors import UnfitEnvironment
from agent.executors.local import LocalExecutor
from agent.executors.orders import Contents, Writer, evaluate_order, stored
from agent.executors.parcels import BadParcel
from agent.executors.types import BuildTask, EvaluateTask, Found, Setting, Trouble
from agent.executors.wire import REPLY, Bench, BuildReply, EvaluateReply, Refused, Reply
from backends.types import Built, Rejected

_POLL_S = 1.0
_ANSWER_S = 10.0
_MOST_AT_ONCE = 64
_UNSENDABLE = (BadParcel, OSError)


class _Lost(Exception):
    """A task that came to nothing through no fault of its kernel; the message says why."""


class RayExecutor:
    """Spreads over a cluster. What the cluster cannot do is done at home.

    Args:
        section: which cluster, and what its nodes must have.
        writer: writes orders for the run.
        home: this machine.
        store: where builds that come from nodes are kept.
        on_gpu: whether kernels run on a GPU.
        threads: cores that a kernel on the host uses.
        stopped: whether the run is to stop.

    Raises:
        UnfitEnvironment: Ray is not installed, there is no such cluster, or nothing in it can evaluate.
    """

    together = False

    def __init__(
        self,
        section: ExecutorSection,
        writer: Writer,
        home: LocalExecutor,
        store: Path,
        *,
        on_gpu: bool,
        threads: int,
        stopped: Callable[[], bool],
    ) -> None:
        self._home, self._writer, self._store, self._stopped = home, writer, store, stopped
        self.spare_cores = home.spare_cores
        self._tries = 1 + section.retries
        self._needs: dict[str, float] = {"GPU": 1.0} if on_gpu else {"CPU": float(threads), **_gpus(section.resources)}
        self._ray = connect(section.address)
        from agent.executors import ray_node

        others = {name: amount for name, amount in section.resources.items() if name != "GPU"}
        options: dict[str, Any] = {"max_retries": 0, "scheduling_strategy": "SPREAD"}
        remote = self._ray.remote
        self._build = remote(ray_node.build).options(num_cpus=1, **options)
        self._evaluate = remote(ray_node.evaluate).options(
            num_cpus=self._needs.get("CPU", 0.0), num_gpus=self._needs.get("GPU", 0.0), resources=others, **options
        )
        self._needs |= others
        self._threads = ThreadPoolExecutor(_MOST_AT_ONCE, "ray")
        self._troubles: queue.SimpleQueue[Trouble] = queue.SimpleQueue()
        self._references: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._bench: tuple[Bench, Contents] | None = None
        if not self._room():
            wanted = ", ".join(f"{amount:g} {name}" for name, amount in self._needs.items())
            self._ray.shutdown()
            raise UnfitEnvironment(
                f"no node of the Ray cluster has what an evaluation needs ({wanted}): start one that has, or set "
                "executor: local"
            )

    @property
    def places(self) -> int:
        """As many as the cluster has room for now, and at least the run's own device."""
        return min(_MOST_AT_ONCE, max(1, self._room()))

    def prepare(self, setting: Setting) -> None:
        """What nodes must know goes with every order; a node that knows it already keeps its harness."""
        try:
            self._bench = self._writer.bench(setting)
        except _UNSENDABLE as error:
            self._troubles.put(Trouble(None, "the Ray cluster", str(error)))

    def open_workers(self, kernels: int, at_home: int = 0) -> None:
        """At home alone: which node gets which kernel is Ray's to say, and it opens none before it has it."""
        self._home.open_workers(0, at_home)

    def build(self, task: BuildTask) -> Future[Built | Rejected]:
        """On any node."""
        return self._threads.submit(self._build_there, task)

    def evaluate(self, task: EvaluateTask) -> Future[Found]:
        """On any node that has what it needs."""
        return self._threads.submit(self._evaluate_there, task)

    def troubles(self) -> list[Trouble]:
        """What went wrong since this was asked last."""
        found = self._home.troubles()
        while not self._troubles.empty():
            found.append(self._troubles.get())
        return found

    def close(self) -> None:
        """Leave the cluster."""
        self._threads.shutdown(cancel_futures=True)
        self._ray.shutdown()
        self._home.close()

    def _build_there(self, task: BuildTask) -> Built | Rejected:
        what = f"build of {task.source.parent.name}/{task.source.name}"
        try:
            order, contents = self._writer.build(task)
        except _UNSENDABLE as error:
            self._troubles.put(Trouble(what, "the Ray cluster", str(error)))
            return self._home.build(task).result()

        def accept(reply: Reply) -> Built | Rejected:
            if not isinstance(reply, BuildReply):
                raise _Lost("gave no proper answer to a build")
            try:
                return stored(reply, self._store)
            except BadParcel as error:
                raise _Lost(str(error)) from None

        done = self._persist(what, self._build, order.model_dump_json().encode(), contents, accept)
        return self._home.build(task).result() if done is None else done

    def _evaluate_there(self, task: EvaluateTask) -> Found:
        (kernel,) = task.kernels
        what = f"evaluation of build {kernel.key[:8]}"
        if self._bench is None:
            return self._home.evaluate(task).result()
        try:
            order, contents = evaluate_order(*self._bench, kernel, task.base)
        except _UNSENDABLE as error:
            self._troubles.put(Trouble(what, "the Ray cluster", str(error)))
            return self._home.evaluate(task).result()

        def accept(reply: Reply) -> Found:
            if not isinstance(reply, EvaluateReply) or reply.base_ms <= 0:
                raise _Lost("gave no proper answer to an evaluation")
            scale = task.base_ms / reply.base_ms
            return Found((reply.evaluation,), Elsewhere(device=reply.device, base_ms=reply.base_ms, scale=scale))

        done = self._persist(what, self._evaluate, order.model_dump_json().encode(), contents, accept)
        return self._home.evaluate(task).result() if done is None else done

    def _persist(self, what: str, remote: Any, order: bytes, contents: Contents, accept: Callable[[Reply], Any]) -> Any:
        """The result of a task, tried on the cluster a few times; None where that came to nothing."""
        references = self._put(contents)
        for _ in range(self._tries):
            try:
                return accept(self._ask(remote, order, references))
            except _Lost as error:
                self._troubles.put(Trouble(what, "the Ray cluster", str(error)))
                if not self._room():
                    break
        return None

    def _ask(self, remote: Any, order: bytes, references: Mapping[str, Any]) -> Reply:
        """One try. Raises _Lost, and InterruptedError when the run is to stop."""
        ray = self._ray
        reference = remote.remote(order, references)
        while not ray.wait([reference], timeout=_POLL_S)[0]:
            if self._stopped():
                ray.cancel(reference, force=True)
                raise InterruptedError("stopped while a node of the cluster worked")
            if not self._room():
                ray.cancel(reference, force=True)
                raise _Lost("no node is left that can do it")
        try:
            reply = REPLY.validate_json(ray.get(reference))
        except ray.exceptions.RayError as error:
            raise _Lost(_first_line(error)) from None
        except ValidationError:
            raise _Lost("a node sent what is no reply") from None
        if isinstance(reply, Refused):
            raise _Lost(reply.reason)
        return reply

    def _put(self, contents: Contents) -> dict[str, Any]:
        """Contents in Ray's store, each once a run."""
        with self._lock:
            for name, data in contents.items():
                if name not in self._references:
                    self._references[name] = self._ray.put(data)
            return {name: self._references[name] for name in contents}

    def _room(self) -> int:
        """How many evaluations fit on the nodes that are alive, were they empty; none where nobody says."""
        try:
            nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        except self._ray.exceptions.RayError:
            return 0
        return sum(
            min(int(node.get(name, 0.0) / amount) for name, amount in self._needs.items() if amount) for node in nodes
        )


def _gpus(resources: Mapping[str, float]) -> dict[str, float]:
    return {name: amount for name, amount in resources.items() if name == "GPU"}


def connect(address: str) -> Any:
    """Ray, connected; quiet, and without its reports home.

    Raises:
        UnfitEnvironment: it is not installed, or there is no such cluster.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise UnfitEnvironment(
            f"executor: ray needs Ray ({error}): pip install 'roofclimb[ray]', or set executor: local"
        ) from None
    _reach(address)
    # Ray tells of lost nodes on standard output, which is the result's alone; there is no public switch for it.
    ray._private.worker._worker_logs_enabled = False
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        ray.init(address=address, namespace="roofclimb", log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
        raise UnfitEnvironment(
            f"executor.address: no Ray cluster at {address} ({_first_line(error)}): start one with `ray start --head`, "
            "or set executor: local"
        ) from None
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)  # Ray takes SIGTERM for itself, and a run has to save first
    return ray


def _reach(address: str) -> None:
    """Ray waits for minutes where nobody answers. Raises UnfitEnvironment."""
    host, _, port = address.rpartition(":")
    if "://" in address:
        raise UnfitEnvironment(
            f"executor.address: {address} is for Ray's client; run on a machine that is part of the cluster "
            "(`ray start --address=HOST:PORT --num-cpus=0` makes it one), and write HOST:PORT or auto"
        )
    if port.isdigit():
        try:
            socket.create_connection((host, int(port)), _ANSWER_S).close()
        except OSError as error:
            raise UnfitEnvironment(
                f"executor.address: no Ray cluster answers at {address} ({error.strerror or error}): start one with "
                "`ray start --head`, or set executor: local"
            ) from None


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]
