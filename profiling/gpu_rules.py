"""How each metric of Nsight Compute is read: axis, unit, direction, the ends of its distance, meaning. Data only."""

from __future__ import annotations

from collections.abc import Mapping

from profiling.cpu_metrics import Rule
from profiling.findings import Axis

DURATION = "gpu__time_duration.sum"
LATENCY = "smsp__average_warp_latency_per_inst_issued.ratio"

_ELAPSED = "avg.pct_of_peak_sustained_elapsed"
_ACTIVE = "avg.pct_of_peak_sustained_active"
_STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"


def _busy(axis: Axis, meaning: str) -> Rule:
    return Rule(axis, "%", "low", 0, 100, meaning)


def _used(axis: Axis, meaning: str) -> Rule:
    return Rule(axis, "%", "high", 100, 0, meaning)


def _limit(meaning: str) -> Rule:
    return Rule("latency", "block", "high", 32, 0, meaning)


def _stall(axis: Axis, waiting: str) -> Rule:
    return Rule(axis, "ratio", "low", 0, 16, f"Cycles per instruction that a warp {waiting}.")


_REASONS: Mapping[str, Rule] = {
    "long_scoreboard": _stall("latency", "waits for data from L2, memory or the texture path"),
    "short_scoreboard": _stall("latency", "waits for shared memory or special functions"),
    "barrier": _stall("latency", "waits at a block barrier for the others"),
    "membar": _stall("latency", "waits for a memory fence"),
    "wait": _stall("latency", "waits a fixed latency of the instruction before"),
    "no_instruction": _stall("latency", "waits for instructions to be fetched"),
    "branch_resolving": _stall("latency", "waits for a branch target"),
    "imc_miss": _stall("latency", "waits for constant memory"),
    "sleeping": _stall("latency", "sleeps (`nanosleep`, backed-off spinning)"),
    "misc": _stall("latency", "waits for other reasons"),
    "lg_throttle": _stall("memory", "waits for room in the queue of global and local accesses"),
    "mio_throttle": _stall("memory", "waits for room in the queue of shared memory and special functions"),
    "tex_throttle": _stall("memory", "waits for room in the texture queue"),
    "drain": _stall("memory", "waits at its end for its stores to drain"),
    "math_pipe_throttle": _stall("compute", "waits for a busy math pipe"),
    "gmma": _stall("compute", "waits for a warpgroup matrix product"),
    "dispatch_stall": _stall("compute", "is held back by the dispatcher"),
    "not_selected": _stall("latency", "is ready while another one is picked: plenty of parallelism"),
}
# True: a wait that hurts. Of a warp that was ready but not picked there is nothing to gain.
STALLS: Mapping[str, bool] = {_STALL.format(reason): reason != "not_selected" for reason in _REASONS}

_LIMITED_BY: Mapping[str, str] = {
    "registers": "registers",
    "shared_mem": "shared memory",
    "warps": "its warps",
    "blocks": "its block slots",
    "barriers": "barriers",
}
# What holds occupancy back, and the limit that shows whether it does.
LIMITS: Mapping[str, str] = {
    "launch__registers_per_thread": "launch__occupancy_limit_registers",
    "launch__shared_mem_per_block_allocated": "launch__occupancy_limit_shared_mem",
    "launch__block_size": "launch__occupancy_limit_warps",
    **{f"launch__occupancy_limit_{by}": f"launch__occupancy_limit_{by}" for by in _LIMITED_BY},
}

