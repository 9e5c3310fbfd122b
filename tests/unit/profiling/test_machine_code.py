"""The machine-code check: what counts as evidence that a method is in a kernel, on code that g++ really made."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from backends.cpp import CppBackend
from backends.types import BuildSpec, Built, Function, Instruction, Listing
from profiling.machine_code import SignatureError, check_methods, instruction_mix, load_signatures, same_code
from profiling.signature_table import parse_signatures

PROBES = Path(__file__).parents[2] / "data" / "probes" / "cpp"
X86 = platform.machine() == "x86_64"
x86 = pytest.mark.skipif(not X86, reason="the probes are written for x86-64")
SIGNED = sorted(m for m, by_arch in load_signatures().on("x86_64").methods.items() if "x86_64" in by_arch)
Pair = tuple[Listing, Listing]


def disassembled(source: Path, cache: Path, flags: tuple[str, ...] = (), **define: str) -> Listing:
    backend = CppBackend()
    built = backend.build(source, BuildSpec(flags=flags, define=define), cache)
    assert isinstance(built, Built), built
    listing = backend.disassemble(built)
    assert listing is not None
    return listing


def compiled(tmp_path: Path, source: str, flags: tuple[str, ...] = (), **define: str) -> Listing:
    file = tmp_path / "kernel.cpp"
    file.write_text(source, encoding="utf-8")
    return disassembled(file, tmp_path / "cache", flags, **define)


@pytest.fixture(scope="module")
def probes(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Pair]:
    """Per method the plain kernel and the one with the method."""
    cache = tmp_path_factory.mktemp("builds")

    def pair(source: Path) -> Pair:
        first = source.read_text(encoding="utf-8").splitlines()[0]
        flags = tuple(first.removeprefix("// flags:").split()) if first.startswith("// flags:") else ()
        return disassembled(source, cache, flags, RC_PROBE="0"), disassembled(source, cache, flags, RC_PROBE="1")

    sources = sorted(PROBES.glob("*.cpp"))
    with ThreadPoolExecutor(2) as pool:
        return dict(zip((s.stem for s in sources), pool.map(pair, sources), strict=True))


def test_every_signature_has_a_probe() -> None:
    """A signature that no compiler was ever asked about is a guess."""
    assert {p.stem for p in PROBES.glob("*.cpp")} == set(SIGNED)


@x86
@pytest.mark.parametrize("method", SIGNED)
def test_a_method_is_found_where_it_is_and_nowhere_else(method: str, probes: Mapping[str, Pair]) -> None:
    """A missed method is recorded as a failed implementation; a false find credits code that is not there."""
    plain, probe = probes[method]
    (found,) = check_methods([method], before=plain, after=probe)
    assert found.verdict == "verified", found.reason
    assert found.lines
    assert found.before.keys() == found.after.keys() != set()
    for before, after in ((plain, plain), (probe, probe), (probe, plain)):
        (missing,) = check_methods([method], before=before, after=after)
        assert missing.verdict == "absent", missing.reason
        assert not missing.lines


@x86
def test_a_bigger_kernel_passes_for_bigger_only(probes: Mapping[str, Pair]) -> None:
    """Unrolling multiplies every opcode; it must not count as vectors, FMAs, accumulators, fewer stores or branches."""
    found = check_methods(SIGNED, *probes["compute.loop_unroll"])
    assert [p.method for p in found if p.verdict == "verified"] == ["compute.loop_unroll"]


@x86
def test_probes_of_single_instructions_show_that_method_alone(probes: Mapping[str, Pair]) -> None:
    for method in (
        "memory.streaming_stores",
        "latency.software_prefetch",
        "memory.huge_pages",
        "memory.aligned_access",
    ):
        found = check_methods(SIGNED, *probes[method])
        assert [p.method for p in found if p.verdict == "verified"] == [method]


@x86
def test_scalar_edges_around_a_vector_loop_do_not_hide_it(tmp_path: Path) -> None:
    """A good kernel drags edge loops along that outnumber its hot loop in the listing."""
    edges = "\n".join(
        f"for (int j = n & ~7; j < n; ++j) {{ float s = x[j]; for (int d = 0; d < n; ++d) s = s * {i}.5f + s / (s + d);"
        "y[j] += s; }"
        for i in range(12)
    )
    source = f"""
        #include <immintrin.h>
        extern "C" void solve(const float* x, float* y, int n) {{
        #if RC_PROBE
            __m256 s = _mm256_setzero_ps();
            for (int i = 0; i + 8 <= n; i += 8) s = _mm256_fmadd_ps(_mm256_loadu_ps(x + i), _mm256_loadu_ps(x + i), s);
            _mm256_storeu_ps(y, s);
            {edges}
        #else
            float s = 0;
            for (int i = 0; i < n; ++i) s += x[i] * x[i];
            *y = s;
        #endif
        }}"""
    plain, probe = (compiled(tmp_path, source, RC_PROBE=value) for value in "01")
    (found,) = check_methods(["compute.vectorize_intrinsics"], plain, probe)
    assert found.verdict == "verified", found.reason


@x86
def test_a_function_name_is_not_an_instruction(tmp_path: Path) -> None:
    """A text search would take `prefetch_gather_vfmadd` for three methods."""
    source = """
        __attribute__((noinline))
        static int prefetcht0_vgatherdps_vfmadd231ps(int x) { asm volatile(""); return x + 1; }
        extern "C" void solve(int* y, int n) { for (int i = 0; i < n; ++i) y[i] = %s; }"""
    plain = compiled(tmp_path, source % "i")
    named = compiled(tmp_path, source % "prefetcht0_vgatherdps_vfmadd231ps(i)")
    assert "prefetcht0_vgatherdps" in named.text
    found = check_methods(["latency.software_prefetch", "compute.fma_and_fast_math"], plain, named)
    assert [p.verdict for p in found] == ["absent", "absent"]
    assert instruction_mix(named)["gathers"] == 0


def test_nothing_passes_for_lack_of_a_disassembler() -> None:
    listing = Listing("x86_64", (), "")
    for before, after in ((None, None), (listing, None), (None, listing)):
        found = check_methods(["compute.loop_unroll", "memory.tiling_cache"], before, after)
        assert [p.verdict for p in found] == ["unavailable", "unavailable"]


def test_methods_without_opcodes_are_left_to_the_difference_of_code() -> None:
    listing = Listing("x86_64", (), "")
    found = check_methods(["memory.tiling_cache", "memory.invented_by_a_plan"], listing, listing)
    assert [(p.method, p.verdict) for p in found] == [
        ("memory.tiling_cache", "none"),
        ("memory.invented_by_a_plan", "none"),
    ]


def test_a_method_that_has_no_signature_here_is_unavailable_not_excused() -> None:
    arm, x86_64, gpu = (Listing(arch, (), "") for arch in ("aarch64", "x86_64", "sm_80"))
    assert check_methods(["memory.aligned_access"], arm, arm)[0].verdict == "unavailable"
    assert check_methods(["latency.pdl_overlap"], x86_64, x86_64)[0].verdict == "unavailable"
    assert check_methods(["latency.pdl_overlap"], gpu, gpu)[0].verdict == "unavailable"
    assert check_methods(["compute.loop_unroll"], arm, x86_64)[0].verdict == "unavailable"


def sass(arch: str, *opcodes: str, name: str = "kernel") -> Listing:
    instructions = tuple(Instruction(16 * i, opcode, "R0, R1", 0) for i, opcode in enumerate(opcodes))
    return Listing(arch, (Function(name, instructions),), "")


@pytest.mark.parametrize(
    ("method", "arch", "opcode", "verdict"),
    [
        ("compute.tensor_core", "sm_90a", "HGMMA.64x128x16.F32", "verified"),
        ("compute.tensor_core", "sm_90a", "HMMA.16816.F32", "verified"),
        ("compute.tensor_core", "sm_90a", "WGMMA.64x128x16.F32", "absent"),
        ("compute.tensor_core", "sm_90a", "HFMA2.MMA", "absent"),
        ("compute.tensor_core", "sm_100a", "UTCHMMA", "verified"),
        ("compute.tensor_core", "sm_80", "HGMMA.64x128x16.F32", "absent"),
        ("compute.tf32_emulation_3xtf32_bf16x6", "sm_80", "HMMA.1688.F32.TF32", "absent"),
        ("latency.producer_regdealloc_setmaxnreg", "sm_90a", "USETMAXREG.TRY_ALLOC.CTAPOOL", "verified"),
        ("latency.producer_regdealloc_setmaxnreg", "sm_90a", "SETMAXREG.INC", "absent"),
        ("latency.asymmetric_mbarrier_sync", "sm_90a", "SYNCS.ARRIVE.TRANS64", "absent"),
        ("latency.pdl_overlap", "sm_90a", "PREEXIT", "verified"),
        ("latency.pdl_overlap", "sm_90a", "ACQBULK", "verified"),
        ("memory.tma_im2col_implicit_conv", "sm_90a", "UTMALDG.4D.IM2COL", "verified"),
        ("memory.tensor_map_rebuild_avoid", "sm_90a", "UTMACCTL.PF", "verified"),
        ("memory.ldg_cache_modifier_hint", "sm_90a", "LDG.E.EF", "verified"),
        ("memory.ldg_cache_modifier_hint", "sm_90a", "LDG.E.STRONG.GPU", "verified"),
        ("memory.ldg_cache_modifier_hint", "sm_90a", "LDG.E", "absent"),
        ("latency.cluster_launch_control_scheduler", "sm_100a", "UGETNEXTWORKID.SELFCAST", "verified"),
        ("latency.cooperative_cluster", "sm_90a", "UCGABAR_ARV", "verified"),
        ("latency.warp_shuffle_sync", "sm_90", "RED.E.ADD.F32", "absent"),
    ],
)
def test_what_the_assembler_really_prints_for_a_gpu(method: str, arch: str, opcode: str, verdict: str) -> None:
    """SASS has other names than PTX; a table of PTX names finds nothing, or the wrong thing."""
    before, after = sass(arch, "IMAD", "EXIT"), sass(arch, "IMAD", opcode, "EXIT", name=f"{opcode}_kernel")
    assert check_methods([method], before, after)[0].verdict == verdict


def test_aarch64_tells_vectors_from_scalars_by_their_registers() -> None:
    """There `fmla` and `fadd` are one mnemonic for both."""

    def loop(*rows: tuple[str, str]) -> Listing:
        body = tuple(Instruction(4 * i, opcode, operands, 1) for i, (opcode, operands) in enumerate(rows))
        return Listing("aarch64", (Function("solve", (*body, Instruction(400, "ret", "", 0))),), "")

    scalar = loop(("ldr", "s1, [x0], #4"), ("fmul", "s1, s1, s2"), ("fadd", "s0, s0, s1"), ("b.ne", "0"))
    vector = loop(("ldr", "q1, [x0], #16"), ("fmla", "v0.4s, v1.4s, v2.4s"), ("prfm", "pldl1keep, [x0]"), ("b.ne", "0"))
    methods = ["compute.vectorize_intrinsics", "compute.fma_and_fast_math", "latency.software_prefetch"]
    assert [p.verdict for p in check_methods(methods, scalar, vector)] == ["verified"] * 3
    assert [p.verdict for p in check_methods(methods, vector, scalar)] == ["absent"] * 3
    assert (instruction_mix(scalar)["scalar_float"], instruction_mix(vector)["vector_128"]) == (2, 1)


@x86
def test_the_mix_counts_what_the_loops_hold(probes: Mapping[str, Pair]) -> None:
    plain, poly = (instruction_mix(listing) for listing in probes["compute.vector_math_polynomial"])
    assert plain["calls_in_loops"] == 1
    assert plain["call_targets"] == "expf"
    assert poly["calls_in_loops"] == 0
    assert "call_targets" not in poly
    assert int(poly["fma"]) > 0
    assert instruction_mix(probes["memory.gather_avoid"][0])["gathers"] == 1
    assert instruction_mix(probes["memory.streaming_stores"][1])["streaming_stores"] == 1
    assert instruction_mix(probes["latency.software_prefetch"][1])["prefetches"] == 1
    assert int(instruction_mix(probes["memory.register_pressure"][0])["spills"]) > 0
    assert int(instruction_mix(probes["compute.reciprocal_multiply"][0])["divisions"]) > 0
    assert int(instruction_mix(probes["compute.vector_width_512"][1])["vector_512"]) == 1
    assert int(instruction_mix(probes["compute.branch_eliminate"][0])["scalar_float"]) > 0


@x86
def test_work_hidden_in_a_called_helper_still_counts_as_in_the_loop(probes: Mapping[str, Pair]) -> None:
    """Else moving the slow part into a function that is not inlined would make it vanish from the evidence."""
    mix = instruction_mix(probes["compute.inline_calls"][0])
    assert mix["calls_in_loops"] == 1
    assert int(mix["scalar_float"]) >= 1


def test_a_kind_that_is_not_defined_is_left_out_of_the_mix() -> None:
    """Zero would say "no fused multiply-adds" of an architecture where nobody looked."""
    mix = instruction_mix(sass("riscv64", "fmadd.s", "ret"))
    assert mix == {"instructions": 2, "instructions_in_loops": 0, "instructions_in_innermost_loops": 0}


MOVED = """
    #if RC_PAD
    extern "C" __attribute__((used, section(".rodata.a"))) const char kPad[4000] = {1};
    #endif
    __attribute__((noinline)) static float helper(float x) { asm volatile(""); return x * 1.7f + 0.3f; }
    extern "C" void solve(const float* x, float* y, int n) {
        for (int i = 0; i < n; ++i) y[i] = helper(x[i]) + RC_VALUE;
    }"""


@x86
def test_code_that_only_moved_is_the_same_code(tmp_path: Path) -> None:
    """A switch that changes nothing must be seen to change nothing, wherever the linker puts things."""
    here = compiled(tmp_path, MOVED, RC_PAD="0", RC_VALUE="i * 3")
    moved = compiled(tmp_path, MOVED, ("-falign-functions=64",), RC_PAD="1", RC_VALUE="i * 3")
    assert here.functions[-1].instructions[0].address != moved.functions[-1].instructions[0].address
    assert same_code(here, moved)
    assert same_code(here, here)


@x86
def test_one_changed_operand_is_other_code(tmp_path: Path) -> None:
    base = compiled(tmp_path, MOVED, RC_PAD="0", RC_VALUE="i * 3")
    assert not same_code(base, compiled(tmp_path, MOVED, RC_PAD="0", RC_VALUE="i * 5"))
    assert not same_code(base, compiled(tmp_path, MOVED, RC_PAD="0", RC_VALUE="i"))
    assert not same_code(base, Listing("aarch64", base.functions, base.text))


@x86
def test_every_probe_differs_from_its_twin(probes: Mapping[str, Pair]) -> None:
    assert [method for method, (plain, probe) in probes.items() if same_code(plain, probe)] == []


def branch(address: int, to: int) -> Instruction:
    return Instruction(address, "jne", f"{to:x}", 1)


def test_loops_that_lie_back_to_back_are_told_apart() -> None:
    """Counted as one, two loops of four FMAs would pass for an unrolled one of eight."""

    def fmas(start: int) -> list[Instruction]:
        return [Instruction(start + i, "vfmadd231ps", f"%ymm8,%ymm9,%ymm{start + i}", 1) for i in range(4)]

    body = (*fmas(0), branch(4, 0), *fmas(5), branch(9, 5), Instruction(10, "ret", "", 0))
    two = Listing("x86_64", (Function("solve", body),), "")
    one = Listing("x86_64", (Function("solve", (*body[:5], body[-1])),), "")
    whole = (*fmas(0), *fmas(4), branch(8, 0), body[-1])
    methods = ["compute.multiple_accumulators"]
    assert check_methods(methods, one, two)[0].verdict == "absent"
    assert check_methods(methods, one, Listing("x86_64", (Function("solve", whole),), ""))[0].verdict == "verified"


ENTRY = """
classes: {x86_64: {fma: [{opcodes: ['vfm*']}]}}
none: [memory.tiling_cache]
signatures:
  compute.fma_and_fast_math:
    x86_64: [{class: fma, where: loop, change: grows}]
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("class: fma", "class: fmas", "x.yaml: class 'fmas' is not defined for this architecture; it has fma"),
        ("class: fma", "opcodes: []", "needs either `opcodes` or `class`"),
        ("where: loop", "where: loops", "'anywhere', 'loop' or 'innermost'"),
        ("where: loop", "where: loop, measure: peak", "say `where: innermost`"),
        ("change: grows", "change: grows, of: fma", "`of` belongs to"),
        ("memory.tiling_cache", "compute.fma_and_fast_math", "is listed as `none` and has a signature"),
        ("none:", "none: [", "x.yaml: not valid YAML"),
    ],
)
def test_a_wrong_signature_file_is_one_clear_line(old: str, new: str, message: str) -> None:
    with pytest.raises(SignatureError) as caught:
        parse_signatures(ENTRY.replace(old, new), "x.yaml")
    assert message in str(caught.value)
    assert str(caught.value).startswith("x.yaml: ")
    assert "\n" not in str(caught.value)


@x86
def test_a_kernel_with_one_loop_is_not_all_loop(tmp_path: Path) -> None:
    """A jump inside `solve` is annotated with `solve` itself; read as a call, it would put everything in a loop."""
    source = """extern "C" void solve(const float* x, float* y, int n) {
        if (n < 4 || x == y) return;
        y[0] = x[0] / x[1];
        for (int i = 1; i < n; ++i) y[i] = y[i - 1] * x[i];
    }"""
    mix = instruction_mix(compiled(tmp_path, source))
    assert mix["divisions"] == 0
    assert mix["scalar_float"] == 1
    assert int(mix["instructions_in_loops"]) < int(mix["instructions"])
