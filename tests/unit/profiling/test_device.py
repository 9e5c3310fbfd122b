"""CPU facts: what a resume and the ceilings' cache recognise a machine by."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path

import pytest

from profiling.device import DeviceFacts, cpu_facts, memory_available, memory_total, pinned_cores

CPUINFO = """\
processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 85
model name\t: Intel(R) Xeon(R) Gold 6248
stepping\t: 7
microcode\t: 0x5003604
cpu MHz\t\t: {mhz}
physical id\t: 0
core id\t\t: 0
flags\t\t: fpu sse4_2 avx fma avx2 {extra}

processor\t: 1
vendor_id\t: GenuineIntel
model name\t: Intel(R) Xeon(R) Gold 6248
physical id\t: 0
core id\t\t: 0
flags\t\t: fpu sse4_2 avx fma avx2 {extra}
"""


def machine(root: Path, *, mhz: str = "2500.000", extra: str = "avx512f") -> Path:
    def write(path: str, text: str) -> None:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)

    write("proc/cpuinfo", CPUINFO.format(mhz=mhz, extra=extra))
    write("proc/meminfo", "MemTotal:       16384 kB\nMemFree: 1 kB\n")
    write("proc/self/cgroup", "0::/pod/run\n")
    caches = (("1", "Data", "32K"), ("1", "Instruction", "64K"), ("2", "Unified", "1024K"), ("3", "Unified", "28M"))
    for i, (level, kind, size) in enumerate(caches):
        for name, text in (("level", level), ("type", kind), ("size", size)):
            write(f"sys/devices/system/cpu/cpu0/cache/index{i}/{name}", text + "\n")
    return root


def test_a_machine_is_read_whole(tmp_path: Path) -> None:
    facts = cpu_facts(machine(tmp_path))
    assert facts.name == "Intel(R) Xeon(R) Gold 6248"
    assert set(facts.features) == {"avx", "avx2", "avx512f", "fma", "sse4_2"}
    assert facts.physical_cores == 1, "two hyperthreads are one core"
    assert (facts.l1d_bytes, facts.l2_bytes, facts.l3_bytes) == (32 << 10, 1 << 20, 28 << 20)
    assert facts.memory_bytes == 16 << 20


def test_the_id_survives_a_clock_change_and_not_another_cpu(tmp_path: Path) -> None:
    """Else every run would measure its ceilings anew, or take those of another machine for its own."""
    here = cpu_facts(machine(tmp_path / "a"))
    later = cpu_facts(machine(tmp_path / "b", mhz="3100.5"))
    other = cpu_facts(machine(tmp_path / "c", extra="avx512f amx_tile"))
    assert here.id == later.id
    assert other.id != here.id


def test_the_cgroup_bounds_cores_and_memory(tmp_path: Path) -> None:
    """In a container, half of the host's memory is not half of ours."""
    root = machine(tmp_path)
    group = root / "sys/fs/cgroup/pod"
    (group / "run").mkdir(parents=True)
    (group / "cpu.max").write_text("150000 100000\n")
    (group / "run" / "cpu.max").write_text("max 100000\n")
    (group / "run" / "memory.max").write_text(f"{8 << 20}\n")
    facts = cpu_facts(root)
    assert facts.usable_cores == 1
    assert facts.memory_bytes == 8 << 20


def test_what_a_container_has_left_bounds_what_can_be_allocated(tmp_path: Path) -> None:
    """The host's free memory is not ours: a run that plans with it is killed without a word."""
    root = machine(tmp_path)
    (root / "proc/meminfo").write_text("MemTotal: 16384 kB\nMemAvailable: 12288 kB\n")
    assert (memory_total(root), memory_available(root)) == (16 << 20, 12 << 20)
    group = root / "sys/fs/cgroup/pod"
    group.mkdir(parents=True)
    (group / "memory.max").write_text(f"{8 << 20}\n")
    (group / "memory.current").write_text(f"{5 << 20}\n")
    (group / "memory.stat").write_text(f"anon 1\ninactive_file {1 << 20}\n")
    assert (memory_total(root), memory_available(root)) == (8 << 20, 4 << 20)


def test_what_cannot_be_read_is_none_and_never_zero(tmp_path: Path) -> None:
    facts = cpu_facts(tmp_path)
    for name in ("physical_cores", "l1d_bytes", "l2_bytes", "l3_bytes", "memory_bytes", "virtualised"):
        assert getattr(facts, name) is None, name
    assert facts.usable_cores >= 1
    assert facts.features == ()


def test_a_hypervisor_is_noticed(tmp_path: Path) -> None:
    if os.uname().machine != "x86_64":
        pytest.skip("only x86-64 has the flag")
    assert cpu_facts(machine(tmp_path / "vm", extra="hypervisor")).virtualised is True
    assert cpu_facts(machine(tmp_path / "metal")).virtualised is False


def test_this_machine_reads_the_same_twice() -> None:
    facts = cpu_facts()
    assert facts == cpu_facts()
    assert len(facts.id) == 16
    assert {field.name for field in fields(DeviceFacts)} >= {"id", "name"}


def test_threads_are_pinned_to_physical_cores_first(tmp_path: Path) -> None:
    """Two threads on the two hyperthreads of one core would halve every ceiling."""
    allowed = sorted(os.sched_getaffinity(0))
    for cpu in allowed:
        folder = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology"
        folder.mkdir(parents=True)
        # The first two CPUs share a core.
        core = allowed[0] if cpu in allowed[:2] else cpu
        (folder / "thread_siblings_list").write_text(f"{core}\n")
    chosen = pinned_cores(len(allowed), tmp_path)
    assert sorted(chosen) == allowed
    if len(allowed) > 2:
        assert chosen[-1] == allowed[1], "the sibling comes last"


def test_more_threads_than_cores_says_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"lower `device\.threads`"):
        pinned_cores(len(os.sched_getaffinity(0)) + 1)
