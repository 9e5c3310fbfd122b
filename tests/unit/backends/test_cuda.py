"""What a user loses when CUDA builds go wrong: a night's run, or a kernel judged by a build that was not its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType

import pytest

from backends.cuda import CudaBackend
from backends.cuda_toolchain import find_cudart
from backends.types import BuildSpec, Built, Rejected, SourceError

NOTHING: Mapping[str, str] = MappingProxyType({})
ROOT = Path(__file__).resolve().parents[3]
HOPPER = BuildSpec(arch="sm_90", define={"ONE": "1.0f"})
HEAD = 'extern "C" void solve(const float* a, float* b, int n)'
ADD = f"""__global__ void add(const float* a, float* b, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) b[i] = a[i] + ONE;
}}
{HEAD} {{ add<<<(n + 255) / 256, 256>>>(a, b, n); }}
"""
# No device code: half the time of a build.
EMPTY = HEAD + " {}\n"
WGMMA = """__global__ void fence(float* b) { asm volatile("wgmma.fence.sync.aligned;\\n" ::: "memory"); b[0] = 1; }
extern "C" void solve(float* b) { fence<<<1, 128>>>(b); }
"""
TCGEN05 = """__global__ void allocate(unsigned* b) {
    __shared__ unsigned s;
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 32;"
                 :: "r"((unsigned)__cvta_generic_to_shared(&s)));
    b[0] = s;
}
extern "C" void solve(unsigned* b) { allocate<<<1, 32>>>(b); }
"""
# Needs sm_100a, and no word that the backend looks for says so.
REDUX = """__global__ void reduce(float* b) {
    float r;
    asm volatile("redux.sync.max.abs.NaN.f32 %0, %1, 0xffffffff;" : "=f"(r) : "f"(b[threadIdx.x]));
    b[0] = r;
}
extern "C" void solve(float* b) { reduce<<<1, 32>>>(b); }
"""
SPILLS = """__global__ void spill(const float* a, float* b) {
    float r[48];
    #pragma unroll
    for (int i = 0; i < 48; i++) r[i] = a[i * 32 + threadIdx.x];
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < 48; i++) b[i * 32 + threadIdx.x] = r[i] * r[(i + 7) % 48] + r[(i + 23) % 48];
}
template <int N> __global__ void shared(float* b) {
    __shared__ float s[N];
    s[threadIdx.x] = b[threadIdx.x];
    __syncthreads();
    b[threadIdx.x] = s[N - 1 - threadIdx.x];
}
extern "C" void solve(const float* a, float* b) { spill<<<1, 32>>>(a, b); shared<64><<<1, 64>>>(b); }
"""


def write(folder: Path, text: str, name: str = "kernel.cu") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / name
    source.write_text(text, encoding="utf-8")
    return source


def built(source: Path, spec: BuildSpec, cache: Path) -> Built:
    result = CudaBackend().build(source, spec, cache)
    assert isinstance(result, Built), result
    return result


def rejected(source: Path, spec: BuildSpec, cache: Path) -> Rejected:
    result = CudaBackend().build(source, spec, cache)
    assert isinstance(result, Rejected), result
    assert result.stage == "build"
    return result


def python(
    code: str, *arguments: object, cwd: Path | None = None, env: Mapping[str, str] = NOTHING
) -> subprocess.CompletedProcess[str]:
    """Run `code` in a fresh interpreter with nothing in its environment but `env`."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=cwd,
        env={"PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cuda") / "ca che (1)"


