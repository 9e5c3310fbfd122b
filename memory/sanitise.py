"""Text that came from elsewhere, made harmless before it is kept and before it is shown.

Compilers, imported files and models write what memory holds, and prompts and terminals show it. Nothing of it is ever
run; here it also loses what would let it pass for something else: terminal controls, invisible and bidirectional
characters, line breaks, fences and headings that end a prompt's section, and length.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

LONGEST_REASON = 400
LONGEST_LESSON = 600
LONGEST_VALUE = 60
LONGEST_RUN = 120
LONGEST_PARAMETERS = 4000

# Cc and Cf: control and formatting (zero width, bidirectional); Cs, Co, Cn: what no font shows; Zl, Zp: line breaks.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_FENCE = re.compile(r"`{3,}|~{3,}")
# What chat models take for the frame of a conversation: <|im_start|>, [INST], </system>, "Human:" at the beginning.
_FRAME = re.compile(r"<\|[^|>]{0,40}\|>|\[/?INST\]|</?(?:system|human|user|assistant|instructions?)\b[^>]{0,40}>", re.I)
_LEADING = re.compile(r"^(?:[#>*\-=\s]+|(?:system|human|user|assistant)\s*:\s*)+", re.I)


def clean_text(text: str, longest: int) -> str:
    """One line of what was said, at most `longest` characters; cleaning it again changes nothing."""
    shown = "".join(" " if unicodedata.category(c) in _UNSEEN else c for c in _decodable(text))
    shown = _FRAME.sub(" ", _FENCE.sub("'", shown))
    shown = " ".join(_LEADING.sub("", " ".join(shown.split())).split())
    return shown if len(shown) <= longest else shown[: longest - 1].rstrip() + "…"


def shown_parameters(methods: Sequence[str], parameters: Mapping[str, Mapping[str, Any]]) -> str:
    """A strategy's parameters for a prompt or a listing, `tile_m 64`; those of one of several methods with its name."""
    several = len(methods) > 1
    parts = []
    for method, values in parameters.items():
        text = ", ".join(f"{clean_text(str(name), LONGEST_VALUE)} {_value(value)}" for name, value in values.items())
        if text:
            parts.append(f"{clean_text(method, LONGEST_VALUE)}: {text}" if several else text)
    return "; ".join(parts)


def _value(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return clean_text(text, LONGEST_VALUE) or "''"


def _decodable(text: str) -> str:
    """Compiler output may hold undecodable bytes, which databases refuse."""
    return text.encode("utf-8", "replace").decode("utf-8")
