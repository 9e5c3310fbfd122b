"""The GPU probes compiled: per architecture one translation unit of all of them, each a pair of kernels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from backends.types import Listing
from prompts.catalogue import Method, load_catalogue
from tests.sass import compiled

PROBES = Path(__file__).parents[2] / "data" / "probes" / "gpu"
GPU_BACKENDS = ("cuda", "cutlass", "triton")
Pair = tuple[Listing, Listing]
# What the compiler refuses there, although the card is newer than the first that has it.
REFUSED = {("compute.two_sm_mma", "sm_120a")}


def signed_methods() -> Sequence[Method]:
    """Methods that the catalogue says leave opcodes on a GPU, each once."""
    found: dict[str, Method] = {}
    for method in load_catalogue().methods:
        if method.signature == "opcodes" and set(method.backends) & set(GPU_BACKENDS):
            found.setdefault(method.id, method)
    return tuple(found.values())


def methods_on(arch: str) -> Sequence[str]:
    """Those of them that the catalogue offers on `arch`."""
    return [
        m.id
        for m in signed_methods()
        if any(m.fits(backend, arch) for backend in GPU_BACKENDS) and (m.id, arch) not in REFUSED
    ]


def space(method: str, probe: int) -> str:
    return f"p{probe}_{re.sub(r'[^A-Za-z0-9]', '_', method)}"


def probe_pairs(arch: str, work: Path, also: Iterable[str] = ()) -> Mapping[str, Pair]:
    """Per method of the catalogue there, and of `also`, the plain kernel and the one with it, disassembled."""
    methods = sorted({*methods_on(arch), *also})
    source = ['#include "probe.h"']
    for method in methods:
        for probe in (0, 1):
            source += [f"#define RC_PROBE {probe}", f"namespace {space(method, probe)} {{"]
            source += [f'#include "{method}.cu"', "}", "#undef RC_PROBE"]
    listing = compiled("\n".join(source), arch, work, f"-I{PROBES}")
    return {m: (_part(listing, space(m, 0)), _part(listing, space(m, 1))) for m in methods}


def _part(listing: Listing, name: str) -> Listing:
    """The kernel in namespace `name` and its subroutines, whether or not its name was demangled."""
    own = re.compile(rf"(?:^|\s){name}::|^_ZN{len(name)}{name}6kernel")
    functions = tuple(f for f in listing.functions if own.search(f.name))
    assert functions, f"no kernel in {name}"
    return Listing(listing.arch, functions, "")
