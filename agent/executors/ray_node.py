"""The two functions that Ray calls on its nodes. Contents come from Ray's object store, by digest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.executors import node


def build(order: bytes, contents: Mapping[str, Any]) -> bytes:
    """A build: `contents` are references to bytes, by digest."""
    return node.build(order, _fetcher(contents))


def evaluate(order: bytes, contents: Mapping[str, Any]) -> bytes:
    """An evaluation."""
    return node.evaluate(order, _fetcher(contents))


def _fetcher(contents: Mapping[str, Any]) -> node.Fetch:
    import ray

    return lambda name: bytes(ray.get(contents[name]))
