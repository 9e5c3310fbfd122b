"""What a user loses when a Triton source is misread: a switch that turns nothing off, a kernel on the wrong data."""

from __future__ import annotations

import pytest

from backends.triton_source import bind, function, has_switch, import_refusal, parse, source_hash, with_constants
from backends.types import Argument, SourceError

ARGUMENTS = (
    Argument("x", "float32", (4, 8), None, output=False),
    Argument("y", "bfloat16", (4, 8), None, output=True),
    Argument("n", "int64", None, 8, output=False),
    Argument("eps", "float64", None, 1e-5, output=False),
    Argument("causal", "bool", None, True, output=False),
)


def refused(text: str) -> str:
    with pytest.raises(SourceError) as caught:
        bind(parse(text, "k.py"), ARGUMENTS, "k.py")
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    "head",
    [
        "def run_kernel(x, y, n, eps, causal):",
        "def run_kernel(causal, *, eps, n, y, x):",
        "def run_kernel(x, y, **_):",
        "def run_kernel(x, y, n, eps, causal, extra=None):",
        "@torch.no_grad()\ndef run_kernel(**inputs):",
    ],
)
def test_one_signature_however_run_kernel_takes_its_keywords(head: str) -> None:
    """A candidate that orders its parameters otherwise, or ignores some, is still the same kernel."""
    found = bind(parse(f"{head}\n    pass\n", "k.py"), ARGUMENTS, "k.py").parameters
    assert [(p.name, p.type, p.dtype, p.pointer, p.const) for p in found] == [
        ("x", "tensor", "float32", True, True),
        ("y", "tensor", "bfloat16", True, False),
        ("n", "int", "int64", False, False),
        ("eps", "float", "float64", False, False),
        ("causal", "bool", "bool", False, False),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def kernel(): pass", "no function `run_kernel`"),
        ("def run_kernel(x, y, n, eps, causal, stride): pass", "k.py:1: run_kernel requires `stride`"),
        ("def run_kernel(x, y, n, eps, causal, *, stride): pass", "requires `stride`"),
        ("def run_kernel(x, y): pass", "does not take `n`; add it or `**_`"),
        ("def run_kernel(x, /, y, **_): pass", "`x` is positional-only"),
        ("def run_kernel(**_): pass\n\ndef run_kernel(**_): pass", "more than once (lines 1, 3)"),
        ("if A:\n  def run_kernel(**_): pass\nelse:\n  def run_kernel(**_): pass", "more than once (lines 2, 4)"),
        ("async def run_kernel(**_): pass", "k.py:1: `run_kernel` is async"),
        ("x = 1\ndef run_kernel(x:\n    pass", "k.py:2: "),
        ("x = '\0'", "null bytes"),
        ("(" * 5000, "k.py"),
    ],
)
def test_a_kernel_that_cannot_be_called_is_refused_with_the_place(text: str, said: str) -> None:
    """Found here it costs nothing; found on the GPU it costs a worker and a riddle."""
    assert said in refused(text)


def test_setup_is_looked_for_at_module_level() -> None:
    """A `setup` inside a class is not the task's."""
    with pytest.raises(SourceError, match="no function `setup`"):
        function(parse("class A:\n    def setup(self): pass", "k.py"), "setup", "k.py")


SWITCHED = '''"""Größe."""  # RC_TILING = 1
import triton.language as tl
RC_TILING: tl.constexpr = tl.constexpr(1)  # keep this comment
RC_PLAIN = 1 ; RC_ÜBER = 1; RC_LAST = 1
RC_BOOL: bool = True
RC_ODD = compute()
if RC_PLAIN:
    RC_NESTED = triton.language.constexpr(value := 1) if False else 1

def host():
    RC_BOOL_LOCAL = RC_BOOL
    return "RC_PLAIN = 1", RC_TILING.value, RC_LAST
'''


