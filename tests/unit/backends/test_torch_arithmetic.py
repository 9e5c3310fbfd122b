"""Whether torch computes in a Triton kernel is asked in every call, so asking must be cheap and right."""

from __future__ import annotations

import subprocess
import sys

ASK = """
import sys, torch
from backends.torch_arithmetic import computed
before = set(sys.modules)
with computed() as found:
    x = torch.empty(4, 4).fill_(1.0)
    y = x.view(16)[:8].contiguous()
print(found)
with computed() as found:
    torch.mm(x, x)
    x.add_(1.0)
print(found)
print(sorted(set(sys.modules) - before))
"""


def test_memory_and_views_are_no_arithmetic_products_are_and_no_compiler_is_imported_to_tell() -> None:
    """Torch would import its compiler on the first call in a mode: two seconds, in a worker behind walls."""
    done = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "['mm', 'add_']", "[]"]
