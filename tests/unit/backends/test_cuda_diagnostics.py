"""What a user loses: a repair prompt with two hundred lines of CUTLASS in it and not the one of the kernel."""

from __future__ import annotations

import pytest

from backends.diagnostics import errors_only, first_error

# nvcc 13.0.88 on a kernel that divides a CuTe tensor by 3.5; candidates and template arguments shortened.
CUTE = """kernel.cu(7): warning #177-D: variable "unused" was declared but never referenced
    int unused;
        ^

Remark: The warnings can be suppressed with "-diag-suppress <warning-number>"

cute/tensor_impl.hpp(926): error: no instance of overloaded function "cute::make_tensor" matches
            argument types are: (cute::gmem_ptr<float *>, void)
    return make_tensor(static_cast<Tensor&&>(tensor).data(),
           ^
cute/tensor_impl.hpp(409): note #3327-D: candidate function template "cute::make_tensor(const T &)" failed deduction
  make_tensor(Iterator const& iter, Args const&... args)
  ^
          detected during instantiation of "auto cute::logical_divide(T &&) [with T=float]" at line 3 of kernel.cu

cute/stride.hpp(108): error: static assertion failed with "Mismatched Ranks"
        static_assert(tuple_size<Coord>::value == tuple_size< Shape>::value, "Mismatched Ranks");
        ^
          detected during:
            instantiation of "auto cute::crd2idx(const Coord &) [with Coord=int]" at line 110
            instantiation of "auto cute::slice(const Coord &) [with Coord=int]" at line 171 of cute/layout.hpp
            [ 3 instantiation contexts not shown ]
            instantiation of "auto cute::Tensor::operator()(const Coord &) [with Coord=int]" at line 4 of kernel.cu

cute/stride.hpp(108): error: static assertion failed with "Mismatched Ranks"
        static_assert(tuple_size<Coord>::value == tuple_size< Shape>::value, "Mismatched Ranks");
        ^
          detected during:
            instantiation of "auto cute::crd2idx(const Coord &) [with Coord=int]" at line 110
            instantiation of "auto cute::Tensor::operator()(const Coord &) [with Coord=int]" at line 4 of kernel.cu

kernel.cu(9): error: expression must have class type but it has type "float"
    x.foo();
    ^
          detected during:
            instantiation of "void k(T *) [with T=float]" at line 12
            instantiation of "void launch(T *) [with T=float]" at line 13

4 errors detected in the compilation of "kernel.cu".
"""


def test_each_error_once_with_where_the_kernel_caused_it() -> None:
    assert errors_only(CUTE, "kernel.cu").splitlines()[:-1] == [
        'cute/tensor_impl.hpp(926): error: no instance of overloaded function "cute::make_tensor" matches',
        "            argument types are: (cute::gmem_ptr<float *>, void)",
        "    return make_tensor(static_cast<Tensor&&>(tensor).data(),",
        "           ^",
        '    at line 3 of kernel.cu: instantiation of "auto cute::logical_divide(T &&) [with T=float]"',
        'cute/stride.hpp(108): error: static assertion failed with "Mismatched Ranks"',
        '        static_assert(tuple_size<Coord>::value == tuple_size< Shape>::value, "Mismatched Ranks");',
        "        ^",
        '    at line 4 of kernel.cu: instantiation of "auto cute::Tensor::operator()(const Coord &) [with Coord=int]"',
        'kernel.cu(9): error: expression must have class type but it has type "float"',
        "    x.foo();",
        "    ^",
        '    at line 12 of kernel.cu: instantiation of "void k(T *) [with T=float]"',
        '    at line 13 of kernel.cu: instantiation of "void launch(T *) [with T=float]"',
    ]


@pytest.mark.parametrize(
    ("log", "first"),
    [
        (CUTE, "cute/tensor_impl.hpp(926): error: no instance of overloaded function"),
        (
            "ptxas k.ptx, line 28; error   : Unknown modifier '.bar'\nptxas fatal   : Ptx assembly aborted",
            "ptxas k.ptx, line 28; error   : Unknown modifier '.bar'",
        ),
        ("ptxas info    : 0 bytes gmem\nptxas fatal   : Unresolved extern function 'f'", "ptxas fatal   : Unresolved"),
        ("nvcc warning : odd\nnvcc fatal   : Unknown option '-Wall'", "nvcc fatal   : Unknown option '-Wall'"),
        ("nvlink error   : Undefined reference to 'f' in 'k.o'", "nvlink error   : Undefined reference to 'f'"),
        ("LLVM ERROR: out of memory\nnvcc error   : 'cicc' died due to signal 6", "nvcc error   : 'cicc' died due to"),
        (
            "kernel.cu(3): catastrophic error: too many errors\nCompilation terminated.",
            "kernel.cu(3): catastrophic error",
        ),
        ('At end of source: error: expected a "}"\n', 'At end of source: error: expected a "}"'),
        (
            'k.cu(2): warning #20012-D: x\n\nk.cu(8): error #20: y is "undefined"',
            'k.cu(8): error #20: y is "undefined"',
        ),
    ],
)
def test_the_first_error_of_each_tool_is_the_reason(log: str, first: str) -> None:
    assert first_error(log).startswith(first)


def test_a_long_line_is_shown_where_its_caret_points() -> None:
    """Lines of CUTLASS types are longer than what a prompt gets of a line."""
    line = "  using Main = " + "Collective<Layout, " * 40 + "Broken" + ", Layout>" * 40 + ";"
    column = line.index("Broken")
    shown = errors_only(
        f'kernel.cu(1): error: "Broken" is undefined\n{line}\n{" " * column}^\n', "kernel.cu"
    ).splitlines()
    assert shown[2].strip() == "^"
    assert shown[1][shown[2].index("^") :].startswith("Broken")
