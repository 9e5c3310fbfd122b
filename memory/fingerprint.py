"""The identity of a strategy: what has to be equal for two proposals to be the same proposal."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from memory.types import Strategy

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?")
_WORDS = {"true": True, "false": False}


def fingerprint(backend: str, strategy: Strategy) -> str:
    """First 16 hex digits of SHA-1 over canonical JSON of backend, sorted method ids and their parameters.

    Spelling does not make a strategy new: `64`, `64.0`, `"64"` and `" 64 "` are one number, `True` and `"true"` one
    flag (but `1` is a number and `True` a flag), text is compared without case and repeated blanks, the order of
    methods, of parameters and repeated methods do not count, and a parameter that is None was not given. Parameters
    of a method that is not part of the strategy are ignored, so that they cannot be used to evade a block. A 64 tile
    is not a 128 tile.

    Raises:
        TypeError: a parameter value that JSON cannot hold.
    """
    methods = sorted(set(strategy.methods))
    parameters = {method: _mapping(strategy.parameters.get(method, {})) for method in methods}
    canonical = {
        "backend": backend,
        "methods": methods,
        "parameters": {method: values for method, values in parameters.items() if values},
    }
    text = json.dumps(canonical, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha1(text.encode("ascii"), usedforsecurity=False).hexdigest()[:16]


def _mapping(values: Mapping[str, Any]) -> dict[str, object]:
    return {str(name): _canonical(value) for name, value in values.items() if value is not None}


def _canonical(value: object) -> object:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return _number(Decimal(value))
    if isinstance(value, float):
        return _number(Decimal(repr(value))) if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        return _mapping(value)
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    raise TypeError(f"a strategy parameter is a {type(value).__name__}; give numbers, text, flags, lists or objects")


def _text(value: str) -> object:
    folded = " ".join(value.split()).casefold()
    if folded in _WORDS:
        return _WORDS[folded]
    return _number(Decimal(folded)) if _NUMBER.fullmatch(folded) and folded.isascii() else folded


def _number(value: Decimal) -> int | float | str:
    if abs(value) < 2**63 and value == value.to_integral_value():
        return int(value)
    number = float(value)
    return number if math.isfinite(number) else str(value.normalize())
