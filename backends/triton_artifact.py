"""What a built Triton kernel is on disk: a folder with its source, Triton's own cache of it, and `kernels.json`."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from backends.types import Argument, KernelResources

SOURCE, CACHE, RECORD = "kernel.py", "cache", "kernels.json"
_CACHE_BYTES = 256 << 20

Choices = Mapping[str, Mapping[str, int]]
"""For each autotuner and each key that it was asked for, the index of the configuration that is used."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Fault(_Model):
    """A child process's answer where the kernel is at fault: one line, and the log behind it."""

    fault: str
    evidence: str


class DescribedArgument(_Model):
    """One argument as JSON; see `backends.types.Argument`."""

    name: str
    dtype: str
    shape: tuple[int, ...] | None
    value: bool | int | float | None
    output: bool


class Call(_Model):
    """What `run_kernel` is called with once."""

    arguments: tuple[DescribedArgument, ...]

    def as_arguments(self) -> tuple[Argument, ...]:
        """The same for the rest of the program."""
        return tuple(Argument(a.name, a.dtype, a.shape, a.value, a.output) for a in self.arguments)


class Described(_Model):
    """A child process's answer to `describe`."""

    calls: tuple[Call, ...]


class Choice(_Model):
    """The configuration `config` of an autotuner, where it is asked for `key`."""

    tuner: str
    key: str
    config: int


class Launch(_Model):
    """A launch as the child process saw it; `hash` is Triton's for the compiled kernel."""

    hash: str
    grid: tuple[int, int, int]
    choice: Choice | None


class Reply(_Model):
    """A child process's answer to `build`.

    Attributes:
        launches: with the first set of arguments, in order.
        others: with the other sets.
        usage: what cuobjdump says of each binary, by its SHA-256.
        tuners: configurations as text.
        torch: operations that run kernels of torch's.
        launchers: whether all native parts that a launch needs are in the cache.
    """

    launches: tuple[Launch, ...]
    others: tuple[Launch, ...]
    usage: Mapping[str, Mapping[str, int]]
    tuners: Mapping[str, tuple[str, ...]]
    torch: tuple[str, ...]
    launchers: bool


class Kernel(_Model):
    """One compiled kernel that `run_kernel` launches.

    Attributes:
        name: the function.
        hash: Triton's.
        cubin, ptx: files, relative to the artefact.
        grid: of its first launch.
        choice: what it was compiled for; None without autotuning.
    """

    name: str
    hash: str
    cubin: str
    ptx: str
    grid: tuple[int, int, int]
    num_warps: int
    num_stages: int
    num_ctas: int
    shared_bytes: int
    registers: int | None
    stack_bytes: int | None
    constant_bytes: int | None
    spill_store_bytes: int | None
    spill_load_bytes: int | None
    choice: Choice | None


class Artifact(_Model):
    """`kernels.json`.

    Attributes:
        arch: the target, such as `sm_90`.
        triton: its version.
        kernels: what is launched at the timed dims, each once; of an autotuned kernel all configurations until the
            choice is frozen.
        others: what is launched at other dims.
        tuners: autotuners with more than one configuration.
        choices: frozen, by autotuner and key; empty before.
        torch: operations of torch that `run_kernel` computes with.
        launchers: whether the native parts of launches are in the cache.
    """

    arch: str
    triton: str
    kernels: tuple[Kernel, ...]
    others: tuple[Kernel, ...]
    tuners: Mapping[str, tuple[str, ...]]
    choices: Choices
    torch: tuple[str, ...]
    launchers: bool

    def resources(self) -> tuple[KernelResources, ...]:
        """What each kernel takes."""
        return tuple(
            KernelResources(
                name=k.name,
                arch=self.arch,
                registers=k.registers,
                spill_store_bytes=k.spill_store_bytes,
                spill_load_bytes=k.spill_load_bytes,
                stack_bytes=k.stack_bytes,
                shared_bytes=k.shared_bytes,
                constant_bytes=k.constant_bytes,
            )
            for k in self.kernels
        )


def read_artifact(folder: Path) -> Artifact:
    """The record of an artefact. Raises OSError or pydantic's ValidationError (a ValueError) where there is none."""
    return Artifact.model_validate_json((folder / RECORD).read_text(encoding="utf-8"))


def write_artifact(folder: Path, artifact: Artifact) -> None:
    """Write the record of an artefact."""
    (folder / RECORD).write_text(artifact.model_dump_json(indent=1), encoding="utf-8")


def write_empty(folder: Path, arch: str) -> None:
    """Make the new folder `folder` the artefact of a `run_kernel` that does nothing."""
    (folder / CACHE).mkdir(parents=True)
    (folder / SOURCE).write_text("def run_kernel(**_):\n    pass\n", encoding="utf-8")
    nothing = Artifact(
        arch=arch, triton="", kernels=(), others=(), tuners={}, choices={}, torch=(), launchers=True
    )  # fmt: skip
    write_artifact(folder, nothing)


