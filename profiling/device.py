"""Facts about this machine's CPU, read from `/proc` and `/sys`. What cannot be read is None, never a guess."""

from __future__ import annotations

import hashlib
import os
import platform
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_GPU_WORKER_CORES = 8
_FEWEST_APART = 3
_ROOT = Path("/")
_FEATURES = re.compile(
    r"^(sse4_2|avx|avx2|avx512\w+|avx_\w+|amx_\w+|fma|f16c|bmi2|asimd|asimdhp|asimddp|fphp|bf16|i8mm|sve|sve2|sme)$"
)


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """The CPU that kernels run on.

    Attributes:
        id: 16 hex digits over model, stepping, microcode, features, online cores and cache sizes. Equal ids mean that
            measured ceilings may be reused and times compared.
        name: marketing name, or vendor/family/model where there is none.
        arch: `x86_64`, `aarch64` …
        features: instruction-set features that matter to kernels, sorted.
        physical_cores: cores without their SMT siblings, None if unknown.
        usable_cores: what this process may use: its affinity, bounded by the cgroup's CPU quota; at least 1.
        l1d_bytes, l2_bytes, l3_bytes: data-cache sizes of one instance (not summed over cores), None if unknown.
        memory_bytes: main memory, bounded by the cgroup's limit, None if unknown.
        virtualised: whether a hypervisor announces itself, None if unknown.
    """

    id: str
    name: str
    arch: str
    features: tuple[str, ...]
    physical_cores: int | None
    usable_cores: int
    l1d_bytes: int | None
    l2_bytes: int | None
    l3_bytes: int | None
    memory_bytes: int | None
    virtualised: bool | None


def cpu_facts(root: Path = _ROOT) -> DeviceFacts:
    """Read the facts of the machine whose `/proc` and `/sys` lie under `root`."""
    processors = _processors(root)
    first = processors[0] if processors else {}
    flags = (first.get("flags") or first.get("Features") or "").split()
    arch = platform.machine()
    caches = {level: _cache_bytes(root, level) for level in (1, 2, 3)}
    identity = [arch, str(len(processors)), *(f"{level}={size}" for level, size in caches.items())]
    identity += [
        f"{key}={first[key]}"
        for key in ("vendor_id", "cpu family", "model", "model name", "stepping", "microcode", "CPU implementer",
                    "CPU part", "CPU variant", "CPU revision")
        if key in first
    ]  # fmt: skip
    identity += sorted(set(flags))
    return DeviceFacts(
        id=hashlib.sha256("\n".join(identity).encode()).hexdigest()[:16],
        name=_name(first, arch),
        arch=arch,
        features=tuple(sorted(flag for flag in set(flags) if _FEATURES.match(flag))),
        physical_cores=_physical_cores(processors),
        usable_cores=_usable_cores(root),
        l1d_bytes=caches[1],
        l2_bytes=caches[2],
        l3_bytes=caches[3],
        memory_bytes=memory_total(root),
        virtualised="hypervisor" in flags if flags and arch in ("x86_64", "AMD64") else None,
    )


def gpu_worker_cores() -> tuple[int, ...]:
    """The CPUs that a worker on a GPU, with the driver's threads, may use: all but the first, up to a number."""
    allowed = sorted(os.sched_getaffinity(0))
    return tuple(allowed[1:] or allowed)[:_GPU_WORKER_CORES]


def spare_cores() -> tuple[int, ...]:
    """The CPUs that neither a worker on a GPU nor the system, the controller and the oracle need."""
    allowed = sorted(os.sched_getaffinity(0))
    return tuple(core for core in allowed[1:] if core not in gpu_worker_cores())


