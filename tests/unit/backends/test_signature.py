"""What a user loses when a signature is misread: the kernel is called with the wrong arguments, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.cpp import CppBackend
from backends.signature import parse_signature, same_signature
from backends.types import BuildSpec, Signature, SourceError

PLAIN = BuildSpec()


def write(folder: Path, text: str, name: str = "kernel.cpp") -> Path:
    source = folder / name
    source.write_text(text, encoding="utf-8")
    return source


def read(folder: Path, text: str, spec: BuildSpec = PLAIN) -> Signature:
    """The signature as the real preprocessor and the parser see it."""
    return CppBackend().signature(write(folder, text), spec)


def shape(signature: Signature) -> list[str]:
    return [f"{p.type} {p.name}:{p.dtype}" for p in signature.parameters]


def of(parameters: str, before: str = "") -> Signature:
    """The signature of a plain `solve`, without running the preprocessor."""
    return parse_signature(f'{before}\nextern "C" void solve({parameters}) {{}}\n', Path("kernel.cpp"))


ACCEPTED = {
    "comments with commas and brackets in the list": (
        'extern "C" void solve(const float* x,        // [T, D]\n const int* expert_idx, // [T]\n'
        "float* dispatched_x,   // [E, capacity, D]\n int* token_counts,     /* [E] ) { */\n int T, int capacity) {\n}",
        [
            "const float* x:float32",
            "const int* expert_idx:int32",
            "float* dispatched_x:float32",
            "int* token_counts:int32",
            "int T:int32",
            "int capacity:int32",
        ],
    ),
    "quoted in a header comment, in UTF-8": (
        '// 接口: extern "C" void solve(const float* input, float* output, int N)\n#include <cmath>\n'
        'extern "C" void solve(const float* input, float* output, int N) {\n}',
        ["const float* input:float32", "float* output:float32", "int N:int32"],
    ),
    "several lines of commented signature": (
        '// API: extern "C" void solve(const float* chosen_logps, const float* rejected_logps,\n'
        "//   float* output, float beta, int B)\n"
        'extern "C" void solve(const float* chosen,\n float* output,\n int B) {}',
        ["const float* chosen:float32", "float* output:float32", "int B:int32"],
    ),
    "a dead version commented out above": (
        '// extern "C" void solve(const float* A, int M) {\n// }\n#if 0\nextern "C" void solve(int dead) {}\n#endif\n'
        'extern "C" void solve(float* A, int N) {}',
        ["float* A:float32", "int N:int32"],
    ),
    "an extern block behind #ifdef __cplusplus": (
        '#ifdef __cplusplus\nextern "C" {\n#endif\n'
        "// entry\nvoid solve(const float* input, float* output, int N) {\n}\n"
        "#ifdef __cplusplus\n}\n#endif\n",
        ["const float* input:float32", "float* output:float32", "int N:int32"],
    ),
    "prototype and call before the definition, size_t, main": (
        '#include <cstddef>\nextern "C" void solve(const float* a,\n float* c, size_t m);\n'
        "static void test() { solve(nullptr, nullptr, 3); }\n"
        'extern "C" void solve(const float* a, float* c, size_t m) {}\n'
        "int main(int argc, char** argv) { test(); }",
        ["const float* a:float32", "float* c:float32", "size_t m:uint64"],
    ),
    "C linkage from the prototype alone": (
        'extern "C" void solve(const float*, int);\nvoid solve(const float* a, int n) {}',
        ["const float* a:float32", "int n:int32"],
    ),
    "brace on its own line, int8 and mixed scalars": (
        "#include <stdint.h>\n"
        'extern "C" void solve(const int8_t* A, int8_t* C, int M,\n float scale_A,\n int zero_point)\n{\n}',
        ["const int8_t* A:int8", "int8_t* C:int8", "int M:int32", "float scale_A:float32", "int zero_point:int32"],
    ),
    "doubles and unsigned chars": (
        'extern "C" void solve(const double* data, const unsigned char* channel, int w,\n'
        "double chroma, double* output) {}",
        [
            "const double* data:float64",
            "const unsigned char* channel:uint8",
            "int w:int32",
            "double chroma:float64",
            "double* output:float64",
        ],
    ),
    "names that hide math functions": (
        '#include <cmath>\nextern "C" void solve(float* Q, float* cos, float* sin, int M) {}',
        ["float* Q:float32", "float* cos:float32", "float* sin:float32", "int M:int32"],
    ),
    "restrict through a macro, const scalar": (
        '#define R __restrict__\n#define API extern "C" __attribute__((visibility("default")))\n'
        "API void solve(const float* R X, float* R Y, const int N) {}",
        ["const float* X:float32", "float* Y:float32", "int N:int32"],
    ),
    "the whole definition from a macro": (
        '#define ENTRY(T) extern "C" void solve(const T* in, T* out, int n)\nENTRY(float) { out[0] = in[n - 1]; }',
        ["const float* in:float32", "float* out:float32", "int n:int32"],
    ),
    "templates, lambdas, members and namespaces of the same name": (
        "template <class T> void solve(T* x, T* y) { *x = *y; }\nstruct Solver { void solve(float*) {} };\n"
        "namespace detail { void solve(float* x, int n) { auto f = [=](int i) { x[i] = n; }; f(0); } }\n"
        'extern "C" void solve(float* out, int n) { detail::solve(out, n); }',
        ["float* out:float32", "int n:int32"],
    ),
    "test code behind a macro": (
        'extern "C" void solve(float* x, int n) {}\n#ifndef ONLINE_JUDGE\n'
        'extern "C" void solve(float*, int, int) {}\n#endif',
        ["float* x:float32", "int n:int32"],
    ),
    "a system macro inside the list": (
        "#include <cstddef>\n#include <climits>\n"
        'extern "C" void solve(float* x, const float* y = NULL, int n = INT_MAX) {}',
        ["float* x:float32", "const float* y:float32", "int n:int32"],
    ),
    "OpenMP and strings with braces in the body": (
        'extern "C" void solve(float* x, int n) {\n#pragma omp parallel for\nfor (int i = 0; i < n; ++i) x[i] = 1;\n'
        'const char* s = "}) { extern \\"C\\" void solve(int) {"; (void)s;\n}',
        ["float* x:float32", "int n:int32"],
    ),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_reads_what_real_kernels_look_like(case: str, tmp_path: Path) -> None:
    text, expected = ACCEPTED[case]
    assert shape(read(tmp_path, text, BuildSpec(define={"ONLINE_JUDGE": "1"}))) == expected


TYPES = {
    "float*A": "float* A:float32",
    "float const *A": "const float* A:float32",
    "const float* const A": "const float* A:float32",
    "float A[]": "float* A:float32",
    "const int A[16]": "const int* A:int32",
    "float (*A)": "float* A:float32",
    "volatile float* A": "float* A:float32",
    "float* A [[maybe_unused]]": "float* A:float32",
    "float* __attribute__((aligned(64))) A": "float* A:float32",
    "alignas(8) int n": "int n:int32",
    "bool b": "bool b:bool",
    "const bool* b": "const bool* b:bool",
    "unsigned n": "unsigned int n:uint32",
    "const unsigned n = 3": "unsigned int n:uint32",
    "unsigned const char* p": "const unsigned char* p:uint8",
    "signed char* p": "signed char* p:int8",
    "short* p": "short* p:int16",
    "long long n": "long long n:int64",
    "long long int n": "long long n:int64",
    "unsigned long n": "unsigned long n:uint64",
    "long n": "long n:int64",
    "std::size_t n": "size_t n:uint64",
    "std::int64_t n": "int64_t n:int64",
    "uint64_t p": "uint64_t p:uint64",
    "float f": "float f:float32",
    "double d": "double d:float64",
    "void* p": "void* p:void",
    "const void *p": "const void* p:void",
    "_Float16* h": "_Float16* h:float16",
    "const half* h": "const half* h:float16",
    "__half* h": "__half* h:float16",
    "__nv_bfloat16* h": "__nv_bfloat16* h:bfloat16",
    "bf16* h": "bf16* h:bfloat16",
    "const __nv_fp8_e4m3* q": "const __nv_fp8_e4m3* q:float8_e4m3",
    "__nv_fp8_e5m2* q": "__nv_fp8_e5m2* q:float8_e5m2",
    "const cutlass::half_t* h": "const half_t* h:float16",
    "::cuda::std::int32_t n": "int32_t n:int32",
    "half alpha": "half alpha:float16",
    "__nv_bfloat16 alpha": "__nv_bfloat16 alpha:bfloat16",
    "__nv_fp8_e4m3 alpha": "__nv_fp8_e4m3 alpha:float8_e4m3",
    "const float4* v": "const float4* v:float32",
    "uchar4* v": "uchar4* v:uint8",
    "longlong2* v": "longlong2* v:int64",
    "half2 *__restrict__ v": "half2* v:float16",
    "__nv_fp8x4_e5m2* v": "__nv_fp8x4_e5m2* v:float8_e5m2",
    "cudaStream_t stream": "cudaStream_t stream:void",
    "const cudaStream_t stream = 0": "cudaStream_t stream:void",
}


@pytest.mark.parametrize("written", TYPES)
def test_every_way_to_write_a_type(written: str) -> None:
    assert shape(of(written)) == [TYPES[written]]


def test_plain_char_is_a_byte() -> None:
    assert of("char* text").parameters[0].dtype in {"int8", "uint8"}


ALIASES = {
    "using real = float;": ("const real* x", "const float* x:float32"),
    "typedef double real; using value = real;": ("value v", "double v:float64"),
    "using in = const float*;": ("in x", "const float* x:float32"),
    # const before an alias of a pointer is a const pointer, not a pointer to const: this is an output
    "typedef float* out;": ("const out x", "float* x:float32"),
    "typedef unsigned char u8, *bytes;": ("bytes b", "unsigned char* b:uint8"),
    "namespace k { using real = double; }": ("k::real* x", "double* x:float64"),
    "using half = float;": ("half* x", "float* x:float32"),
    "typedef float quad[4];": ("quad x", "float* x:float32"),
}


@pytest.mark.parametrize("alias", ALIASES)
def test_aliases_are_resolved(alias: str) -> None:
    written, expected = ALIASES[alias]
    assert shape(of(written, alias)) == [expected]


REFUSED = {
    "float** rows": "pointer to a pointer",
    "float* const* rows": "pointer to a pointer",
    "float* rows[]": "pointer to a pointer",
    "float A[][4]": "pointer to a pointer or to an array",
    "float (*A)[4]": "pointer to a pointer or to an array",
    "float& x": "a reference cannot be bound",
    "float&& x": "a reference cannot be bound",
    "float (&x)[3]": "a reference cannot be bound",
    "void (*f)(int)": "a function pointer cannot be bound",
    "std::vector<float> v": "`std::vector<float>` is not known",
    "struct Args a": "`struct Args` cannot be bound",
    "enum Mode m": "`enum Mode` cannot be bound",
    "Matrix* m": "the type `Matrix` is not known",
    "cudaStream_t* stream": "a pointer to a stream cannot be bound; take the stream itself",
    "float4 v": "a value of type float4 cannot be passed; take a float or a pointer",
    "cutlass::half_t h": "a value of type half_t cannot be passed",
    "cutlass::tfloat32_t x": "a value of type tfloat32_t cannot be passed",
    "const __nv_fp4_e2m1* q": "take its bytes as `unsigned char`",
    "long double x": "`long double` cannot be bound",
    "unsigned __int128 x": "cannot be bound",
    "auto x": "`auto` cannot be bound",
    "float* A, int": "parameter 2 `int` has no name",
    "float*": "parameter 1 `float*` has no name",
    "float* A, int A": "the name A is used twice",
    "float* A, ...": "variable argument lists",
    "int const unsigned B": "cannot be read as C++",
}


@pytest.mark.parametrize("written", REFUSED)
def test_refuses_what_cannot_be_bound(written: str) -> None:
    """A parameter bound on a guess would crash the worker or, worse, give wrong numbers."""
    with pytest.raises(SourceError, match=r"^kernel\.cpp:2: ") as caught:
        of(written)
    assert REFUSED[written] in str(caught.value)
    assert "\n" not in str(caught.value)


REFUSED_ALIASES = {
    "struct Matrix { float* data; };": ("Matrix m", "`Matrix` is a struct"),
    "typedef float v8 __attribute__((vector_size(32)));": ("v8 x", "`v8` is a struct, class, union, enum or vector"),
    "using v4 __attribute__((vector_size(16))) = float;": ("v4* x", "the type `v4` is not known"),
    "typedef struct { int a; } Args;": ("Args a", "`Args` stands for a type that cannot be bound"),
    "namespace a { using real = float; } namespace b { using real = double; }": ("b::real x", "2 different types"),
    "using a = b; using b = a;": ("a x", "leads back to itself"),
}


@pytest.mark.parametrize("alias", REFUSED_ALIASES)
def test_refuses_aliases_that_say_nothing(alias: str) -> None:
    written, reason = REFUSED_ALIASES[alias]
    with pytest.raises(SourceError) as caught:
        of(written, alias)
    assert reason in str(caught.value)


RETURNS = {
    'extern "C" void solve(float* x) {}': "void",
    'extern "C" int solve(float* x) { return 77; }': "int",
    'extern "C" auto solve(float* x) -> int { return 0; }': "int",
    'using status = int; extern "C" status solve(float* x) { return 0; }': "int",
    'extern "C" int32_t solve(float* x) { return 0; }': "int",
}


@pytest.mark.parametrize("text", RETURNS)
def test_return_code_is_kept(text: str) -> None:
    """A kernel that returns 77 for "not implemented" must not pass as one that returns nothing."""
    assert parse_signature(text, Path("kernel.cpp")).returns == RETURNS[text]


@pytest.mark.parametrize("type_", ["float", "float*", "bool", "unsigned", "long", "const int*", "std::string", "auto"])
def test_other_return_types_are_refused(type_: str) -> None:
    with pytest.raises(SourceError, match="must return void, or int"):
        parse_signature(f'extern "C" {type_} solve(float* x) {{ return {{}}; }}', Path("kernel.cpp"))


NOT_EXPORTED = {
    "void solve(float* x) {}": 'is not extern "C"',
    'extern "C" { static void solve(float* x) {} }': "is static",
    'extern "C" inline void solve(float* x) {}': "is inline",
    'extern "C" { namespace { void solve(float* x) {} } }': "unnamed namespace",
    'extern "C" __attribute__((visibility("hidden"))) void solve(float* x) {}': "hidden visibility",
    'extern "C" { extern "C++" { void solve(float* x) {} } }': 'is not extern "C"',
    'extern "C" void solve(float*);\nvoid solve(float* x, int n) {}': 'is not extern "C"',
}


@pytest.mark.parametrize("text", NOT_EXPORTED)
def test_a_solve_that_the_library_would_not_export(text: str) -> None:
    """Else the user reads "symbol solve not found" from the loader and looks in the wrong place."""
    with pytest.raises(SourceError) as caught:
        parse_signature(text, Path("kernel.cpp"))
    assert NOT_EXPORTED[text] in str(caught.value)


def test_two_live_definitions_name_both_lines(tmp_path: Path) -> None:
    text = 'extern "C" void solve(float* x) {}\n\nextern "C" void solve(float* x, int n) {}\n'
    with pytest.raises(SourceError, match=r"2 live definitions of solve: kernel\.cpp:1 and kernel\.cpp:3"):
        read(tmp_path, text)


def test_definition_in_a_header_of_the_user_is_found_and_named(tmp_path: Path) -> None:
    header = tmp_path / "my impl (v2).h"
    header.write_text('#pragma once\nextern "C" void solve(float** x) {}\n', encoding="utf-8")
    with pytest.raises(SourceError, match=r"my impl \(v2\)\.h:2: parameter 1"):
        read(tmp_path, '#include <vector>\n#include "my impl (v2).h"\n')


def test_include_folders_and_defines_of_the_task_are_used(tmp_path: Path) -> None:
    folder = tmp_path / "include"
    folder.mkdir()
    (folder / "real.h").write_text("typedef REAL real;\n", encoding="utf-8")
    spec = BuildSpec(define={"REAL": "double"}, include=(folder,))
    text = '#include "real.h"\nextern "C" void solve(real* x) {}'
    assert shape(read(tmp_path, text, spec)) == ["double* x:float64"]


NOTHING = {
    '// extern "C" void solve(float* A) {}\nint x;': r"line 1 names it only in a comment",
    '#if 0\nextern "C" void solve(float* A) {}\n#endif': r"line 2 names it only in a comment, a string or a branch",
    'extern "C" void solution(float* A) {}': r"found solution\(\) at kernel\.cpp:1: rename it to solve",
    "void Solve(float* A) {}": r'found Solve\(\) at kernel\.cpp:1: make it extern "C" and rename it to solve',
    'extern "C" void solve(float* A);': r"kernel\.cpp:1 only declares it",
    "template <class T> void solve(T* A) {}": r"kernel\.cpp:1 is a template",
    "namespace a { void solve(float* A) {} }": r"kernel\.cpp:1 is in a namespace",
    'extern "C" void solve(float* A) = delete;': r"only declares it",
    "int main() { return 0; }": r'add extern "C" void solve',
    "": r'add extern "C" void solve',
}


@pytest.mark.parametrize("text", NOTHING)
def test_nothing_found_says_what_is_there_instead(text: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"no live definition of solve\(\)") as caught:
        read(tmp_path, text)
    assert caught.match(NOTHING[text])


def test_text_that_is_not_cpp_says_where(tmp_path: Path) -> None:
    """A Python-style heading before the kernel: the compiler would fail later, the parser must not run away."""
    with pytest.raises(SourceError, match=r"kernel\.cpp:1: a quote is opened here and not closed, .* a comment$"):
        read(tmp_path, '"""\nGray scale \\\n"""\nextern "C" void solve(unsigned char* image, int width) {\n}\n')


def test_missing_include_is_the_first_line_read(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"^kernel\.cpp:1:\d+: fatal error: solve\.h: No such file"):
        read(tmp_path, '#include "solve.h"\nextern "C" void solve(float* x) {}')


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"absent\.cpp: No such file"):
        CppBackend().signature(tmp_path / "absent.cpp", PLAIN)


def test_same_signature_ignores_spelling() -> None:
    assert same_signature(of("const float* A, unsigned n"), of("float const * __restrict__ A, uint32_t n")) is None


DIFFERENT = {
    "float* A, float* B, int N": "parameter 1 is `float* A`, the baseline has `const float* A`",
    "const float* A, const float* B, int N": "parameter 2 is `const float* B`, the baseline has `float* B`",
    "const float* B, float* A, int N": "parameter 1 is `const float* B`, the baseline has `const float* A`",
    "const float* A, double* B, int N": "parameter 2 is `double* B`, the baseline has `float* B`",
    "const float* A, int N, float* B": "parameter 2 is `int N`, the baseline has `float* B`",
    "const float* A, float* B, long N": "parameter 3 is `long N`, the baseline has `int N`",
    "const float* A, float* B": "2 parameters, the baseline has 3; the first unmatched is the baseline's `int N`",
    "const float* A, float* B, int N, int M": "4 parameters, the baseline has 3; "
    "the first unmatched is its own `int M`",
}


@pytest.mark.parametrize("candidate", DIFFERENT)
def test_a_candidate_with_another_signature_is_told_the_first_difference(candidate: str) -> None:
    """A candidate that made its output const would have nothing to check and pass."""
    assert same_signature(of("const float* A, float* B, int N"), of(candidate)) == DIFFERENT[candidate]


def test_a_parameter_may_be_renamed_but_not_swapped_with_another() -> None:
    """A good kernel must not fall over `M_`; `N, M` for `M, N` would compute something else."""
    baseline = of("const float* A, float* B, int M, int N")
    assert same_signature(baseline, of("const float* a, float* out, int M_, int N")) is None
    swapped = same_signature(baseline, of("const float* A, float* B, int N, int M"))
    assert swapped == "parameter 3 is `int N`, the baseline has `int M`"


def test_return_type_is_part_of_the_signature() -> None:
    number = parse_signature('extern "C" int solve(float* x) { return 0; }', Path("kernel.cpp"))
    assert same_signature(of("float* x"), number) == "returns `int`, the baseline returns `void`"
