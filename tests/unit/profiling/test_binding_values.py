"""A value that is cut on its way into a kernel gives wrong numbers with no error: nothing may be."""

from __future__ import annotations

import math
import random
import struct
import subprocess
from pathlib import Path

import pytest
import torch
from pydantic import TypeAdapter

from backends.cuda_toolchain import find_toolkit
from backends.host_compiler import find_compiler
from backends.signature import parse_signature
from profiling.binding import TensorRule, bind
from profiling.harness.arena import torch_dtype
from profiling.harness.runner_build import stub_source
from profiling.scalar_values import INTEGER_RANGES, fitted, scalar_word
from profiling.types import Case, Scalar

FLOATS = ("float64", "float32", "float16", "bfloat16", "float8_e4m3", "float8_e5m2")
WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@pytest.mark.parametrize("dtype", INTEGER_RANGES)
def test_integers_hold_their_range_and_not_one_more(dtype: str) -> None:
    low, high = INTEGER_RANGES[dtype]
    rng = random.Random(dtype)
    for value in (low, high, 0, *(rng.randint(low, high) for _ in range(200))):
        assert fitted(value, dtype) == value
    beyond = (low - 1, high + 1, low - rng.getrandbits(80), high + 1 + rng.getrandbits(80), 0.5, math.nan, math.inf)
    for other in beyond:
        with pytest.raises(ValueError, match=r"does not fit|not a whole number"):
            fitted(other, dtype)


