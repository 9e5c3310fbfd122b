"""A kernel's machine code as a report: its functions, instructions and resources, beside those of another kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from backends.types import KernelResources, Listing
from profiling.code_identity import same_code
from profiling.code_mix import instruction_mix
from profiling.findings import MethodPresence
from profiling.machine_code import check_methods

_RESOURCES = ("registers", "spill_store_bytes", "spill_load_bytes", "stack_bytes", "shared_bytes", "constant_bytes")


@dataclass(frozen=True, slots=True)
class FunctionSize:
    """One function: its instructions, and how many of them lie in loops."""

    name: str
    instructions: int
    in_loops: int


@dataclass(frozen=True, slots=True)
class Change:
    """A number of the kernel before and of this one; None is not there, or not said."""

    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class SassReport:
    """What a listing says.

    Attributes:
        arch: what it was built for.
        functions: in the order of the image.
        mix: see `instruction_mix`, with the kernel before where there is one.
        resources: the most that one of its kernels takes, per thread or block, as the compiler says.
        same_code: whether the two kernels are the same instructions; None without a kernel before.
        presence: one verdict per method; empty without a kernel before.
    """

    arch: str
    functions: tuple[FunctionSize, ...]
    mix: Mapping[str, Change | str]
    resources: Mapping[str, Change]
    same_code: bool | None
    presence: tuple[MethodPresence, ...]


def sass_report(
    listing: Listing,
    before: Listing | None = None,
    *,
    resources: Sequence[KernelResources] = (),
    resources_before: Sequence[KernelResources] = (),
    methods: Sequence[str] = (),
) -> SassReport:
    """What a kernel's machine code shows.

    Args:
        listing: the kernel.
        before: the kernel that it grew from.
        resources: of the kernel, as its build says.
        resources_before: of the kernel before.
        methods: whose presence is asked for; needs `before`.
    """
    sizes = tuple(
        FunctionSize(f.name, len(f.instructions), sum(i.loop_depth > 0 for i in f.instructions))
        for f in listing.functions
    )
    return SassReport(
        arch=listing.arch,
        functions=sizes,
        mix=_mix(None if before is None else instruction_mix(before), instruction_mix(listing)),
        resources=resource_summary(resources_before, resources),
        same_code=None if before is None else same_code(before, listing),
        presence=() if before is None else check_methods(methods, before, listing),
    )


def resource_summary(before: Sequence[KernelResources], after: Sequence[KernelResources]) -> Mapping[str, Change]:
    """Per resource the most that one kernel takes, in both builds; what neither says is left out."""
    found = {name: Change(_most(name, before), _most(name, after)) for name in _RESOURCES}
    return {name: change for name, change in found.items() if change != Change(None, None)}


def _most(name: str, kernels: Sequence[KernelResources]) -> int | None:
    return max((value for k in kernels if (value := getattr(k, name)) is not None), default=None)


def _mix(
    before: Mapping[str, int | float | str] | None, after: Mapping[str, int | float | str]
) -> Mapping[str, Change | str]:
    """A kind that only one of two kernels has counts as zero in the other."""
    names = [*after, *(n for n in before or {} if n not in after)]
    found: dict[str, Change | str] = {}
    for name in names:
        old, new = (before or {}).get(name, 0), after.get(name, 0)
        if isinstance(old, str) or isinstance(new, str):
            found[name] = str(new or "none")
        else:
            found[name] = Change(None if before is None else int(old), int(new))
    return found