RULES: Mapping[str, Rule] = {
    # Memory: units, traffic, access patterns
    f"gpu__dram_throughput.{_ELAPSED}": _busy("memory", "Device memory's load, of its peak."),
    f"lts__throughput.{_ELAPSED}": _busy("memory", "Load of the busiest part of L2, of its peak."),
    f"l1tex__throughput.{_ELAPSED}": _busy("memory", "Load of the busiest part of L1, shared memory included."),
    f"gpu__compute_memory_throughput.{_ELAPSED}": _busy("memory", "Load of the busiest memory unit, of its peak."),
    f"sm__inst_executed_pipe_lsu.{_ACTIVE}": _busy(
        "memory", "Load of the load/store pipe: too many memory instructions."
    ),
    "dram__bytes_read.sum": Rule("memory", "byte", "low", 0, 1e12, "Bytes read from device memory."),
    "dram__bytes_write.sum": Rule("memory", "byte", "low", 0, 1e12, "Bytes written to device memory."),
    "l1tex__m_xbar2l1tex_read_bytes.sum": Rule("memory", "byte", "low", 0, 1e13, "Bytes that L1 fetched from L2."),
    "l1tex__t_sector_hit_rate.pct": _used("memory", "Sectors found in L1; low is fine for data used once."),
    "lts__t_sector_hit_rate.pct": _used("memory", "Sectors found in L2; low is fine for data used once."),
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio": Rule(
        "memory", "byte/sector", "high", 32, 4, "Bytes used of each 32-byte sector that global loads fetch."
    ),
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio": Rule(
        "memory", "byte/sector", "high", 32, 4, "Bytes used of each 32-byte sector that global stores touch."
    ),
    "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio": Rule(
        "memory",
        "sector/request",
        "low",
        16,
        32,
        "Sectors per global load of a warp: 4 are contiguous 32-bit ones, 16 128-bit.",
    ),
    "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio": Rule(
        "memory",
        "sector/request",
        "low",
        16,
        32,
        "Sectors per global store of a warp: 4 are contiguous 32-bit ones, 16 128-bit.",
    ),
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": Rule(
        "memory", "", "low", 0, 1e12, "Extra passes of shared memory through bank conflicts."
    ),
    "derived__local_spilling_requests_pct": Rule(
        "memory", "%", "low", 0, 20, "Memory requests that only spill and reload registers."
    ),
    "smsp__sass_inst_executed_op_local_ld.sum": Rule(
        "memory", "inst", "low", 0, 1e6, "Loads from local memory: spills or indexed arrays."
    ),
    "smsp__sass_inst_executed_op_local_st.sum": Rule(
        "memory", "inst", "low", 0, 1e6, "Stores to local memory: spills or indexed arrays."
    ),
    f"l1tex__t_output_wavefronts_pipe_lsu_mem_global_op_atom.sum.{_ELAPSED[4:]}": _busy(
        "memory", "L1's load by atomics that return a value."
    ),
    f"l1tex__t_output_wavefronts_pipe_lsu_mem_global_op_red.sum.{_ELAPSED[4:]}": _busy(
        "memory", "L1's load by reductions without a result."
    ),
    # Compute: pipes and instructions
    f"sm__throughput.{_ELAPSED}": _used("compute", "Load of the SMs' busiest part, load/store issue included."),
    f"sm__pipe_tensor_cycles_active.{_ACTIVE}": _used("compute", "Load of the tensor cores."),
    f"sm__inst_executed_pipe_fma.{_ACTIVE}": _used(
        "compute", "Load of the FMA pipe (float32, and integer multiply-adds)."
    ),
    f"sm__inst_executed_pipe_alu.{_ACTIVE}": _busy(
        "compute", "Load of the integer and logic pipe: overhead in float kernels."
    ),
    f"sm__inst_executed_pipe_fp64.{_ACTIVE}": _busy("compute", "Load of the float64 pipe."),
    f"sm__inst_executed_pipe_xu.{_ACTIVE}": _busy("compute", "Load of the pipe for exp, rsqrt, sin and conversions."),
    f"sm__inst_executed_pipe_uniform.{_ACTIVE}": _busy(
        "compute", "Load of the uniform pipe: warp-wide index arithmetic."
    ),
    "smsp__inst_executed.sum": Rule("compute", "inst", "low", 0, 1e12, "Warp instructions executed."),
    "derived__smsp__inst_executed_op_branch_pct": Rule(
        "compute", "ratio", "low", 0.02, 0.25, "Branches over all instructions."
    ),
    "smsp__thread_inst_executed_per_inst_executed.ratio": Rule(
        "compute", "thread", "high", 32, 8, "Threads active per warp instruction: low where they diverge."
    ),
    "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio": Rule(
        "compute", "thread", "high", 32, 8, "Threads that do work per warp instruction, predicated-off ones left out."
    ),
    "smsp__sass_average_branch_targets_threads_uniform.pct": Rule(
        "compute", "%", "high", 100, 60, "Branches that all threads of a warp take alike."
    ),
    # Latency: occupancy, schedulers, launch
    f"sm__warps_active.{_ACTIVE}": _used("latency", "Achieved occupancy: warps in flight of the most an SM can hold."),
    "sm__maximum_warps_per_active_cycle_pct": _used(
        "latency", "Theoretical occupancy by registers, shared memory and block size."
    ),
    "smsp__warps_eligible.avg.per_cycle_active": Rule(
        "latency", "warp", "high", 2, 0, "Warps ready to issue per scheduler and cycle."
    ),
    f"smsp__issue_active.{_ACTIVE}": _used("latency", "Cycles in which a scheduler issues an instruction."),
    LATENCY: Rule("latency", "cycle", "low", 0, 128, "Cycles between two instructions of a warp."),
    "launch__waves_per_multiprocessor": Rule(
        "latency", "", "high", 4, 0, "Rounds of blocks that each SM runs; a last one hardly filled idles the GPU."
    ),
    "launch__registers_per_thread": Rule(
        "latency",
        "register/thread",
        "low",
        32,
        255,
        "Registers per thread; they limit occupancy where theirs is the lowest limit.",
    ),
    "launch__shared_mem_per_block_allocated": Rule(
        "latency",
        "byte/block",
        "low",
        0,
        233472,
        "Shared memory per block; it limits occupancy where its limit is the lowest.",
    ),
    "launch__block_size": Rule("latency", "", "high", 256, 32, "Threads per block."),
    **{f"launch__occupancy_limit_{by}": _limit(f"Blocks per SM as {what} allow.") for by, what in _LIMITED_BY.items()},
    # Launching a kernel takes some microseconds; one that runs no longer is worth fusing or capturing.
    DURATION: Rule(
        "latency",
        "s",
        "high",
        1e-4,
        2e-6,
        "GPU time of the call under ncu; of a few microseconds, launching is a large part.",
        "log",
    ),
    **{_STALL.format(reason): rule for reason, rule in _REASONS.items()},
}