@pytest.mark.parametrize("dtype", INTEGER_RANGES)
def test_integers_keep_every_bit(dtype: str) -> None:
    low, high = INTEGER_RANGES[dtype]
    size = int(dtype.removeprefix("u").removeprefix("int")) // 8
    for value in (low, high, high // 3, low // 3):
        held = scalar_word(Scalar("n", dtype, fitted(value, dtype))).to_bytes(8, "little")[:size]
        assert int.from_bytes(held, "little", signed=low < 0) == value


@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_are_rounded_as_the_type_rounds(dtype: str) -> None:
    """The reference must see what the kernel sees: 0.1 in half is 2e-4 off."""
    kind = torch_dtype(dtype)
    limits = torch.finfo(kind)
    rng = random.Random(dtype)
    for _ in range(2000):
        # A float32 start: torch converts others by way of it, which rounds twice.
        drawn = rng.choice((-1, 1)) * 2 ** rng.uniform(math.log2(limits.tiny) - 1, math.log2(limits.max))
        value = drawn if dtype == "float64" else struct.unpack("<f", struct.pack("<f", drawn))[0]
        made = torch.tensor(value, dtype=torch.float64).to(kind)
        bits = int(made.view(WORDS[kind.itemsize])) & ((1 << limits.bits) - 1)
        held = fitted(value, dtype)
        assert (held, scalar_word(Scalar("x", dtype, held))) == (float(made), bits)


@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_out_of_range_are_refused(dtype: str) -> None:
    limits = torch.finfo(torch_dtype(dtype))
    assert fitted(limits.max, dtype) == limits.max
    assert fitted(-limits.max, dtype) == -limits.max
    assert fitted(0.0, dtype) == 0
    for value in (math.inf, -math.inf, math.nan, 10**400, -(10**400)):
        with pytest.raises(ValueError, match="does not fit"):
            fitted(value, dtype)
    if dtype != "float64":
        with pytest.raises(ValueError, match="does not fit"):
            fitted(limits.max * 1.1, dtype)
        with pytest.raises(ValueError, match="so small that it becomes zero"):
            fitted(limits.tiny * limits.eps / 4, dtype)


def test_the_largest_float_as_people_write_it_fits() -> None:
    assert fitted(3.4028235e38, "float32") == torch.finfo(torch.float32).max
    assert fitted(1e-45, "float32") == 2**-149


@pytest.mark.parametrize(("value", "dtype"), [(2**24 + 1, "float32"), (2049, "float16"), (257, "bfloat16")])
def test_a_whole_number_that_a_float_cannot_hold_is_refused(value: int, dtype: str) -> None:
    """A modulus or a count passed as float would silently be another one."""
    with pytest.raises(ValueError, match=f"{value} cannot be held exactly; it becomes {value - 1}"):
        fitted(value, dtype)


def test_bools_are_zero_or_one() -> None:
    assert [fitted(v, "bool") for v in (0, 1, True, False, 1.0)] == [False, True, True, False, True]
    with pytest.raises(ValueError, match="is not a bool"):
        fitted(2, "bool")


def test_values_reach_the_oracle_unchanged() -> None:
    """They travel as JSON: 2**64 - 1 must not come back as a float, nor 1.0 as an integer."""
    values = (2**64 - 1, -(2**63), 1.0, True, 0.1)
    case = Case({}, tuple(Scalar("x", "any", value) for value in values))
    wire: TypeAdapter[Case] = TypeAdapter(Case)
    back = wire.validate_json(wire.dump_json(case)).arguments
    assert [repr(s.value) for s in back if isinstance(s, Scalar)] == [repr(v) for v in values]


CALLED = """
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
typedef struct CUstream_st* cudaStream_t;
extern "C" int solve(double* out, half h, __nv_bfloat16 b, __nv_fp8_e4m3 q, __nv_fp8_e5m2 r, _Float16 f, bool t,
                     int8_t i8, uint16_t u16, int32_t i32, uint64_t u64, int64_t i64, float x, double d, cudaStream_t s,
                     __half last, __nv_bfloat16 later, __nv_fp8_e4m3 latest) {
    double values[] = {__half2float(h), __bfloat162float(b), double(float(q)), double(float(r)), double(float(f)),
                       double(t), double(i8), double(u16), double(i32), double(u64 >> 11), double(i64), x, d,
                       double(s == nullptr), __half2float(last), __bfloat162float(later), double(float(latest))};
    for (int i = 0; i < 17; ++i) out[i] = values[i];
    return 77;
}
"""
CALLER = """
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include "stub.h"
int main(int argc, char** argv) {
    void* solve = dlsym(dlopen(argv[1], RTLD_NOW), "solve");
    double out[17];
    uint64_t words[32] = {reinterpret_cast<uint64_t>(out)};
    for (int i = 2; i < argc; ++i) words[i - 1] = strtoull(argv[i], nullptr, 10);
    long code = call_solve(solve, words);
    for (double value : out) std::printf("%.17g ", value);
    std::printf("%ld", code);
}
"""


def test_every_type_is_passed_as_the_c_abi_passes_it(tmp_path: Path) -> None:
    """Through the harness's own call: in registers and on the stack, classes of two bytes and of one included."""
    source = CALLED.replace("typedef struct CUstream_st* cudaStream_t;\n", "")
    signature = parse_signature(source, Path("kernel.cu"))
    values: dict[str, int | float | bool] = {"h": 0.1, "b": -3.5, "q": 0.4375, "r": -24576.0, "f": 0.25, "t": True}
    values |= {"i8": -128, "u16": 65535, "i32": -(2**31), "u64": 2**64 - 2**11, "i64": -(2**62), "x": 1.5, "d": 0.1}
    values |= {"last": 65504, "later": 1e38, "latest": -448}
    case = bind(signature, {}, {"out": TensorRule((17,))}, values)
    bound = [s for s in case.arguments if isinstance(s, Scalar)]
    (tmp_path / "stub.h").write_text(stub_source(signature), encoding="utf-8")
    (tmp_path / "kernel.cpp").write_text(CALLED, encoding="utf-8")
    (tmp_path / "main.cpp").write_text(CALLER, encoding="utf-8")
    compiler = [*find_compiler().argv, "-std=c++17", "-O2", "-I", str(find_toolkit().include)]
    for arguments in (["-shared", "-fPIC", "kernel.cpp", "-o", "kernel.so"], ["main.cpp", "-ldl", "-o", "main"]):
        subprocess.run([*compiler, *arguments], cwd=tmp_path, check=True, timeout=120)
    words = [str(scalar_word(s)) for s in bound]
    done = subprocess.run(
        [tmp_path / "main", tmp_path / "kernel.so", *words], capture_output=True, text=True, check=True, timeout=30
    )
    expected = {s.name: float(s.value) for s in bound} | {"u64": float(2**53 - 1), "s": 1.0}
    assert [float(v) for v in done.stdout.split()] == [*expected.values(), 77]
