"""A real Ray cluster of several nodes on this machine, all of it on the loopback interface.

Nodes are processes with a cache of their own; GPUs are numbers that Ray schedules by, and no kernel needs one.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The second makes Ray take 127.0.0.1 for this machine's address.
ENVIRONMENT: Mapping[str, str] = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
_STORE_BYTES = 80 << 20


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running cluster: a head that does no work, and nodes with one GPU each.

    Attributes:
        address: for `executor.address`.
        caches: the cache folder of each node.
    """

    address: str
    caches: tuple[Path, ...]
    _ray: Any
    _nodes: tuple[Any, ...]

    def kill(self, node: int) -> None:
        """As a power cut would, by SIGKILL."""
        self._ray.remove_node(self._nodes[node], allow_graceful=False)

    def kill_all(self) -> None:
        """Every node that is left; the head stays."""
        for node in self._nodes:
            if node in self._ray.worker_nodes:
                self._ray.remove_node(node, allow_graceful=False)


@contextmanager
def running(nodes: int) -> Iterator[Cluster]:
    """A cluster of so many nodes."""
    before = dict(os.environ)
    folder = Path(tempfile.mkdtemp(prefix="rc"))  # short: names of sockets lie below it
    os.environ.update(ENVIRONMENT, RAY_TMPDIR=str(folder))
    from ray.cluster_utils import Cluster as RayCluster

    common = {"object_store_memory": _STORE_BYTES, "node_ip_address": "127.0.0.1"}
    head = {**common, "num_cpus": 0, "include_dashboard": False}
    ray = RayCluster(initialize_head=True, head_node_args=head, connect=False)
    try:
        caches = tuple(folder / f"cache{number}" for number in range(nodes))
        started = []
        for cache in caches:
            os.environ["XDG_CACHE_HOME"] = str(cache)
            started.append(ray.add_node(num_cpus=2, num_gpus=1, **common))
        os.environ["XDG_CACHE_HOME"] = before.get("XDG_CACHE_HOME", "")
        yield Cluster(ray.address, caches, ray, tuple(started))
    finally:
        ray.shutdown()
        os.environ.clear()
        os.environ.update(before)
        shutil.rmtree(folder, ignore_errors=True)