def test_a_build_exports_solve_alone_and_loads_with_the_run_time(cache: Path, tmp_path: Path) -> None:
    first = built(write(tmp_path / "b0", ADD), HOPPER, cache)
    again = built(write(tmp_path / "b1", ADD), HOPPER, cache)
    assert (first.cached, again.cached, again.seconds) == (False, True, 0.0)
    assert (again.artifact, again.command, again.resources) == (first.artifact, first.command, first.resources)
    assert first.artifact == cache / first.key / "kernel.so"
    assert [path.name for path in cache.iterdir() if path.name.startswith(".")] == []
    [kernel] = first.resources
    assert (kernel.name, kernel.arch, kernel.spill_load_bytes) == ("add(float const*, float*, int)", "sm_90", 0)
    assert kernel.registers is not None
    assert 4 < kernel.registers < 40
    names = subprocess.run(["nm", "-D", "--defined-only", first.artifact], capture_output=True, text=True, check=True)
    assert [line.split()[-1] for line in names.stdout.splitlines()] == ["solve"]
    assert CudaBackend().refusal(first, ()) is None
    run_time = find_cudart()
    assert run_time is not None
    load = "import ctypes, sys; ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL); ctypes.CDLL(sys.argv[2]).solve; print(1)"
    assert python(load, run_time, first.artifact).stdout == "1\n"


def test_the_listing_holds_the_kernels_own_instructions(cache: Path, tmp_path: Path) -> None:
    result = built(write(tmp_path, ADD), HOPPER, cache)
    listing = CudaBackend().disassemble(result)
    assert listing is not None
    assert listing.arch == "sm_90"
    [function] = listing.functions
    assert function.name == result.resources[0].name
    assert {"FADD", "EXIT"} <= {i.opcode for i in function.instructions}
    assert CudaBackend().disassemble(result, limit_bytes=500) is None, "half a listing would hide what a kernel does"


@pytest.mark.parametrize(
    ("text", "arch", "real"),
    [
        (ADD, "sm_80", "sm_80"),
        (WGMMA, "sm_90", "sm_90a"),
        (TCGEN05, "sm_100", "sm_100a"),
        (REDUX, "sm_100", "sm_100a"),
    ],
)
def test_the_architectures_own_features_are_there_where_a_kernel_needs_them(
    text: str, arch: str, real: str, cache: Path, tmp_path: Path
) -> None:
    result = built(write(tmp_path, text), BuildSpec(arch=arch, define={"ONE": "1"}), cache)
    assert {kernel.arch for kernel in result.resources} == {real}
    assert f"-gencode=arch={real.replace('sm', 'compute')},code={real}" in result.command
    listing = CudaBackend().disassemble(result)
    assert listing is not None
    assert listing.arch == real


def test_spills_shared_memory_and_every_kernel_are_reported(cache: Path, tmp_path: Path) -> None:
    spec = BuildSpec(arch="sm_90", flags=("-maxrregcount=24", "-gencode=arch=compute_80,code=sm_80"))
    result = built(write(tmp_path, SPILLS), spec, cache)
    found = {(k.name, k.arch): k for k in result.resources}
    spill, shared = "spill(float const*, float*)", "void shared<64>(float*)"
    assert set(found) == {(name, arch) for name in (spill, shared) for arch in ("sm_80", "sm_90")}
    hopper = found[spill, "sm_90"]
    assert hopper.registers == 24
    assert hopper.spill_store_bytes
    assert hopper.spill_load_bytes
    assert (found[shared, "sm_90"].shared_bytes, found[shared, "sm_90"].spill_load_bytes) == (256, 0)
    assert found[shared, "sm_80"].constant_bytes
    assert "registers" not in result.log
    listing = CudaBackend().disassemble(result)
    assert listing is not None
    assert (listing.arch, {f.name for f in listing.functions}) == ("sm_90", {spill, shared})


