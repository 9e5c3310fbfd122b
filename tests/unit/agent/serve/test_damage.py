"""No log, however damaged, takes the page from the other runs."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.serve.catalog import Catalog
from agent.serve.compare import compare
from agent.serve.pages import Pages
from tests.unit.agent import event_log
from tests.writer import write_run

ODD: tuple[Any, ...] = (
    *(
        None,
        "",
        "not a date",
        "<b>&",
        0,
        -1,
        -0.5,
        1e308,
        10**40,
        float("nan"),
        float("inf"),
        True,
        [],
        {},
        [1],
        {"a": 1},
    ),
    *("2026-11-30T01:00:00", "iter1-branch-b0-0", "\x00\u202e", "9" * 5000),
)


def shown(root: Path) -> None:
    """Every page of every run there."""
    catalog, pages = Catalog(root), Pages()
    catalog.refresh()
    pages.runs(catalog)
    for number, view in enumerate(catalog.runs()):
        pages.run(catalog, view)
        pages.run_fragment(view)
        if number < 3:  # charts take a while to be drawn
            pages.comparison(compare(root, view, view))


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in an event."""
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield from places(item, (*path, key))


def changed(event: dict[str, Any], path: tuple[Any, ...], odd: Any) -> str:
    copy = json.loads(json.dumps(event))
    at = copy
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = odd
    return json.dumps(copy)


@pytest.mark.parametrize("seed", range(3))
def test_events_that_say_odd_things(tmp_path: Path, seed: int) -> None:
    choice = random.Random(seed)
    events = [json.loads(e.model_dump_json()) for e in event_log.whole_run()]
    for number in range(25):
        lines = [json.dumps(e) for e in events]
        for _ in range(choice.randint(1, 3)):
            index = choice.randrange(len(events))
            path = choice.choice(list(places(events[index])))
            lines[index] = changed(events[index], path, choice.choice(ODD))
        folder = write_run(tmp_path / f"run_{number}", [])
        (folder / "events.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8", errors="surrogatepass")
    shown(tmp_path)


@pytest.mark.parametrize("field", ["at", "elapsed_s", "seq", "key"])
@pytest.mark.parametrize("odd", ODD, ids=lambda odd: repr(odd)[:20])
def test_every_event_has_an_odd_stamp(tmp_path: Path, field: str, odd: object) -> None:
    folder = write_run(tmp_path / "run_1", [])
    lines = [changed(json.loads(e.model_dump_json()), (field,), odd) for e in event_log.whole_run()]
    (folder / "events.jsonl").write_text("\n".join(lines) + "\n")
    shown(tmp_path)


def test_events_in_any_order_left_out_and_twice(tmp_path: Path) -> None:
    choice = random.Random(7)
    lines = [e.model_dump_json() for e in event_log.whole_run()]
    for number in range(40):
        some = choice.choices(lines, k=choice.randint(1, 60))
        folder = write_run(tmp_path / f"run_{number}", [])
        (folder / "events.jsonl").write_text("\n".join(some) + "\n")
    shown(tmp_path)


@pytest.mark.parametrize(
    "log",
    [
        b"[" * 100_000 + b"\n",
        b"{}\n",
        b"null\n",
        b'{"type": 5}\n',
        b"\xff\xfe\n",
        b"\n\n\n",
        b'{"type":"x"}\n' * 9,
        b"\0" * 4096,
    ],
    ids=["nested", "empty object", "null", "type", "bytes", "blank", "unknown", "zeros"],
)
def test_what_is_no_log(tmp_path: Path, log: bytes) -> None:
    folder = write_run(tmp_path / "run_1", [])
    (folder / "events.jsonl").write_bytes(log)
    (folder / "config.yaml").write_bytes(log)
    night = tmp_path / "night_1"
    night.mkdir()
    (night / "night.jsonl").write_bytes(log)
    shown(tmp_path)


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: repr(odd)[:20])
def test_a_config_that_says_odd_things(tmp_path: Path, odd: object) -> None:
    folder = write_run(tmp_path / "run_1")
    config = {"search": {"iterations": odd, "branches": odd}, "budget": {"minutes": odd, "usd": odd}, "memory": odd}
    (folder / "config.yaml").write_text(json.dumps(config))
    shown(tmp_path)
