"""Exploits made of a task's own baseline: a run's harness is tried on the run's own task before it is believed.

They are the cases `first_call_only` and `after_return` (`no_op` is the harness's own empty kernel). Each calls the
baseline, so what is wrong with it is the cheat alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from backends.types import Signature
from profiling.harness.runner_build import c_types

# Long enough that no reply takes as long, on any machine: what is written after it comes too late.
_LATE_MS = 50

_NATIVE = """#define solve roofclimb_honest
{baseline}
#undef solve
#include <chrono>
#include <cstdint>
#include <thread>
static void roofclimb_call({parameters}) {{
    reinterpret_cast<{returns} (*)({types})>(roofclimb_honest)({names});
}}
extern "C" {returns} solve({parameters}) {{
    {body}{end}
}}
"""
_BODIES: Mapping[str, str] = {
    "first_call_only": "static bool done; if (!done) roofclimb_call({names}); done = true;",
    "after_return": "std::thread([=] {{ std::this_thread::sleep_for(std::chrono::milliseconds({late})); "
    "roofclimb_call({names}); }}).detach();",
}

# While it is built, where CUDA is not initialised, it launches all that there is to be compiled.
_TRITON = """{baseline}

import threading as _threading
import time as _time
import torch as _torch


def _first_call_only(run, done=[]):
    def cheat(**inputs):
        if not _torch.cuda.is_initialized() or not done:
            run(**inputs)
        if _torch.cuda.is_initialized():
            done.append(True)

    return cheat


def _after_return(run):
    def late(inputs):
        _time.sleep({late} / 1000)
        run(**inputs)

    def cheat(**inputs):
        if not _torch.cuda.is_initialized():
            return run(**inputs)
        _threading.Thread(target=late, args=(inputs,), daemon=True).start()

    return cheat


run_kernel = _{name}(run_kernel)
"""
NAMES = tuple(_BODIES)


def cheat_source(name: str, baseline: str, signature: Signature, *, triton: bool) -> str:
    """The source of the exploit `name`, of `NAMES`.

    Args:
        name: which.
        baseline: the baseline's source.
        signature: its signature.
        triton: whether it is a Triton kernel.

    Raises:
        TaskError: a parameter cannot be passed on.
    """
    if triton:
        return _TRITON.format(baseline=baseline, name=name, late=_LATE_MS)
    types = c_types(signature)
    names = ", ".join(f"a{i}" for i in range(len(types)))
    return _NATIVE.format(
        baseline=baseline,
        parameters=", ".join(f"{c_type} a{i}" for i, c_type in enumerate(types)),
        returns=signature.returns,
        types=", ".join(types),
        names=names,
        body=_BODIES[name].format(names=names, late=_LATE_MS),
        end=" return 0;" if signature.returns == "int" else "",
    )