def test_whatever_changes_the_code_changes_the_key(cache: Path, tmp_path: Path) -> None:
    """A method switched off must not be served the build in which it is on."""
    host, device = write(tmp_path, "", "host.cuh"), write(tmp_path, "", "device.cuh")
    guarded = '#include "host.cuh"\n#ifdef __CUDA_ARCH__\n#include "device.cuh"\n#endif\n' + EMPTY
    source = write(tmp_path, guarded)
    plain = BuildSpec(arch="sm_90")
    specs = [
        plain,
        BuildSpec(arch="sm_80"),
        BuildSpec(arch="sm_90", flags=("--use_fast_math",)),
        BuildSpec(arch="sm_90", define={"RC_TILING": "0"}),
    ]
    with ThreadPoolExecutor(2) as pool:
        keys = [result.key for result in pool.map(lambda spec: built(source, spec, cache), specs)]
    assert built(source, BuildSpec(arch="sm_90", timeout_s=60.0), cache).key == keys[0]
    host.write_text("#define A 1\n", encoding="utf-8")
    keys.append(built(source, plain, cache).key)
    device.write_text("#define B 1\n", encoding="utf-8")
    keys.append(built(source, plain, cache).key)
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("name", ["General Matrix (GEMM) [v2].cu", "-a,b $HOME `id` \"q\" 'q';.cu"])
def test_names_that_a_shell_would_read(name: str, cache: Path, tmp_path: Path) -> None:
    folder = tmp_path / "a, b (x) $HOME `id` 'q'"
    write(folder, "#define TWO 2\n", "two (2).h")
    write(folder / "in,clude", "#define THREE 3\n", "three.h")
    text = f'#include "two (2).h"\n#include <three.h>\n{HEAD} {{ static_assert(TWO + THREE == 5, ""); }}\n'
    spec = BuildSpec(arch="sm_90", include=(folder / "in,clude",), define={"TEXT": '"$HOME, `id` it\'s"'})
    check = 'constexpr char text[] = TEXT;\nstatic_assert(text[0] == 36 && text[5] == 44 && text[7] == 96, "");\n'
    source = write(folder, check + text, name)
    assert built(source, spec, cache).artifact.is_file()
    assert len(CudaBackend().signature(source, spec).parameters) == 3
    broken = write(folder, "int x = missing;\n", name)
    assert rejected(broken, spec, cache).reason == f'{name}(1): error: identifier "missing" is undefined'


def test_the_signature_is_the_one_that_the_host_sees(tmp_path: Path) -> None:
    text = f'#ifdef __CUDA_ARCH__\nextern "C" void solve(double* x);\n#else\n{EMPTY}#endif\n'
    found = CudaBackend().signature(write(tmp_path, text), HOPPER)
    assert [p.type for p in found.parameters] == ["const float*", "float*", "int"]
    with pytest.raises(SourceError, match=r"kernel\.cu:1:10: fatal error: absent\.h: No such file"):
        CudaBackend().signature(write(tmp_path, '#include "absent.h"\n'), HOPPER)


def kernel(body: str, before: str = "") -> str:
    return f"{before}\n__global__ void k(float* b) {{ {body} }}\n{HEAD} {{ k<<<1, 1>>>(b); }}\n"


@pytest.mark.parametrize(
    ("text", "reason", "evidence"),
    [
        (kernel("b[0] = missing;"), 'kernel.cu(2): error: identifier "missing" is undefined', "b[0] = missing;"),
        ('#include "absent.h"\n', "kernel.cu:1:10: fatal error: absent.h: No such file or directory", "absent.h"),
        (kernel("b[0] = far(b[1]);", "__device__ float far(float);"), "Unresolved extern function 'far(float)'", "far"),
        (f"float far(float);\n{HEAD} {{ far(1); }}\n", "undefined reference to `far(float)'", "undefined"),
        (
            kernel("__shared__ float s[100000]; s[threadIdx.x] = b[0]; __syncthreads(); b[0] = s[5];"),
            "Entry function 'k(float*)' uses too much shared data (0x61a80 bytes, 0xc000 max)",
            "shared data",
        ),
        (
            kernel('asm volatile("st.global.f32 [%0], %1;" :: "l"(b), "d"(1.0));'),
            "ptxas kernel.ptx, line",
            "    st.global.f32 [%rd1], %fd1;\n    from kernel.cu:2",
        ),
        (
            kernel("T x; x.foo(); b[0] = x;")
            .replace("\n__global__", "\ntemplate <class T> __global__")
            .replace("k<<<1", "k<float><<<1"),
            'kernel.cu(2): error: expression must have class type but it has type "float"',
            '    at line 3 of kernel.cu: instantiation of "void k<T>(float *) [with T=float]"',
        ),
        ("#error No space left on device\n", "kernel.cu:1:2: error: #error No space left on device", "#error"),
        (WGMMA.replace("wgmma.fence", "wgmma.fence.oops"), "error   : ", "wgmma.fence.oops.sync.aligned;"),
    ],
)
def test_a_bad_kernel_is_told_in_one_line_with_the_text_behind_it(
    text: str, reason: str, evidence: str, cache: Path, tmp_path: Path
) -> None:
    result = rejected(write(tmp_path, text), HOPPER, cache)
    assert reason in result.reason
    assert evidence in result.evidence
    assert len(result.evidence) < 6500
    for private in (str(tmp_path), str(cache), "tmpxft", "_beside", "_toolkit", "cubin"):
        assert private not in result.reason + result.evidence