def keep_files(artifact: Path, text: str) -> None:
    """Undo what a kernel's own code may have done to its artefact: its source is `text`, its cache plain files alone.

    Raises:
        ValueError: its folders are no longer folders, or hold more than any build.
    """
    cache, source = artifact / CACHE, artifact / SOURCE
    if artifact.is_symlink() or cache.is_symlink():
        raise ValueError("the build put links in the place of its folders")
    source.unlink(missing_ok=True)
    source.write_text(text, encoding="utf-8")
    size = 0
    for folder in list(os.scandir(cache)):
        if not folder.is_dir(follow_symlinks=False):
            os.unlink(folder)
            continue
        for file in list(os.scandir(folder)):
            if file.is_dir(follow_symlinks=False):
                shutil.rmtree(file)
            elif not file.is_file(follow_symlinks=False):
                os.unlink(file)
            else:
                size += file.stat(follow_symlinks=False).st_size
    if size > _CACHE_BYTES:
        raise ValueError(f"the build left {size >> 20} MiB in Triton's cache")


def collect(folder: Path, reply: Reply, arch: str, triton: str) -> Artifact:
    """The record of what lies in Triton's cache under `folder` after the child process answered.

    Raises:
        ValueError, KeyError, OSError: the cache does not hold what the answer says.
    """
    found = {str(record["hash"]): (path, record) for path, record in _records(folder / CACHE)}

    def kernels(launches: Sequence[Launch]) -> tuple[Kernel, ...]:
        first: dict[tuple[str, str], Launch] = {}
        for launch in launches:
            first.setdefault((launch.hash, repr(launch.choice)), launch)
        return tuple(_kernel(folder, *found[launch.hash], launch, reply.usage) for launch in first.values())

    return Artifact(
        arch=arch,
        triton=triton,
        kernels=kernels(reply.launches),
        others=kernels(reply.others),
        tuners=reply.tuners,
        choices={},
        torch=reply.torch,
        launchers=reply.launchers,
    )


def _records(cache: Path) -> Iterable[tuple[Path, dict[str, object]]]:
    for path in sorted(cache.glob("*/*.json")):
        if not path.name.startswith("__grp__"):
            record = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(record, dict) and "hash" in record:
                yield path, record


def _kernel(
    folder: Path, path: Path, record: Mapping[str, object], launch: Launch, usage: Mapping[str, Mapping[str, int]]
) -> Kernel:
    cubin = path.with_suffix(".cubin")
    taken = usage.get(hashlib.sha256(cubin.read_bytes()).hexdigest(), {})
    spills = record.get("spill_bytes")
    stores, loads = spills if isinstance(spills, list) else (None, None)
    return Kernel.model_validate(
        {
            "name": record["name"],
            "hash": launch.hash,
            "cubin": str(cubin.relative_to(folder)),
            "ptx": str(path.with_suffix(".ptx").relative_to(folder)),
            "grid": launch.grid,
            "num_warps": record["num_warps"],
            "num_stages": record["num_stages"],
            "num_ctas": record.get("num_ctas", 1),
            "shared_bytes": record["shared"],
            "registers": taken.get("REG"),
            "stack_bytes": taken.get("STACK"),
            "constant_bytes": taken.get("CONSTANT"),
            "spill_store_bytes": stores,
            "spill_load_bytes": loads,
            "choice": launch.choice,
        }
    )


def freeze(source: Path, target: Path, choices: Choices) -> Artifact:
    """Copy the artefact `source` to the new folder `target` with its autotuners' choices made.

    Kernels of other configurations are left out, and so are their compiled forms.

    Raises:
        ValueError: a choice that is not among the configurations, or none for an autotuner.
    """
    before = read_artifact(source)
    for tuner, configs in before.tuners.items():
        made = choices.get(tuner, {})
        if not made or not all(0 <= index < len(configs) for index in made.values()):
            raise ValueError(f"no valid choice for autotuner {tuner}")
    if unknown := sorted(set(choices) - set(before.tuners)):
        raise ValueError(f"choices for an autotuner that the kernel does not have: {unknown[0]}")
    kept, others = (
        tuple(k for k in kernels if k.choice is None or _is_chosen(k.choice, choices))
        for kernels in (before.kernels, before.others)
    )
    folders = {Path(k.cubin).parent for k in (*kept, *others)}
    dropped = {Path(k.cubin).parent for k in (*before.kernels, *before.others)} - folders

    def left_out(folder: str, names: list[str]) -> list[str]:
        return [name for name in names if Path(folder, name).relative_to(source) in dropped]

    shutil.copytree(source, target, ignore=left_out)
    after = before.model_copy(update={"kernels": kept, "others": others, "choices": choices})
    write_artifact(target, after)
    return after


def _is_chosen(choice: Choice, choices: Choices) -> bool:
    return choices.get(choice.tuner, {}).get(choice.key) == choice.config
