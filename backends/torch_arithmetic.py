"""Whether torch computes: its kernels run then, not those of the Triton kernel that is looked at."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch.utils._python_dispatch import TorchDispatchMode

# Memory, constants and copies.
_HARMLESS = frozenset(
    (
        *("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "resize", "set"),
        *("zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones", "full", "full_like", "new_full"),
        *("fill", "zero", "arange", "scalar_tensor", "copy", "clone", "to_copy", "contiguous", "detach", "lift_fresh"),
        *("view", "unsafe_view", "reshape", "reshape_alias"),
    )
)

Call = Callable[..., object]


@contextlib.contextmanager
def computed() -> Iterator[list[str]]:
    """The list is filled with torch operations that compute: kernels of torch's run for them, not the candidate's."""
    found: list[str] = []

    def called(func: Call, args: Sequence[torch.Tensor], named: dict[str, object]) -> object:
        name = str(func).removeprefix("aten.").partition(".")[0]
        if not getattr(func, "is_view", False) and name.strip("_") not in {*_HARMLESS, *found}:
            found.append(name)
        return func(*args, **named)

    with mode(TorchDispatchMode, "__torch_dispatch__", called):
        yield found


def mode(
    base: type, method: str, called: Callable[[Call, Sequence[torch.Tensor], dict[str, object]], object]
) -> contextlib.AbstractContextManager[object]:
    """A torch mode that has `called` make the calls."""

    def intercepted(
        self: object,
        func: Call,
        kinds: object,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        return called(func, args, dict(kwargs or {}))

    # Else torch imports its compiler on the first call: 900 modules, a second or two in every worker, behind walls.
    parts = {method: intercepted, "_should_skip_dynamo": classmethod(lambda cls: False)}
    made: contextlib.AbstractContextManager[object] = type(base.__name__, (base,), parts)()
    return made
