"""What a user loses when a real CUDA entry point is misread: wrong arguments, or a run paid for nothing.

Every file goes through nvcc's preprocessor and the parser, as a run's baseline does.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict
from ruamel.yaml import YAML

from agent.inspection import inspect_kernel, role_of
from backends.registry import detect, get_backend
from backends.types import BuildSpec, Signature, SourceError

DATA = Path(__file__).parents[2] / "data" / "signatures"


class Expected(BaseModel):
    model_config = ConfigDict(extra="forbid")

    parameters: list[str] = []
    returns: str = "void"
    refused: str | None = None


EXPECTED = {
    name: Expected.model_validate(entry)
    for name, entry in YAML(typ="safe").load((DATA / "expected.yaml").read_text(encoding="utf-8")).items()
}


def read(source: Path) -> Signature | str:
    try:
        return get_backend(detect(source)).signature(source, BuildSpec())
    except SourceError as error:
        return str(error)


@pytest.fixture(scope="module")
def found() -> Mapping[str, Signature | str]:
    """What comes of each file; two at once, the preprocessor takes most of the time."""
    sources = sorted(DATA.glob("*.cu"))
    with ThreadPoolExecutor(2) as pool:
        return dict(zip((source.name for source in sources), pool.map(read, sources), strict=True))


def test_every_file_is_expected(found: Mapping[str, Signature | str]) -> None:
    """A case without an expectation would be a case that nobody looks at."""
    assert list(found) == sorted(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_real_entry_points(name: str, found: Mapping[str, Signature | str]) -> None:
    """Right, or refused in one line that says where, why and what to do, before anything is built."""
    signature, expected = found[name], EXPECTED[name]
    if isinstance(signature, str):
        assert signature == expected.refused
        return
    read = [f"{p.type} {p.name} | {p.dtype} | {role_of(p)}" for p in signature.parameters]
    assert (expected.refused, signature.returns, read) == (None, expected.returns, expected.parameters)


def test_messages_name_the_file_as_it_is_called(tmp_path: Path) -> None:
    """nvcc reads a copy under a plain name where the name has brackets; the user knows only their own."""
    source = tmp_path / "softmax [v2], fast.cu"
    source.write_text('\nextern "C" void solve(const float** rows) {}\n', encoding="utf-8")
    message = read(source)
    assert isinstance(message, str)
    assert message.startswith("softmax [v2], fast.cu:2: parameter 1 ")


def test_inspect_shows_what_would_be_bound(tmp_path: Path) -> None:
    """Brackets in a path are no markup, and a stream is not something to give a value to."""
    source = tmp_path / "a [b]" / "kernel.cu"
    source.parent.mkdir()
    source.write_bytes((DATA / "stream.cu").read_bytes())
    data, table = inspect_kernel(source)
    assert data["backend"] == "cuda"
    assert [p["role"] for p in data["parameters"]] == ["in", "out", "scalar", "default stream"]
    assert "[b]" in table.replace("\n", "")
    assert "default stream" in table
