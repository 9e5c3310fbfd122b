"""Names that the details pages and older versions print, to the metric names of the raw page.

The labels of 2025 were matched value by value with a raw page of the same report; older ones are from public captures.
"""

from __future__ import annotations

from collections.abc import Mapping

_PEAK = "avg.pct_of_peak_sustained_elapsed"
_ACTIVE = "avg.pct_of_peak_sustained_active"

_LABELS: Mapping[str, str] = {
    # Speed of light
    "DRAM Frequency": "dram__cycles_elapsed.avg.per_second",
    "Memory Frequency": "dram__cycles_elapsed.avg.per_second",
    "SM Frequency": "gpc__cycles_elapsed.avg.per_second",
    "Elapsed Cycles": "gpc__cycles_elapsed.max",
    "DRAM Throughput": f"gpu__dram_throughput.{_PEAK}",
    "SOL DRAM": f"gpu__dram_throughput.{_PEAK}",
    "SOL FB": f"gpu__dram_throughput.{_PEAK}",
    "Memory [%]": f"gpu__compute_memory_throughput.{_PEAK}",
    "SOL Memory": f"gpu__compute_memory_throughput.{_PEAK}",
    "Duration": "gpu__time_duration.sum",
    "L1/TEX Cache Throughput": f"l1tex__throughput.{_ACTIVE}",
    "SOL L1/TEX Cache": f"l1tex__throughput.{_ACTIVE}",
    "SOL TEX": f"l1tex__throughput.{_ACTIVE}",
    "L2 Cache Throughput": f"lts__throughput.{_PEAK}",
    "SOL L2 Cache": f"lts__throughput.{_PEAK}",
    "SOL L2": f"lts__throughput.{_PEAK}",
    "SM Active Cycles": "sm__cycles_active.avg",
    "Compute (SM) Throughput": f"sm__throughput.{_PEAK}",
    "SM [%]": f"sm__throughput.{_PEAK}",
    "SOL SM": f"sm__throughput.{_PEAK}",
    # Compute workload
    "Executed Ipc Active": "sm__inst_executed.avg.per_cycle_active",
    "Executed Ipc Elapsed": "sm__inst_executed.avg.per_cycle_elapsed",
    "Issued Ipc Active": "sm__inst_issued.avg.per_cycle_active",
    "Issue Slots Busy": "sm__inst_issued.avg.pct_of_peak_sustained_elapsed",
    "SM Busy": f"sm__instruction_throughput.{_PEAK}",
    # Memory workload
    "Local Memory Spilling Requests": "derived__local_spilling_requests",
    "Local Memory Spilling Request Overhead": "derived__local_spilling_requests_pct",
    "Mem Busy": f"gpu__compute_memory_access_throughput.{_PEAK}",
    "Max Bandwidth": f"gpu__compute_memory_request_throughput.{_PEAK}",
    "Mem Pipes Busy": f"sm__memory_throughput.{_PEAK}",
    "L1/TEX Hit Rate": "l1tex__t_sector_hit_rate.pct",
    "L1 Hit Rate": "l1tex__t_sector_hit_rate.pct",
    "L2 Hit Rate": "lts__t_sector_hit_rate.pct",
    "L2 Persisting Size": "launch__persisting_l2_cache_size",
    "L2 Compression Input Sectors": "lrc__ilc_input_sectors.sum",
    # Schedulers and warps
    "One or More Eligible": f"smsp__issue_active.{_ACTIVE}",
    "Issued Warp Per Scheduler": "smsp__issue_active.avg.per_cycle_active",
    "No Eligible": f"smsp__issue_inst0.{_ACTIVE}",
    "Active Warps Per Scheduler": "smsp__warps_active.avg.per_cycle_active",
    "Eligible Warps Per Scheduler": "smsp__warps_eligible.avg.per_cycle_active",
    "Warp Cycles Per Issued Instruction": "smsp__average_warp_latency_per_inst_issued.ratio",
    "Warp Cycles Per Executed Instruction": "smsp__average_warps_active_per_inst_executed.ratio",
    "Avg. Active Threads Per Warp": "smsp__thread_inst_executed_per_inst_executed.ratio",
    "Avg. Not Predicated Off Threads Per Warp": "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio",
    # Instructions
    "Avg. Executed Instructions Per Scheduler": "smsp__inst_executed.avg",
    "Executed Instructions": "smsp__inst_executed.sum",
    "Avg. Issued Instructions Per Scheduler": "smsp__inst_issued.avg",
    "Issued Instructions": "smsp__inst_issued.sum",
    "Branch Instructions Ratio": "derived__smsp__inst_executed_op_branch_pct",
    "Branch Instructions": "smsp__inst_executed_op_branch.sum",
    "Branch Efficiency": "smsp__sass_average_branch_targets_threads_uniform.pct",
    "Avg. Divergent Branches": "smsp__sass_branch_targets_threads_divergent.avg",
    # Launch
    "Block Size": "launch__block_size",
    "Cluster Size": "launch__cluster_size",
    "Grid Size": "launch__grid_size",
    "Registers Per Thread": "launch__registers_per_thread",
    "Shared Memory Configuration Size": "launch__shared_mem_config_size",
    "Driver Shared Memory Per Block": "launch__shared_mem_per_block_driver",
    "Dynamic Shared Memory Per Block": "launch__shared_mem_per_block_dynamic",
    "Static Shared Memory Per Block": "launch__shared_mem_per_block_static",
    "# SMs": "launch__sm_count",
    "Stack Size": "launch__stack_size",
    "Threads": "launch__thread_count",
    "# TPCs": "launch__tpc_count",
    "Waves Per SM": "launch__waves_per_multiprocessor",
    # Occupancy
    "Max Active Clusters": "launch__cluster_max_active",
    "Max Cluster Size": "launch__cluster_max_potential_size",
    "Overall GPU Occupancy": "launch__occupancy_cluster_gpu_pct",
    "Cluster Occupancy": "launch__occupancy_cluster_pct",
    "Block Limit Barriers": "launch__occupancy_limit_barriers",
    "Block Limit SM": "launch__occupancy_limit_blocks",
    "Block Limit Registers": "launch__occupancy_limit_registers",
    "Block Limit Shared Mem": "launch__occupancy_limit_shared_mem",
    "Block Limit Warps": "launch__occupancy_limit_warps",
    "Theoretical Active Warps per SM": "sm__maximum_warps_avg_per_active_cycle",
    "Theoretical Occupancy": "sm__maximum_warps_per_active_cycle_pct",
    "Achieved Occupancy": f"sm__warps_active.{_ACTIVE}",
    "Achieved Active Warps Per SM": "sm__warps_active.avg.per_cycle_active",
    # Workload distribution
    "Average DRAM Active Cycles": "dram__cycles_active.avg",
    "Total DRAM Elapsed Cycles": "dram__cycles_elapsed.sum",
    "Average L1 Active Cycles": "l1tex__cycles_active.avg",
    "Total L1 Elapsed Cycles": "l1tex__cycles_elapsed.sum",
    "Average L2 Active Cycles": "lts__cycles_active.avg",
    "Total L2 Elapsed Cycles": "lts__cycles_elapsed.sum",
    "Average SM Active Cycles": "sm__cycles_active.avg",
    "Total SM Elapsed Cycles": "sm__cycles_elapsed.sum",
    "Average SMSP Active Cycles": "smsp__cycles_active.avg",
    "Total SMSP Elapsed Cycles": "smsp__cycles_elapsed.sum",
}
_FOLDED = {label.casefold(): name for label, name in _LABELS.items()}


def raw_name(label: str, unit: str) -> str:
    """The raw page's name for a label; the label itself where there is no well-known one.

    `unit` tells the two metrics that one page calls "Memory Throughput" apart.
    """
    if label.casefold() == "memory throughput":
        return f"gpu__compute_memory_throughput.{_PEAK}" if unit == "%" else "dram__bytes.sum.per_second"
    return _FOLDED.get(label.casefold(), label)