def test_a_warning_is_no_error_and_is_kept(cache: Path, tmp_path: Path) -> None:
    source = write(tmp_path, HEAD + " { int unused; }\n")
    first, again = (built(source, HOPPER, cache) for _ in range(2))
    assert 'kernel.cu(1): warning #177-D: variable "unused" was declared but never referenced' in first.log
    assert again.log == first.log


def test_libraries_beyond_the_run_time_are_refused_unless_allowed(cache: Path, tmp_path: Path) -> None:
    stub = write(tmp_path, 'extern "C" int cublasCreate_v2(void*) { return 0; }\n', "stub.cpp")
    library = tmp_path / "libcublas.so"
    argv = ["g++", "-shared", "-fPIC", "-Wl,-soname,libcublas.so.13", "-o", str(library), str(stub)]
    subprocess.run(argv, check=True)
    text = 'extern "C" int cublasCreate_v2(void*);\n' + HEAD + " { cublasCreate_v2(b); }\n"
    spec = BuildSpec(arch="sm_90", flags=(f"-L{tmp_path}", "-lcublas"))
    result = built(write(tmp_path, text), spec, cache)
    refusal = CudaBackend().refusal(result, ())
    assert refusal == "needs libcublas.so.13, which task.allow.libraries does not name"
    assert CudaBackend().refusal(result, ("cublas",)) is None
    loads = built(write(tmp_path, "#include <dlfcn.h>\n" + HEAD + ' { dlopen("x", 1); }\n'), HOPPER, cache)
    assert "calls dlopen" in str(CudaBackend().refusal(loads, ("cublas",)))


def test_a_compiler_that_does_not_end_is_stopped(cache: Path, tmp_path: Path) -> None:
    lines = [f"#define A{n} A{n + 1} A{n + 1}" for n in range(40)]
    source = write(tmp_path, "\n".join([*lines, "A0", EMPTY]))
    assert "exceeded 1 s" in rejected(source, BuildSpec(arch="sm_90", timeout_s=1.0), cache).reason


def test_equal_builds_in_parallel_do_not_collide(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    sources = [write(tmp_path / f"b{n}", EMPTY) for n in range(3)]
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(lambda source: built(source, HOPPER, cache), sources))
    assert len({result.artifact for result in results}) == 1
    assert len(list(cache.iterdir())) == 1


def test_missing_source_is_named(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"absent\.cu: No such file"):
        CudaBackend().build(tmp_path / "absent.cu", HOPPER, cache)


def test_comments_and_layout_do_not_make_another_kernel_and_launches_stay_whole() -> None:
    backend = CudaBackend()
    spread = ADD.replace("<<<", " /* grid */ <<< ").replace("(a, b, n); }", "( a,b, n ) ; // launch\n}")
    assert backend.source_hash(spread) == backend.source_hash(ADD)
    assert backend.source_hash(ADD.replace("256>>>", "128>>>")) != backend.source_hash(ADD)
    assert backend.source_hash(ADD.replace("a[i] + ONE", "a[i] - ONE")) != backend.source_hash(ADD)
    assert backend.has_switch("#if RC_TILING\n#endif\n" + ADD, "RC_TILING")
    assert not backend.has_switch("// RC_TILING\n" + ADD, "RC_TILING")