@pytest.mark.parametrize(
    ("switch", "before", "after"),
    [
        ("RC_TILING", "tl.constexpr(1)  # keep", "tl.constexpr(0)  # keep"),
        ("RC_PLAIN", "RC_PLAIN = 1 ;", "RC_PLAIN = 0 ;"),
        ("RC_LAST", "RC_LAST = 1", "RC_LAST = 0"),
        ("RC_BOOL", "bool = True", "bool = False"),
    ],
)
def test_turning_a_switch_off_changes_its_value_and_nothing_else(switch: str, before: str, after: str) -> None:
    """An ablation that changes more than the method attributes milliseconds to the wrong thing."""
    assert with_constants(SWITCHED, {switch: "0"}, "k.py") == SWITCHED.replace(before, after, 1)


def test_several_switches_at_once() -> None:
    """The audit turns all of them off."""
    off = with_constants(SWITCHED, {"RC_PLAIN": "0", "RC_LAST": "0", "RC_TILING": "0", "RC_NONE": "0"}, "k.py")
    assert "RC_PLAIN = 0 ; RC_ÜBER = 1; RC_LAST = 0" in off
    assert "tl.constexpr(0)" in off


def test_a_value_that_is_no_number_is_refused() -> None:
    """`define` comes from a task file: what it cannot mean must not become code."""
    with pytest.raises(SourceError, match=r"k.py:5: `__import__\('os'\)` cannot be"):
        with_constants(SWITCHED, {"RC_BOOL": "__import__('os')"}, "k.py")


@pytest.mark.parametrize("switch", ["RC_TILING", "RC_PLAIN", "RC_BOOL", "RC_LAST"])
def test_a_switch_that_decides_something_is_one(switch: str) -> None:
    """Methods without a switch cost another request to ablate."""
    assert has_switch(SWITCHED, switch)


@pytest.mark.parametrize("switch", ["RC_ÜBER", "RC_ODD", "RC_BOOL_LOCAL", "RC_NONE"])
def test_a_constant_that_nothing_reads_or_nobody_can_set_is_no_switch(switch: str) -> None:
    """Turned off it would change no code, and the method would be called a failed implementation."""
    assert not has_switch(SWITCHED, switch)


def test_no_switch_in_what_is_not_python() -> None:
    """A broken answer has to reach the build, which says what is wrong with it."""
    assert not has_switch("RC_X = (", "RC_X")


def test_equal_programs_have_equal_hashes() -> None:
    """Duplicates cost a build and a measurement each."""
    a = 'def f(x):\n    """Doc."""\n    # comment\n    return x + 1\n'
    b = "\ndef f( x ):\n\n    return (x\n      + 1)\n"
    assert source_hash(a) == source_hash(b)
    assert source_hash(a) != source_hash(b.replace("+ 1", "+ 2"))
    assert source_hash('X = "# a"') != source_hash('X = "# b"')
    assert source_hash("def (") != source_hash("def ((")


@pytest.mark.parametrize(
    "text",
    [
        "import torch, triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\nimport math",
        "from __future__ import annotations\nfrom typing import Any\nimport functools, dataclasses",
        "import torch\ny = torch.empty(3).view(3)\nz = torch.float16",
    ],
)
def test_what_kernels_need_is_let_through(text: str) -> None:
    """A misfire costs an honest candidate."""
    assert import_refusal(text, ()) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import math\nimport ctypes", "line 2: uses `ctypes`"),
        ("from os import path", "uses `os`"),
        ("def f():\n    import subprocess as s", "line 2: uses `subprocess`"),
        ("import numpy as np", "uses `numpy`"),
        ("from . import other", "uses `.`"),
        ("import torch.nn.functional as F", "uses `torch.nn.functional`"),
        ("from torch import nn", "uses `torch.nn`"),
        ("import torch\ny = torch.ops.aten.mm(a, b)", "line 2: uses `torch.ops"),
        ("from triton._C import libtriton", "uses `triton._C`"),
        ("f = __import__('os')", "calls `__import__`"),
        ("open('/dev/shm/answer')", "calls `open`"),
    ],
)
def test_what_brings_in_others_work_is_refused_with_the_line(text: str, said: str) -> None:
    """The reason goes into the next prompt: it must say what to take out."""
    assert said in (import_refusal(text, ()) or "")


def test_the_task_may_allow_a_module() -> None:
    """`allow.libraries` is the user's word."""
    assert import_refusal("import numpy\nfrom torch import nn", ("numpy", "torch.nn")) is None
