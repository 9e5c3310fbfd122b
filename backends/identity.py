"""Whether two C++ sources are the same program text, whatever their comments and layout."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

import tree_sitter
import tree_sitter_cpp

_LANGUAGE = tree_sitter.Language(tree_sitter_cpp.language())
_SPLICE = re.compile(r"\\\r?\n")
_LITERALS = {"string_literal", "raw_string_literal", "char_literal", "system_lib_string"}
_HELD = re.compile("\x00(\\d+)\x00")
_DIRECTIVE = re.compile(r"^[^\S\n]*#.*$", re.MULTILINE)
_BLANK = re.compile(r"\s+")
# Two characters that would read as another token if the space between them went.
_GLUED = {"++", "--", "&&", "||", "<<", ">>", "->", "==", "::", "//", "/*", "##"}
_GLUED |= {f"{operator}=" for operator in "+-*/%&|^<>!"}


def normalised_source(text: str) -> str:
    """`text` without comments and without white space that separates nothing; literals are kept as written.

    Preprocessor lines stay lines, with runs of white space in them as one space (`#define F (x)` is not
    `#define F(x)`).
    """
    held: list[str] = []
    code = _without_comments(_SPLICE.sub("", text).replace("\x00", ""), held)
    lines: list[str] = []
    position = 0
    for directive in _DIRECTIVE.finditer(code):
        lines += [_tight(code[position : directive.start()]), " ".join(directive[0].split()).replace("# ", "#", 1)]
        position = directive.end()
    lines.append(_tight(code[position:]))
    return _HELD.sub(lambda match: held[int(match[1])], "\n".join(line for line in lines if line))


def source_hash(text: str) -> str:
    """SHA-256, in hex, of `normalised_source(text)`: equal for sources that differ only in comments and layout."""
    return hashlib.sha256(normalised_source(text).encode()).hexdigest()


def tests_switch(text: str, switch: str) -> bool:
    """Whether a C++ or CUDA source tests the macro `switch` in a preprocessor condition."""
    return re.search(rf"^[ \t]*#[ \t]*(el)?if\b.*\b{re.escape(switch)}\b", text, re.MULTILINE) is not None


def _without_comments(text: str, held: list[str]) -> str:
    """`text` with comments as a space, and literals as a number between NULs: their place in `held`."""
    code = text.encode()
    pieces: list[str] = []
    position = 0
    for start, end, literal in _spans(code):
        pieces.append(code[position:start].decode(errors="replace"))
        if literal:
            pieces.append(f"\x00{len(held)}\x00")
            held.append(code[start:end].decode(errors="replace"))
        else:
            pieces.append(" ")
        position = end
    pieces.append(code[position:].decode(errors="replace"))
    return "".join(pieces)


def _spans(code: bytes, offset: int = 0) -> Iterator[tuple[int, int, bool]]:
    """Byte ranges of comments (False) and literals (True), in order, those inside macro bodies included."""
    pending: list[tree_sitter.Node] = [tree_sitter.Parser(_LANGUAGE).parse(code).root_node]
    while pending:
        node = pending.pop()
        if node.type == "comment" or node.type in _LITERALS:
            yield offset + node.start_byte, offset + node.end_byte, node.type != "comment"
        elif node.type == "preproc_arg":  # the grammar takes a macro's body as one token
            yield from _spans(code[node.start_byte : node.end_byte], offset + node.start_byte)
        else:
            pending.extend(reversed(node.children))


def _tight(code: str) -> str:
    code = code.strip()
    return _BLANK.sub(lambda match: " " if _separates(code[match.start() - 1], code[match.end()]) else "", code)


def _separates(before: str, after: str) -> bool:
    return (_is_word(before) and _is_word(after)) or before + after in _GLUED


def _is_word(character: str) -> bool:
    return character.isalnum() or character in "_$"
