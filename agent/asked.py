"""The options that say which kernel a command is about. Nothing is looked at yet, so that `--help` answers at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click

FILE = click.Path(path_type=Path)
set_option = click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key: search.branches=2."
)
_OPTIONS = (
    click.argument("kernel", required=False, type=FILE),
    click.option("--ref", type=FILE, help="Reference module."),
    click.option("--dim", "dims", multiple=True, metavar="NAME=VALUE", help="A dim: M=512."),
    click.option(
        "--scalar", "scalars", multiple=True, metavar="NAME=VALUE", help="A by-value parameter that is no dim."
    ),
    click.option("--config", help="Task file instead of KERNEL, or the name of a shipped one (quickstart)."),
    click.option("--kernel", "candidate", type=FILE, help="With --config: this kernel, not the baseline."),
    set_option,
)


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line says of the kernel: KERNEL alone with its dims, or a task file and maybe a kernel of it."""

    kernel: Path | None = None
    ref: Path | None = None
    dims: tuple[str, ...] = ()
    scalars: tuple[str, ...] = ()
    config: str | None = None
    candidate: Path | None = None
    overrides: tuple[str, ...] = ()


def kernel_options(function: Callable[..., None]) -> Callable[..., None]:
    """KERNEL, --ref, --dim, --scalar, --config, --kernel and --set, which arrive together as `asked`."""

    @wraps(function)
    def wrapper(
        kernel: Path | None,
        ref: Path | None,
        dims: tuple[str, ...],
        scalars: tuple[str, ...],
        config: str | None,
        candidate: Path | None,
        overrides: tuple[str, ...],
        **rest: Any,
    ) -> None:
        function(asked=Asked(kernel, ref, dims, scalars, config, candidate, overrides), **rest)

    decorated: Callable[..., None] = wrapper
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated
