"""The catalogue: what a plan may name, and what the controller may rely on about it."""

from __future__ import annotations

import csv
from importlib import resources
from itertools import combinations
from pathlib import Path

import pytest
import yaml

from profiling.cpu_metrics import RULES
from profiling.machine_code import load_signatures
from prompts.catalogue import CatalogueError, load_catalogue, parse_methods, switch_name

DATA = Path(__file__).parents[2] / "data" / "catalogue"
GPU = {"cuda", "cutlass", "triton"}
ENTRY = """
backends: [cpp]
hosts: {x86_64: []}
methods:
  - id: memory.tiling_cache
    priority: 1
    title: t
    description: d
    triggers: [{metric: ipc, when: low, why: w}]
    signature: none
"""


def test_ids_that_people_know_keep_their_axis_priority_and_architecture() -> None:
    catalogue = load_catalogue()
    with (DATA / "known_gpu_methods.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 63
    for row in rows:
        method = next(m for m in catalogue.methods if m.id == row["method_id"] and GPU & set(m.backends))
        assert (method.axis, method.priority, method.min_sm) == (row["axis"], int(row["priority"]), int(row["min_sm"]))


def test_every_trigger_names_a_metric_that_the_profiler_gives() -> None:
    """A misspelt metric never fires, and the method is never offered for the right reason."""
    ncu = set((DATA / "ncu_metrics.txt").read_text(encoding="utf-8").split())
    for method in load_catalogue().methods:
        given = ncu if GPU & set(method.backends) else set(RULES)
        assert {t.metric for t in method.triggers} <= given, method.id


def test_every_method_has_its_signature_or_is_listed_as_leaving_none() -> None:
    """Otherwise a method passes or fails the machine-code check for want of an entry."""
    for name, backends in (("cpp", {"cpp"}), ("gpu", GPU)):
        methods = [m for m in load_catalogue().methods if backends & set(m.backends)]
        file = load_signatures().files[name]
        assert {m.id for m in methods if m.signature == "opcodes"} == set(file.methods)
        assert {m.id for m in methods if m.signature == "none"} == file.none


def test_a_cpp_method_has_a_signature_for_every_architecture_it_claims() -> None:
    file = load_signatures().on("x86_64")
    for method in load_catalogue().methods:
        if "cpp" in method.backends and method.signature == "opcodes":
            assert all(file.alternatives(method.id, arch) for arch in method.hosts), method.id


def test_a_gpu_method_has_a_signature_on_every_card_it_is_offered_for() -> None:
    file = load_signatures().on("sm_90a")
    late = {
        "latency.cooperative_cluster"
    }  # a cooperative grid before sm_90 leaves no opcode; the check says unavailable
    for method in load_catalogue().methods:
        if GPU & set(method.backends) and method.signature == "opcodes" and method.id not in late:
            for arch in ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_120a"):
                if any(method.fits(backend, arch) for backend in GPU):
                    assert file.alternatives(method.id, arch), (method.id, arch)


@pytest.mark.parametrize(("package", "number"), [("prompts.methods", 3), ("profiling.signatures", 2)])
def test_no_key_stands_twice(package: str, number: int) -> None:
    """YAML keeps the last of two equal keys and says nothing."""

    def walk(node: yaml.Node | None) -> None:
        if isinstance(node, yaml.MappingNode):
            keys = [key.value for key, _ in node.value]
            assert len(set(keys)) == len(keys), node.start_mark
            for _, value in node.value:
                walk(value)
        elif isinstance(node, yaml.SequenceNode):
            for item in node.value:
                walk(item)

    files = [file for file in resources.files(package).iterdir() if file.name.endswith(".yaml")]
    assert len(files) == number
    for file in files:
        walk(yaml.compose(file.read_text(encoding="utf-8"), yaml.SafeLoader))


def test_switches_never_collide() -> None:
    """Two methods behind one macro could not be ablated apart."""
    ids = {m.id for m in load_catalogue().methods}
    assert len({switch_name(i) for i in ids}) == len(ids)
    assert switch_name("memory.tiling_cache") == "RC_TILING_CACHE"
    assert switch_name("compute.3x-tf32") == "RC_3X_TF32"
    assert switch_name("without_axis") == "RC_WITHOUT_AXIS"


def test_descriptions_say_enough_to_act_on() -> None:
    for method in load_catalogue().methods:
        assert 100 < len(method.description) < 600, method.id
        assert "\n" not in method.description


def test_select_compares_architectures_as_numbers() -> None:
    """As strings, `sm_100a` is older than `sm_90`, and Blackwell would be offered no tensor memory accelerator."""
    catalogue = load_catalogue()
    on = {arch: {m.id for m in catalogue.select("cuda", arch)} for arch in ("sm_75", "sm_90a", "sm_100a")}
    assert "memory.tma_multicast" not in on["sm_75"]
    assert "memory.tma_multicast" in on["sm_90a"] & on["sm_100a"]
    assert "compute.block_scaled_precision" in on["sm_100a"] - on["sm_90a"]
    assert "latency.intra_wg_gemm_softmax_pipeline" in on["sm_90a"] - on["sm_100a"]  # wgmma is Hopper's alone


def test_select_is_ordered_and_keeps_to_backend_axis_and_features() -> None:
    catalogue = load_catalogue()
    chosen = catalogue.select("cpp", "x86_64")
    order = {"compute": 0, "memory": 1, "latency": 2}
    assert [m.id for m in chosen] == [m.id for m in sorted(chosen, key=lambda m: (order[m.axis], m.priority))]
    assert len(chosen) >= 25
    assert {m.axis for m in catalogue.select("cpp", "x86_64", ["memory"])} == {"memory"}
    without_avx512 = {m.id for m in catalogue.select("cpp", "x86_64", features={"avx2", "fma"})}
    assert "compute.vector_width_512" not in without_avx512
    assert "compute.vectorize_intrinsics" in without_avx512
    assert "latency.parallel_threads" not in without_avx512
    with_threads = catalogue.select("cpp", "x86_64", features={"avx2", "fma", "multicore"})
    assert "latency.parallel_threads" in {m.id for m in with_threads}
    assert "memory.aligned_access" not in {m.id for m in catalogue.select("cpp", "aarch64")}
    assert "compute.warp_shuffle" not in {m.id for m in catalogue.select("triton", "sm_90a")}
    assert catalogue.select("cpp", "sm_90a") == ()


@pytest.mark.parametrize(("backend", "least"), [("cuda", 85), ("cutlass", 85), ("triton", 40)])
def test_every_gpu_backend_has_methods_on_every_axis_and_none_that_it_cannot_express(backend: str, least: int) -> None:
    chosen = load_catalogue().select(backend, "sm_90")
    assert len(chosen) >= least
    for axis in ("compute", "memory", "latency"):
        assert sum(m.axis == axis for m in chosen) >= 10
    by_hand = {"memory.bank_conflict", "latency.reduce_sync_count", "compute.warp_shuffle", "memory.bulk_copy_1d"}
    offered = {m.id for m in chosen}
    assert by_hand.isdisjoint(offered) if backend == "triton" else by_hand <= offered
    assert ("compute.autotune" in offered) == (backend == "triton")
    assert ("memory.epilogue_visitor_tree_fusion" in offered) == (backend == "cutlass")


def test_a_triton_plan_reads_of_triton_and_a_cuda_plan_of_cuda() -> None:
    """`cp.async` cannot be written in Triton, nor `num_stages` in CUDA."""
    catalogue = load_catalogue()
    assert "num_stages" in catalogue.get("latency.async_pipeline", "triton").description
    assert "cp.async" in catalogue.get("latency.async_pipeline", "cuda").description
    for method in catalogue.select("triton", "sm_120"):
        words = ("__launch_bounds__", "cudaFunc", "__syncthreads", "cp.async", "#pragma", "float4")
        if method.backends == ("triton",):
            assert not any(word in method.description for word in words), method.id


def test_priorities_are_distinct_within_an_axis() -> None:
    """A tie would make "a higher-priority method was skipped" depend on the order of the file."""
    catalogue = load_catalogue()
    for backend, arch in (("cpp", "x86_64"), ("cuda", "sm_120"), ("cutlass", "sm_120"), ("triton", "sm_120")):
        places = [(m.axis, m.priority) for m in catalogue.select(backend, arch)]
        assert len(set(places)) == len(places)


def test_one_id_on_two_machines_keeps_its_own_triggers() -> None:
    catalogue = load_catalogue()
    cpu = {t.metric for t in catalogue.get("compute.loop_unroll", "cpp").triggers}
    gpu = {t.metric for t in catalogue.get("compute.loop_unroll", "cuda").triggers}
    assert cpu.isdisjoint(gpu)
    assert catalogue.known("compute.loop_unroll", "cpp")
    assert not catalogue.known("compute.warp_shuffle", "cpp")


def test_unknown_ids_name_the_nearest() -> None:
    catalogue = load_catalogue()
    assert catalogue.nearest("memory.loop_unrol") == "compute.loop_unroll"
    with pytest.raises(LookupError, match=r"no method 'memory.tiling_cashe'.*'memory.tiling_cache'"):
        catalogue.get("memory.tiling_cashe")


@pytest.mark.parametrize(
    "pair",
    [
        ("memory.multi_stage_pipeline", "latency.async_pipeline"),
        ("memory.async_copy", "latency.async_pipeline"),
        ("memory.tma_multicast", "memory.distributed_smem"),
        ("compute.gemm_softmax_interleave", "latency.online_recomputation"),
        ("compute.two_level_accumulation_promotion", "compute.fp8_fast_accumulation_mode"),
        ("memory.split_k_parallel_reduce", "latency.stream_k_load_balancing"),
        ("memory.epilogue_fusion", "memory.epilogue_visitor_tree_fusion"),
        ("latency.atomic_optimize", "latency.warp_aggregated_atomics"),
        ("latency.cuda_graphs", "latency.static_launch_grid_graph"),
        ("compute.vectorize_hints", "compute.vectorize_intrinsics"),
        ("compute.ilp_unroll_register_tile", "compute.multiple_accumulators"),
    ],
)
def test_one_idea_under_two_names_is_counted_once(pair: tuple[str, str]) -> None:
    catalogue = load_catalogue()
    assert catalogue.coupled(["compute.loop_unroll", *pair]) == (pair,)
    assert catalogue.coupled([*reversed(pair)]) == (pair[::-1],)


def test_unrelated_methods_are_not_called_coupled_or_conflicting() -> None:
    catalogue = load_catalogue()
    ids = ["compute.fma_and_fast_math", "memory.tiling_cache", "latency.software_prefetch", "not.in_catalogue"]
    assert catalogue.coupled(ids) == ()
    assert catalogue.conflicting(ids) == ()
    assert catalogue.conflicting(["memory.split_k_parallel_reduce", "latency.stream_k_load_balancing"]) != ()


@pytest.mark.parametrize(
    ("backend", "arch"), [("cpp", "x86_64"), ("cuda", "sm_90"), ("cutlass", "sm_90"), ("triton", "sm_90")]
)
def test_methods_of_one_plan_leave_choice(backend: str, arch: str) -> None:
    """If most pairs excluded each other, no plan of three methods would pass."""
    catalogue = load_catalogue()
    ids = [m.id for m in catalogue.select(backend, arch)]
    pairs = list(combinations(ids, 2))
    assert len(catalogue.coupled(ids)) + len(catalogue.conflicting(ids)) < len(pairs) / 20


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("priority: 1", "priorty: 1", "x.yaml: methods.0.priority: Field required"),
        ("when: low", "when: lowish", "x.yaml: methods.0.triggers.0.when: Input should be 'high' or 'low'"),
        ("id: memory.tiling_cache", "id: storage.tiling", "x.yaml: methods.0.id: String should match"),
        ("methods:", "methods: [", "x.yaml: not valid YAML"),
    ],
)
def test_a_wrong_file_is_one_clear_line(old: str, new: str, message: str) -> None:
    with pytest.raises(CatalogueError) as caught:
        parse_methods(ENTRY.replace(old, new), "x.yaml")
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
