"""The C types that a kernel's parameters may have, and the element type that each stands for."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence

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
    "uint": "uint32",
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
}
_SCOPES = ("", "std", "::std", "cutlass", "::cutlass", "cute", "::cute")
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
    scope, _, last = name.rpartition("::")
    return _NAMED.get(last) if scope in _SCOPES else None


def unscoped(name: str) -> str:
    """`size_t` for `std::size_t`: the short name of a type that `dtype_of` knows."""
    return name.rpartition("::")[2]