# Names of the same quantity in other versions or on other GPUs, best first.
ALTERNATIVES: Mapping[str, tuple[str, ...]] = {
    f"gpu__dram_throughput.{_ELAPSED}": (f"dram__throughput.{_ELAPSED}",),
    f"sm__pipe_tensor_cycles_active.{_ACTIVE}": (
        f"sm__inst_executed_pipe_tensor.{_ACTIVE}",
        f"sm__pipe_tensor_cycles_active.{_ELAPSED}",
    ),
    f"sm__inst_executed_pipe_fma.{_ACTIVE}": (
        f"sm__pipe_fma_cycles_active.{_ACTIVE}",
        f"sm__inst_executed_pipe_fma.{_ELAPSED}",
    ),
    f"sm__inst_executed_pipe_alu.{_ACTIVE}": (f"sm__pipe_alu_cycles_active.{_ACTIVE}",),
    f"sm__inst_executed_pipe_fp64.{_ACTIVE}": (f"sm__pipe_fp64_cycles_active.{_ACTIVE}",),
    "dram__bytes_read.sum": ("dram__bytes_op_read.sum",),
    "dram__bytes_write.sum": ("dram__bytes_op_write.sum",),
    "smsp__inst_executed.sum": ("inst_executed", "sm__inst_executed.sum"),
    DURATION: ("gpu__time_duration.avg", "gpu__time_duration.max"),
    "smsp__warps_eligible.avg.per_cycle_active": ("smsp__warps_eligible.avg",),
}
