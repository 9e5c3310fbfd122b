"""What a kernel's instructions are: counts by kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from backends.types import Instruction, Listing
from profiling.code_sites import Site, sites_of
from profiling.signature_table import Kind, load_signatures

_MIX = (
    *("scalar_float", "vector_128", "vector_256", "vector_512", "fma", "divisions", "gathers", "prefetches"),
    *("streaming_stores", "spills", "branches"),
)
_GPU_MIX = (
    *("ffma", "fp32", "fp64", "fp16", "special_functions", "integer", "conversions"),
    *("warp_mma", "warpgroup_mma", "block_mma"),
    *("global_loads", "global_loads_16", "global_loads_64", "global_loads_128", "global_stores", "global_stores_128"),
    *("shared_loads", "shared_loads_128", "shared_stores", "matrix_loads", "async_copies", "tma_loads", "tma_stores"),
    *("local_memory", "atomics", "shuffles", "barriers", "mbarriers", "branches"),
)


def instruction_mix(listing: Listing) -> Mapping[str, int | float | str]:
    """Counts of instructions, for prompts and for metrics.

    Returns:
        `instructions`, `instructions_in_loops`, `instructions_in_innermost_loops`; then the kinds of the machine. On a
        CPU, counted in loops only: floating-point arithmetic by width (`scalar_float`, `vector_128`, `vector_256`,
        `vector_512`), `fma`, `divisions` (and square roots), `gathers`, `prefetches`, `streaming_stores`, `spills`
        (vector moves to and from the stack), `branches` (conditional). On a GPU, where many kernels have no loop, those
        that are there, counted anywhere, and as `…_in_loops`: arithmetic by pipe, matrix products, loads and stores by
        space and width in bits (no width: all), copies, atomics, barriers, local memory. Then `calls_in_loops`, and
        `call_targets`, the names of those called, where there are any. A kind that the signature file does not define
        for this architecture is left out, not zero.
    """
    sites = sites_of(listing)
    looped = [s.instruction for s in sites if s.in_loop]
    classes = load_signatures().on(listing.arch).kinds(listing.arch)
    mix: dict[str, int | float | str] = {
        "instructions": len(sites),
        "instructions_in_loops": len(looped),
        "instructions_in_innermost_loops": sum(s.loop is not None for s in sites),
    }
    if listing.arch.startswith("sm_"):
        mix.update(_gpu_mix(classes, sites))
    else:
        mix.update({name: sum(map(classes[name].holds, looped)) for name in _MIX if name in classes})
    if "calls" in classes:
        own = {f.name for f in listing.functions}
        calls = [i for i in looped if classes["calls"].holds(i)]
        mix["calls_in_loops"] = len(calls)
        names = Counter(_called(i, own) for i in calls)
        if names:
            mix["call_targets"] = ", ".join(name if n == 1 else f"{name} x{n}" for name, n in names.most_common())
    return mix


def _gpu_mix(classes: Mapping[str, Kind], sites: Sequence[Site]) -> Mapping[str, int]:
    mix: dict[str, int] = {}
    for name in (n for n in _GPU_MIX if n in classes):
        held = [s.in_loop for s in sites if classes[name].holds(s.instruction)]
        if held:
            mix[name] = len(held)
        if any(held):
            mix[f"{name}_in_loops"] = sum(held)
    return mix


def _called(instruction: Instruction, own: set[str]) -> str:
    if instruction.target is None:
        return "(through a pointer)"
    return f"{instruction.target} (own)" if instruction.target in own else instruction.target
