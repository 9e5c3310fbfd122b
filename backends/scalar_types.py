"""The C types that a kernel's parameters may have, and the element type that each stands for."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping, Sequence

STREAM = "cudaStream_t"
"""A by-value parameter of this type is given the default stream: a null pointer. Its element type is `void`."""

# Plain char is unsigned on Arm and POWER, signed on x86.
_CHAR = "int8" if platform.machine().lower() in {"x86_64", "amd64", "i686"} else "uint8"

# LP64, as on every 64-bit Linux: long and pointers have 64 bits.
_BUILTIN: Mapping[str, str] = {
    "bool": "bool",
    "char": _CHAR,
    "signed char": "int8",
    "unsigned char": "uint8",
    "short": "int16",
    "unsigned short": "uint16",
    "int": "int32",
    "unsigned int": "uint32",
    "long": "int64",
    "unsigned long": "uint64",
    "long long": "int64",
    "unsigned long long": "uint64",
    "float": "float32",
    "double": "float64",
    "void": "void",
}
_NAMED: Mapping[str, str] = {
    **{f"{sign}int{bits}_t": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "size_t": "uint64",
    "ssize_t": "int64",
    "ptrdiff_t": "int64",
    "intptr_t": "int64",
    "uintptr_t": "uint64",
    "ushort": "uint16",
    "uint": "uint32",
    "ulong": "uint64",
    "half": "float16",
    "__half": "float16",
    "_Float16": "float16",
    "__fp16": "float16",
    "half_t": "float16",
    "nv_half": "float16",
    "float16_t": "float16",
    "__nv_bfloat16": "bfloat16",
    "nv_bfloat16": "bfloat16",
    "__bf16": "bfloat16",
    "bf16": "bfloat16",
    "bfloat16": "bfloat16",
    "bfloat16_t": "bfloat16",
    "__nv_fp8_e4m3": "float8_e4m3",
    "float_e4m3_t": "float8_e4m3",
    "__nv_fp8_e5m2": "float8_e5m2",
    "float_e5m2_t": "float8_e5m2",
    "__nv_fp8_storage_t": "uint8",
    "tfloat32_t": "float32",
}
DTYPES: frozenset[str] = frozenset({*_BUILTIN.values(), *_NAMED.values()} - {"void"})
"""Every element type that a tensor can have."""

# CUDA's vector types: a pointer to one is a pointer to its elements.
_VECTOR = re.compile(r"(u?char|u?short|u?int|u?long|u?longlong|float|double)([1-4])(?:_16a|_32a)?")
_VECTOR_ELEMENT: Mapping[str, str] = {
    **{word: word for word in ("char", "short", "int", "long", "float", "double")},
    **{f"u{word}": f"unsigned {word}" for word in ("char", "short", "int", "long")},
    "char": "signed char",
    "longlong": "long long",
    "ulonglong": "unsigned long long",
}
_PACKED: Mapping[str, tuple[str, int]] = {
    **dict.fromkeys(("half2", "__half2", "nv_half2"), ("float16", 2)),
    **dict.fromkeys(("__nv_bfloat162", "nv_bfloat162"), ("bfloat16", 2)),
    **{f"__nv_fp8x{n}_{kind}": (f"float8_{kind}", n) for n in (2, 4) for kind in ("e4m3", "e5m2")},
}
# Classes of one integer, which the C ABI passes as that integer. CUTLASS's are not among them: they may be copied by
# code of their own, and then go by reference.
_PASSED_AS: Mapping[str, str] = {
    **dict.fromkeys(("half", "__half", "nv_half", "__nv_bfloat16", "nv_bfloat16"), "uint16_t"),
    **{f"__nv_fp8_{kind}": "uint8_t" for kind in ("e4m3", "e5m2")},
    "_Float16": "_Float16",
    STREAM: "void*",
}
_SCOPES = ("", "std", "cuda::std", "cutlass", "cute")
_SIZES = {"short": "short", "long": "long", "longlong": "long long"}


def builtin_name(words: Sequence[str]) -> str | None:
    """The usual spelling of a built-in type given by its words in any order (`int unsigned long` is `unsigned long`).

    Returns:
        The name, or None where the words are no type that can be bound (`long double`, `unsigned __int128`).
    """
    signs = [word for word in words if word in {"signed", "unsigned"}]
    sizes = "".join(word for word in words if word in {"short", "long"})
    bases = [word for word in words if word not in {"signed", "unsigned", "short", "long"}]
    if len(signs) > 1 or len(bases) > 1:
        return None
    base = bases[0] if bases else "int"
    if base == "char" and not sizes:
        return " ".join([*signs, "char"])
    if base != "int":
        return base if not signs and not sizes and base in _BUILTIN else None
    if sizes and sizes not in _SIZES:
        return None
    size = _SIZES.get(sizes, "int")
    return f"unsigned {size}" if "unsigned" in signs else size


def dtype_of(name: str) -> str | None:
    """Element type (`float32`, `uint8`, …, `void`) of the type called `name`, or None where it is not known."""
    if name in _BUILTIN:
        return _BUILTIN[name]
    scope, _, last = name.removeprefix("::").rpartition("::")
    return _NAMED.get(last) if scope in _SCOPES else None


def vector_of(name: str) -> tuple[str, int] | None:
    """Element type and number of elements of a CUDA vector type (`float4`: float32, 4), or None for another type."""
    if name in _PACKED:
        return _PACKED[name]
    match = _VECTOR.fullmatch(name)
    return (_BUILTIN[_VECTOR_ELEMENT[match[1]]], int(match[2])) if match else None


def passed_as(name: str, dtype: str) -> str | None:
    """The C type, of <cstdint>, in which a value of type `name` with element type `dtype` is passed to a function.

    Returns:
        None where no plain C caller can pass it.
    """
    if name in _PASSED_AS:
        return _PASSED_AS[name]
    if dtype in {"float32", "float64"}:
        return {"float": "float", "double": "double"}.get(name)
    return "bool" if dtype == "bool" else f"{dtype}_t" if "int" in dtype else None


def unscoped(name: str) -> str:
    """`size_t` for `std::size_t`: the short name of a type that `dtype_of` knows."""
    return name.rpartition("::")[2]
