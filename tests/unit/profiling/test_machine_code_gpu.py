"""The machine-code check on a GPU: every signature on code that nvcc really made, for five architectures."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from backends.registry import get_backend
from backends.triton import TritonBackend
from backends.types import BuildSpec, Built, Function, Instruction, Listing
from profiling.machine_code import check_methods, instruction_mix, load_signatures, same_code
from tests.sass import compiled
from tests.unit.profiling.probes_gpu import PROBES, Pair, methods_on, probe_pairs, signed_methods

ARCHITECTURES = ("sm_75", "sm_80", "sm_90a", "sm_100a", "sm_120a")
SIGNED = [m.id for m in signed_methods()]
# The compiler takes these there, and makes plain code of them.
PLAIN_CODE = {("memory.tma_multicast", "sm_120a"), ("compute.packed_fp32x2_math", "sm_120a")}
CASES = [(method, arch) for arch in ARCHITECTURES for method in methods_on(arch)]


@pytest.fixture(scope="module")
def probes(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Mapping[str, Pair]]:
    """Per architecture and method the plain kernel and the one with the method."""
    work = tmp_path_factory.mktemp("probes")

    def pairs(arch: str) -> Mapping[str, Pair]:
        return probe_pairs(arch, work / arch, (method for method, where in PLAIN_CODE if where == arch))

    with ThreadPoolExecutor(2) as pool:
        found = pool.map(pairs, ARCHITECTURES)
        return dict(zip(ARCHITECTURES, found, strict=True))


def test_every_signature_has_a_probe() -> None:
    """A signature that no compiler was ever asked about is a guess."""
    assert {p.stem for p in PROBES.glob("*.cu")} == set(SIGNED) == set(load_signatures().files["gpu"].methods)


@pytest.mark.parametrize(("method", "arch"), [c for c in CASES if c not in PLAIN_CODE])
def test_a_method_is_found_where_it_is_and_nowhere_else(
    method: str, arch: str, probes: Mapping[str, Mapping[str, Pair]]
) -> None:
    """A missed method is recorded as a failed implementation; a false find credits code that is not there."""
    plain, probe = probes[arch][method]
    (found,) = check_methods([method], before=plain, after=probe)
    assert found.verdict == "verified", found.reason
    assert found.lines
    assert found.before.keys() == found.after.keys() != set()
    for before, after in ((plain, plain), (probe, probe), (probe, plain)):
        (missing,) = check_methods([method], before=before, after=after)
        assert missing.verdict == "absent", missing.reason
        assert not missing.lines


@pytest.mark.parametrize(("method", "arch"), sorted(PLAIN_CODE))
def test_what_a_card_does_not_have_is_not_found_there(
    method: str, arch: str, probes: Mapping[str, Mapping[str, Pair]]
) -> None:
    """The source says multicast or packed; only the machine code tells that nothing came of it."""
    assert check_methods([method], *probes[arch][method])[0].verdict == "absent"


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_bigger_kernel_passes_for_bigger_only(arch: str, probes: Mapping[str, Mapping[str, Pair]]) -> None:
    """Unrolling multiplies every opcode; it must not count as register tiles, FMAs, vectors or fewer branches."""
    found = check_methods(SIGNED, *probes[arch]["compute.loop_unroll"])
    assert [p.method for p in found if p.verdict == "verified"] == ["compute.loop_unroll"]


@pytest.mark.parametrize("arch", ARCHITECTURES[2:])
def test_probes_of_single_instructions_show_that_method_alone(
    arch: str, probes: Mapping[str, Mapping[str, Pair]]
) -> None:
    for method in ("latency.pdl_overlap", "memory.l2_prefetch", "memory.ldmatrix_stmatrix", "memory.async_copy"):
        found = check_methods(SIGNED, *probes[arch][method])
        assert [p.method for p in found if p.verdict == "verified"] == [method]


NAMED = """
__device__ float LDGSTS_table[64];
extern "C" __global__ void HMMA_LDGSTS_SHFL_UTMALDG_RED_BAR_ARV(const float* x, float* y, int n) {
    float sum = 0;
    for (int i = 0; i < n; ++i) sum += x[i] * LDGSTS_table[i & 63];
    y[threadIdx.x] = sum + 1.5f;
}
"""


@pytest.mark.parametrize("arch", ["sm_80", "sm_100a"])
def test_neither_a_name_nor_a_constant_is_an_instruction(arch: str, tmp_path: Path) -> None:
    """A text search takes `reduce_kernel` for RED, and the constant that HFMA2 builds for half-precision math."""
    named = compiled(NAMED, arch, tmp_path)
    assert "HMMA_LDGSTS" in named.text
    empty = Listing(arch, (Function("empty", (Instruction(0, "EXIT", "", 0),)),), "")
    found = {p.method: p for p in check_methods(SIGNED, empty, named)}
    for method in (
        *("compute.tensor_core", "memory.async_copy", "compute.warp_shuffle", "compute.warp_specialization"),
        *("compute.packed_fp16x2_math", "compute.mixed_precision"),
    ):
        assert found[method].verdict in ("absent", "unavailable"), found[method].reason
    mix = instruction_mix(named)
    assert any(i.opcode.startswith("HFMA2") for f in named.functions for i in f.instructions)
    assert not mix.keys() & {"fp16", "warp_mma", "async_copies", "atomics", "shuffles"}


def test_scalar_half_math_is_not_packed(tmp_path: Path) -> None:
    """Both are HFMA2; only the operands tell one value from two."""
    source = """
        #include <cuda_fp16.h>
        extern "C" __global__ void kernel(const __half* x, __half* y, int n) {
            __half sum = 0;
            for (int i = 0; i < n; ++i) sum = __hadd(__hfma(sum, x[i], __hmul(x[i], x[i + 1])), __hmax(x[i], sum));
            y[threadIdx.x] = sum;
        }"""
    empty = Listing("sm_90", (), "")
    scalar = compiled(source, "sm_90", tmp_path)
    assert check_methods(["compute.packed_fp16x2_math"], empty, scalar)[0].verdict == "absent"
    assert int(instruction_mix(scalar)["fp16"]) > 0


def test_a_kernel_built_for_the_card_compares_with_one_that_needs_its_own_features(
    probes: Mapping[str, Mapping[str, Pair]],
) -> None:
    """The first kernel with wgmma needs sm_90a; what it grew from was built for sm_90."""
    plain, probe = probes["sm_90a"]["compute.tensor_core"]
    (found,) = check_methods(["compute.tensor_core"], Listing("sm_90", plain.functions, ""), probe)
    assert found.verdict == "verified"
    (other,) = check_methods(["compute.tensor_core"], probes["sm_80"]["compute.tensor_core"][0], probe)
    assert (other.verdict, other.reason) == (
        "unavailable",
        "the kernels are for different architectures, sm_80 and sm_90a",
    )


def test_evidence_names_the_kernel_where_there_are_several(probes: Mapping[str, Mapping[str, Pair]]) -> None:
    plain, probe = probes["sm_80"]["compute.warp_shuffle"]
    other = Function("other", (Instruction(0, "EXIT", "", 0),))
    (found,) = check_methods(
        ["compute.warp_shuffle"], plain, Listing(probe.arch, (other, *probe.functions), probe.text)
    )
    assert all("kernel" in line and ": SHFL.UP " in line for line in found.lines)


def test_the_mix_counts_by_pipe_space_and_width(probes: Mapping[str, Mapping[str, Pair]]) -> None:
    pairs = probes["sm_90a"]
    tile = instruction_mix(pairs["compute.ilp_unroll_register_tile"][1])
    assert int(tile["ffma"]) % 64 == 0
    assert (tile["ffma_in_loops"], tile["global_stores"]) == (tile["ffma"], 64)
    assert "global_stores_in_loops" not in tile
    assert tile["shared_loads"] == tile["shared_loads_128"]
    vector, scalar = (instruction_mix(pairs["memory.vectorized_access"][i]) for i in (1, 0))
    assert (vector["global_loads_128"], vector["global_stores_128"]) == (1, 1)
    assert (scalar["global_loads"], scalar["global_stores"]) == (1, 1)
    assert not scalar.keys() & {"global_loads_128", "global_loads_64", "shared_loads", "local_memory"}
    assert instruction_mix(pairs["memory.tma_tensor_load"][1])["tma_loads"] == 1
    assert instruction_mix(pairs["memory.bulk_store"][1])["tma_stores"] == 1
    assert instruction_mix(pairs["memory.async_copy"][1])["async_copies"] == 1
    assert instruction_mix(pairs["memory.ldmatrix_stmatrix"][1])["matrix_loads"] == 1
    assert int(instruction_mix(pairs["compute.tensor_core"][1])["warpgroup_mma"]) > 0
    assert int(instruction_mix(pairs["memory.register_pressure"][0])["local_memory"]) > 100
    assert instruction_mix(pairs["latency.atomic_optimize"][0])["atomics_in_loops"] == 1
    assert int(instruction_mix(probes["sm_100a"]["compute.tensor_core"][1])["block_mma"]) > 0


def test_code_is_the_same_where_only_names_differ(tmp_path: Path, probes: Mapping[str, Mapping[str, Pair]]) -> None:
    """A switch that changes nothing must be seen to change nothing; addresses begin anew in each kernel."""
    first = compiled(NAMED, "sm_80", tmp_path / "a")
    assert same_code(first, compiled(NAMED.replace("HMMA_", "other_"), "sm_80", tmp_path / "b"))
    assert not same_code(first, compiled(NAMED.replace("1.5f", "2.5f"), "sm_80", tmp_path / "c"))
    assert [
        (method, arch)
        for arch, pairs in probes.items()
        for method, (plain, probe) in pairs.items()
        if same_code(plain, probe)
    ] == []


def test_a_cutlass_kernel_is_read_like_any_other(tmp_path: Path) -> None:
    """CuTe's atoms are templates over PTX; only the machine code shows which of them were really made."""
    backend = get_backend("cutlass")
    listings = []
    for value in "01":
        spec = BuildSpec(arch="sm_80", define={"RC_PROBE": value})
        built = backend.build(PROBES.parent / "cutlass" / "product.cu", spec, tmp_path)
        assert isinstance(built, Built), built
        listings.append(backend.disassemble(built))
    atoms = ["compute.tensor_core", "memory.async_copy", "memory.ldmatrix_stmatrix", "memory.vectorized_access"]
    others = ["memory.multi_stage_pipeline", "compute.warp_specialization", "memory.ldg_cache_modifier_hint"]
    found = check_methods([*atoms, *others], *listings)
    assert [p.verdict for p in found] == ["verified"] * len(atoms) + ["absent"] * len(others)


