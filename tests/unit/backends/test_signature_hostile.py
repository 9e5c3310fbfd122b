"""A candidate that cannot be read in time would stop a night's run: reading takes time in proportion to the text."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from backends.signature import parse_signature
from backends.types import SourceError

SOLVE = 'extern "C" void solve(float* x, int n) { k<<<1, 2>>>(x); }\n'
DATA = Path(__file__).parents[2] / "data" / "signatures"

NESTED = {
    "namespaces": "namespace a {" * 3000 + "}" * 3000 + SOLVE,
    "extern blocks": 'extern "C" {' * 3000 + SOLVE + "}" * 3000,
    "parentheses": f"int x = {'(' * 20000}1{')' * 20000};" + SOLVE,
    "launches": f"void f() {{ {'a<<<(' * 5000}{')>>>()' * 5000} }}\n" + SOLVE,
    "attributes": "__attribute__((" * 5000 + "unused" + "))" * 5000 + SOLVE,
}


@pytest.mark.parametrize("kind", NESTED)
def test_what_is_nested_deeper_than_any_stack_is_read(kind: str) -> None:
    assert [p.name for p in parse_signature(NESTED[kind], Path("kernel.cu")).parameters] == ["x", "n"]


UNCLOSED = {
    "launches": "void f() {" + "a<<<" * 20000 + "}\n" + SOLVE,
    "attributes": "__attribute__((" * 20000 + SOLVE,
    "quotes": '"' * 20001 + SOLVE,
    "raw strings": 'R"abc(' * 20000 + SOLVE,
    "stars": f'extern "C" void solve(float{"*" * 20000} x) {{}}',
}


@pytest.mark.parametrize("kind", UNCLOSED)
def test_what_is_never_closed_is_refused_in_a_short_line(kind: str) -> None:
    with pytest.raises(SourceError) as caught:
        parse_signature(UNCLOSED[kind], Path("kernel.cu"))
    assert len(str(caught.value)) < 300


def test_aliases_that_double_at_each_step_are_resolved_once() -> None:
    """2**30 resolutions would take an hour."""
    chain = "".join(f"using a{i} = a{i + 1}; namespace q {{ using a{i} = a{i + 1}; }}\n" for i in range(30))
    signature = parse_signature(f'using a30 = float;\n{chain}extern "C" void solve(a0* x) {{}}', Path("kernel.cu"))
    assert signature.parameters[0].dtype == "float32"


def test_a_typo_anywhere_gives_a_signature_or_one_line() -> None:
    """The parser must never raise anything else: that would be our own bug, and end the run."""
    rng = random.Random(0)
    text = (DATA / "templates_and_lambdas_above.cu").read_text(encoding="utf-8")
    typos = ["", "{", "}", "(", ")", '"', "'", "<<<", ">>>", 'extern "C"', "*", 'R"(', "\n", "#", "__attribute__", "é"]
    read, refused = 0, []
    for _ in range(400):
        damaged = list(text)
        for _ in range(rng.randrange(1, 12)):
            at = rng.randrange(len(damaged))
            damaged[at : at + rng.randrange(4)] = rng.choice(typos)
        try:
            parse_signature("".join(damaged), Path("kernel.cu"))
            read += 1
        except SourceError as error:
            refused.append(str(error))
    assert read > 0
    assert refused
    assert not any("\n" in line for line in refused)