def helper_cores(helpers: int, spare: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """The CPUs of each further GPU that is measured on beside the first: a worker's, and one for the rest.

    They are taken from `spare` and lie apart from each other, so that what happens on one GPU does not wait for
    another. With too few CPUs for that nothing is set apart, and there is one empty tuple for each.
    """
    share = min(_GPU_WORKER_CORES + 1, len(spare) // max(1, helpers))
    if share < _FEWEST_APART:
        return ((),) * helpers
    return tuple(tuple(spare[i * share : (i + 1) * share]) for i in range(helpers))


def pinned_cores(threads: int, root: Path = _ROOT) -> tuple[int, ...]:
    """The CPUs that `threads` threads are pinned to: one per physical core first, then SMT siblings, highest first.

    The lowest are where the system, the controller and the oracle run.

    Ceilings and kernels must be measured on the same cores, so both sides ask here.

    Raises:
        ValueError: fewer cores are usable than threads are asked for.
    """
    allowed = sorted(os.sched_getaffinity(0))
    if not 1 <= threads <= len(allowed):
        raise ValueError(f"{threads} threads asked for, {len(allowed)} cores usable: lower `device.threads`")
    taken: set[str] = set()
    leaders: list[int] = []
    siblings: list[int] = []
    for cpu in reversed(allowed):
        core = _text(root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") or str(cpu)
        (siblings if core in taken else leaders).append(cpu)
        taken.add(core)
    return tuple((leaders + siblings)[:threads])


def memory_total(root: Path = _ROOT) -> int | None:
    """Bytes of main memory, bounded by the cgroup's limits; None if unknown."""
    total = _meminfo(root, "MemTotal")
    return None if total is None else min([total, *(limit for limit, _ in _memory_limits(root))])


def memory_available(root: Path = _ROOT) -> int | None:
    """Bytes that could be allocated now: by the machine, and by what each cgroup above us has left; None if unknown."""
    free = _meminfo(root, "MemAvailable")
    return None if free is None else max(0, min([free, *(limit - used for limit, used in _memory_limits(root))]))


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _processors(root: Path) -> list[dict[str, str]]:
    blocks = re.split(r"\n\s*\n", _text(root / "proc/cpuinfo") or "")
    parsed = [dict(_pairs(block.splitlines())) for block in blocks]
    return [block for block in parsed if "processor" in block]


def _pairs(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        key, colon, value = line.partition(":")
        if colon:
            yield key.strip(), value.strip()


def _name(first: dict[str, str], arch: str) -> str:
    if first.get("model name"):
        return first["model name"]
    parts = [first[key] for key in ("vendor_id", "cpu family", "model", "CPU implementer", "CPU part") if key in first]
    return " ".join([arch, *parts])


def _physical_cores(processors: list[dict[str, str]]) -> int | None:
    cores = {(p.get("physical id"), p["core id"]) for p in processors if "core id" in p}
    return len(cores) or None


def _meminfo(root: Path, name: str) -> int | None:
    match = re.search(rf"^{name}:\s+(\d+) kB", _text(root / "proc/meminfo") or "", re.MULTILINE)
    return int(match.group(1)) * 1024 if match else None


def _memory_limits(root: Path) -> Iterator[tuple[int, int]]:
    """Each limit above this process, with the bytes used under it that could not be taken back."""
    for folder, limit in _cgroup_values(root, "memory.max", "memory/memory.limit_in_bytes"):
        if limit.isdigit():
            used = _text(folder / "memory.current") or _text(folder / "memory.usage_in_bytes") or ""
            # v1 counts a group's own pages and, as `total_`, those of the groups in it: the larger covers both.
            cached = re.findall(r"^(?:total_)?inactive_file (\d+)", _text(folder / "memory.stat") or "", re.MULTILINE)
            yield int(limit), (int(used) if used.isdigit() else 0) - max(map(int, cached), default=0)


def _cgroup_values(root: Path, v2: str, v1: str) -> Iterator[tuple[Path, str]]:
    """A control file's folder and contents at each level from our own cgroup up to the root, v2 and v1 alike."""
    for line in (_text(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        controller, _, v1_file = v1.partition("/")
        if controllers == "":
            bases, name = [root / "sys/fs/cgroup", root / "sys/fs/cgroup/unified"], v2
        elif controller in controllers.split(","):
            bases, name = [root / "sys/fs/cgroup" / controllers, root / "sys/fs/cgroup" / controller], v1_file
        else:
            continue
        for base in bases:
            own = base / path.lstrip("/")
            for folder in (own, *own.parents):
                if (value := _text(folder / name)) is not None:
                    yield folder, value
                if folder == base:
                    break


def _usable_cores(root: Path) -> int:
    cores = len(os.sched_getaffinity(0))
    for _, value in _cgroup_values(root, "cpu.max", "cpu/cpu.cfs_quota_us"):
        quota, _, period = value.partition(" ")
        if quota.isdigit():
            # v1 keeps the period in a file of its own; 100 ms is the kernel's default and nearly never changed.
            cores = min(cores, max(1, int(quota) // int(period or 100_000)))
    return cores


def _cache_bytes(root: Path, level: int) -> int | None:
    for index in sorted((root / "sys/devices/system/cpu/cpu0/cache").glob("index*")):
        if _text(index / "level") == str(level) and _text(index / "type") in ("Data", "Unified"):
            match = re.fullmatch(r"(\d+)([KMG]?)", _text(index / "size") or "")
            if match and int(match.group(1)) > 0:
                return int(match.group(1)) << {"": 0, "K": 10, "M": 20, "G": 30}[match.group(2)]
    return None