@pytest.mark.parametrize(("arch", "product"), [("sm_80", "warp_mma"), ("sm_90", "warpgroup_mma")])
def test_a_triton_kernel_is_read_with_no_gpu(arch: str, product: str, tmp_path: Path) -> None:
    """`tl.dot` and `num_stages` are wishes; the cubin says what became of them."""
    backend = TritonBackend()
    source = PROBES.parent / "triton" / "product.py"
    arguments = backend.describe(source, {"m": 256, "n": 256, "k": 256}, 120.0)
    listings: list[Listing] = []
    for value in "01":
        spec = BuildSpec(arch=arch, define={"RC_PROBE": value}, arguments=arguments)
        built = backend.build(source, spec, tmp_path)
        assert isinstance(built, Built), built
        listing = backend.disassemble(built)
        assert listing is not None
        listings.append(listing)
    shown = ["compute.tensor_core", "memory.async_copy", "memory.multi_stage_pipeline", "memory.vectorized_access"]
    others = ["compute.warp_specialization", "memory.ldg_cache_modifier_hint", "latency.intra_wg_gemm_softmax_pipeline"]
    found = check_methods([*shown, *others], *listings)
    assert [p.verdict for p in found[: len(shown)]] == ["verified"] * len(shown)
    assert not [p for p in found[len(shown) :] if p.verdict == "verified"]
    assert product in instruction_mix(listings[1])
