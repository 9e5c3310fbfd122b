"""The signature of the one live `solve` in a preprocessed C++ unit, or the reason why it cannot be bound."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import tree_sitter

from backends.cpp_syntax import AliasSyntax, FunctionSyntax, Unit, innermost, parse_unit, shown, text_of
from backends.preprocessed import UserText, user_text
from backends.scalar_types import STREAM, builtin_name, dtype_of, passed_as, unscoped, vector_of
from backends.types import Parameter, Signature, SourceError

_ALIAS_DEPTH = 32
_HIDDEN = re.compile(r'visibility(?:__)?\s*\(\s*"(?:hidden|internal)"')
_DEVICE = re.compile(r"\(\s*\(\s*(?:__)?(?:global|device)(?:__)?\s*\)\s*\)")
_HOST = re.compile(r"\(\s*\(\s*(?:__)?host(?:__)?\s*\)\s*\)")
_PASS = "pass pointers and scalars of built-in types"


class _Unbindable(Exception):
    """Why a type cannot be bound, without saying where."""


@dataclass(frozen=True, slots=True)
class _CType:
    """A resolved type: `pointers` stars around `name`, which is const if `const`; const pointers are not told apart."""

    name: str
    dtype: str
    const: bool
    pointers: int

    def __str__(self) -> str:
        return ("const " if self.const else "") + self.name + "*" * self.pointers


@dataclass(frozen=True, slots=True)
class _Types:
    """What the unit declares, and the aliases that are resolved already."""

    unit: Unit
    known: dict[str, _CType] = field(default_factory=dict)


def parse_signature(preprocessed: str, source: Path, function: str = "solve") -> Signature:
    """Read the one live definition of `function`.

    Args:
        preprocessed: output of the preprocessor over `source`, with line markers.
        source: the kernel as it was given; read again only to explain why nothing was found.
        function: the entry point's name.

    Raises:
        SourceError: no definition, several, one that would not be exported, or one that cannot be bound. The message
            names the file and the line.
    """
    user = user_text(preprocessed, source.name)
    unit = parse_unit(user.text)
    if unit.unclosed_row is not None:
        raise SourceError(
            f"{_where(user, unit.unclosed_row, source)}: a quote is opened here and not closed, so this is not C++; "
            "put prose into a comment"
        )
    for name, row in list(unit.types.items()):
        if dtype_of(name) is not None and not _is_main(user, row, source):
            del unit.types[name]  # a library's `half_t`: what everybody knows it to be
    types = _Types(unit)
    found = _live_definition(types, user, source, function)
    where = _where(user, found.row, source)
    _refuse_unexported(found, where, function)
    if found.declarator.has_error:
        raise SourceError(
            f"{where}: the declaration of {function} cannot be read as C++; write one `type name` per parameter"
        )
    return Signature(tuple(_parameters(found, types, where)), _returns(found, types, where, function))


def same_signature(baseline: Signature, candidate: Signature) -> str | None:
    """None if a candidate binds exactly as the baseline does, else one line that names the first difference.

    Compared are number, order, element types, pointers, constness of pointees and the return type; spellings of one
    type (`unsigned`, `unsigned int`, `uint32_t`) are equal. A parameter may have a new name, but not the name that the
    baseline gives to another one: arguments are bound by position, so that would be a swap.
    """
    ours, theirs = baseline.parameters, candidate.parameters
    names = {p.name for p in ours}
    for number, (a, b) in enumerate(zip(ours, theirs, strict=False), start=1):
        swapped = b.name != a.name and b.name in names
        if swapped or _abi(a) != _abi(b):
            return f"parameter {number} is `{b.type} {b.name}`, the baseline has `{a.type} {a.name}`"
    if len(ours) != len(theirs):
        extra = (ours if len(ours) > len(theirs) else theirs)[min(len(ours), len(theirs))]
        owner = "the baseline's" if len(ours) > len(theirs) else "its own"
        return (
            f"{len(theirs)} parameters, the baseline has {len(ours)}; the first unmatched is {owner} "
            f"`{extra.type} {extra.name}`"
        )
    if baseline.returns != candidate.returns:
        return f"returns `{candidate.returns}`, the baseline returns `{baseline.returns}`"
    return None


def _abi(parameter: Parameter) -> tuple[object, ...]:
    value = None if parameter.pointer else passed_as(parameter.type, parameter.dtype)
    return parameter.dtype, parameter.pointer, parameter.const, value


def _live_definition(types: _Types, user: UserText, source: Path, function: str) -> FunctionSyntax:
    named = [f for f in types.unit.functions if f.name == function]
    live = [f for f in named if f.defined and (not f.scope or _has_c_linkage(f, named, types))]
    if len(live) > 1:
        lines = " and ".join(_where(user, f.row, source) for f in live[:3])
        raise SourceError(f"{len(live)} live definitions of {function}: {lines}; keep one and rename the others")
    if not live:
        raise SourceError(_nothing_found(types.unit, user, source, function))
    if not _has_c_linkage(live[0], named, types):
        raise SourceError(
            f'{_where(user, live[0].row, source)}: {function} is not extern "C", so it would be exported under a '
            f'mangled name; write extern "C" before its return type'
        )
    return live[0]


def _has_c_linkage(definition: FunctionSyntax, named: list[FunctionSyntax], types: _Types) -> bool:
    """Whether `extern "C"` is around the definition or around an earlier prototype with the same types."""
    return definition.c_linkage or any(
        f.c_linkage and f.row < definition.row and _shape(f, types) == _shape(definition, types)
        for f in named
        if not f.defined and f.scope == definition.scope
    )


def _shape(function: FunctionSyntax, types: _Types) -> list[str]:
    shape = []
    for node in _parameter_nodes(function):
        try:
            shape.append(str(_resolve(node, node.child_by_field_name("declarator"), types)))
        except _Unbindable:
            shape.append(text_of(node))
    return shape


def _refuse_unexported(found: FunctionSyntax, where: str, function: str) -> None:
    for word in ("static", "inline", "constexpr", "consteval"):
        if word in found.words:
            raise SourceError(f"{where}: {function} is {word}, so the library would not export it; drop `{word}`")
    if "" in found.scope:
        raise SourceError(
            f"{where}: {function} is in an unnamed namespace, so the library would not export it; move it out"
        )
    if _HIDDEN.search(found.head):
        raise SourceError(
            f"{where}: {function} has hidden visibility, so the library would not export it; drop the attribute"
        )
    if _DEVICE.search(found.head) and not _HOST.search(found.head):
        raise SourceError(
            f"{where}: {function} runs on the GPU; rename it, and add a host function {function} that launches it"
        )
    if "__declspec" in found.head:
        raise SourceError(
            f"{where}: no compiler here knows `__declspec`; drop it, or give task.build.define: {{__declspec(x): ''}}"
        )


def _nothing_found(unit: Unit, user: UserText, source: Path, function: str) -> str:
    """Why there is no live definition: the nearest thing that is there."""
    head = f"{source.name}: no live definition of {function}()"
    for f in unit.functions:
        if f.name == function and not f.defined:
            return f"{head}; {_where(user, f.row, source)} only declares it: add its body"
        if f.defined and f.name == function:
            return f'{head}; the one at {_where(user, f.row, source)} is in a namespace: make it extern "C"'
    for name, row in unit.templates:
        if name == function:
            return f'{head}; the one at {_where(user, row, source)} is a template: add an extern "C" function'
    other = _other_entry(unit, function)
    if other is not None:
        remedy = "rename it to" if other.c_linkage else 'make it extern "C" and rename it to'
        return f"{head}; found {other.name}() at {_where(user, other.row, source)}: {remedy} {function}"
    mentioned = _mention(source, function)
    if unit.first_error_row is not None:
        behind = f"; line {mentioned} names {function}, but is no C++ function" if mentioned else ""
        return f"{head}; the text stops being C++ at {_where(user, unit.first_error_row, source)}{behind}"
    if mentioned is not None:
        return f"{head}; line {mentioned} names it only in a comment, a string or a branch the preprocessor leaves out"
    return f'{head}; add extern "C" void {function}(...) {{ ... }}'


def _other_entry(unit: Unit, function: str) -> FunctionSyntax | None:
    """A host function that may be meant: the nearest name with C linkage, else one that is nearly the same."""
    host = [f for f in unit.functions if f.defined and f.name != "main" and not _DEVICE.search(f.head)]
    for candidates, cutoff in (([f for f in host if f.c_linkage], 0.0), (host, 0.7)):
        named = {f.name.lower(): f for f in candidates}
        near = difflib.get_close_matches(function.lower(), named, n=1, cutoff=cutoff)
        if near:
            return named[near[0]]
    return None


def _mention(source: Path, function: str) -> int | None:
    try:
        lines = source.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    call = re.compile(rf"\b{re.escape(function)}\s*\(")
    return next((number for number, line in enumerate(lines, start=1) if call.search(line)), None)


def _is_main(user: UserText, row: int, source: Path) -> bool:
    return Path(user.origins[row].file).name == source.name


def _where(user: UserText, row: int, source: Path) -> str:
    origin = user.origins[row]
    return f"{source.name if _is_main(user, row, source) else origin.file}:{origin.line}"


def _parameter_nodes(function: FunctionSyntax) -> list[tree_sitter.Node]:
    parameters = function.declarator.child_by_field_name("parameters")
    nodes = [n for n in parameters.children if n.type not in "(),"] if parameters is not None else []
    nodes = [n for n in nodes if n.type != "comment"]
    return [] if len(nodes) == 1 and text_of(nodes[0]) == "void" else nodes


def _parameters(function: FunctionSyntax, types: _Types, where: str) -> Iterator[Parameter]:
    seen: set[str] = set()
    for number, node in enumerate(_parameter_nodes(function), start=1):
        at = f"{where}: parameter {number} `{shown(node)}`"
        if node.type not in {"parameter_declaration", "optional_parameter_declaration"}:
            raise SourceError(f"{at}: variable argument lists cannot be bound; list every parameter")
        declarator = node.child_by_field_name("declarator")
        name = innermost(declarator) if declarator is not None else None
        try:
            resolved = _resolve(node, declarator, types)
        except _Unbindable as error:
            raise SourceError(f"{at}: {error}") from error
        if resolved.name == STREAM and resolved.pointers:
            raise SourceError(f"{at}: a pointer to a stream cannot be bound; take the stream itself")
        if resolved.dtype == "void" and not resolved.pointers and resolved.name != STREAM:
            raise SourceError(f"{at}: a value of type void cannot be bound")
        if not resolved.pointers and passed_as(resolved.name, resolved.dtype) is None:
            raise SourceError(f"{at}: a value of type {resolved.name} cannot be passed; take a float or a pointer")
        if name is None:
            raise SourceError(f"{at} has no name; tensors, dims and scalars are bound by name: give it one")
        if text_of(name) in seen:
            raise SourceError(f"{at}: the name {text_of(name)} is used twice")
        seen.add(text_of(name))
        pointer = resolved.pointers == 1
        yield Parameter(
            name=text_of(name),
            type=str(resolved) if pointer else resolved.name,
            dtype=resolved.dtype,
            pointer=pointer,
            const=pointer and resolved.const,
        )


def _returns(function: FunctionSyntax, types: _Types, where: str, name: str) -> Literal["void", "int"]:
    spec = function.node
    declarator: tree_sitter.Node | None = None
    for child in function.declarator.children:
        if child.type == "trailing_return_type":
            spec = child.named_children[0]
            declarator = spec.child_by_field_name("declarator")
    try:
        resolved = _resolve(spec, declarator, types)
        if not function.pointers and not resolved.pointers:
            if resolved.name == "void":
                return "void"
            if resolved.dtype == "int32":
                return "int"
        returned = f"{resolved}{'*' * function.pointers}"
    except _Unbindable:
        kind = spec.child_by_field_name("type")
        returned = shown(kind) if kind is not None else "nothing that can be read"
    raise SourceError(f"{where}: {name} returns `{returned}`; it must return void, or int with 0 for success")


def _resolve(spec: tree_sitter.Node, declarator: tree_sitter.Node | None, types: _Types, depth: int = 0) -> _CType:
    """The type of one declaration: `spec` holds the type and its qualifiers, `declarator` the stars and brackets."""
    kind = spec.child_by_field_name("type")
    if kind is None:
        raise _Unbindable("it has no type that can be read")
    base = _base(kind, types, depth)
    qualified = any(c.type == "type_qualifier" and text_of(c) == "const" for c in (*spec.children, *kind.children))
    const = base.const or (qualified and not base.pointers)
    pointers = base.pointers + _stars(declarator)
    if pointers > 1:
        raise _Unbindable("a pointer to a pointer or to an array cannot be bound; pass one flat pointer")
    return _CType(base.name, base.dtype, const, pointers)


def _base(kind: tree_sitter.Node, types: _Types, depth: int) -> _CType:
    match kind.type:
        case "struct_specifier" | "class_specifier" | "union_specifier" | "enum_specifier":
            raise _Unbindable(f"`{shown(kind).partition('{')[0].strip()}` cannot be bound; {_PASS}")
        case "sized_type_specifier":
            words = [text_of(child) for child in kind.children if child.type != "type_qualifier"]
            name = builtin_name(words)
            if name is None:
                raise _Unbindable(f"`{' '.join(words)}` cannot be bound; {_PASS}")
            return _CType(name, dtype_of(name) or "", False, 0)
        case "primitive_type" | "type_identifier" | "qualified_identifier":
            return _named(text_of(kind).replace(" ", ""), types, depth)
        case _:
            raise _Unbindable(f"`{shown(kind)}` cannot be bound; {_PASS}")


def _named(name: str, types: _Types, depth: int) -> _CType:
    """A type by name: the file's own aliases come before the names everybody knows."""
    short = unscoped(name)
    aliases: list[AliasSyntax] = [] if name.startswith(("std::", "::std::")) else types.unit.aliases.get(short, [])
    if aliases and short in types.known:
        return types.known[short]
    if aliases:
        if depth >= _ALIAS_DEPTH:
            raise _Unbindable(f"the alias `{name}` leads back to itself")
        try:
            resolved = {_resolve(alias.spec, alias.declarator, types, depth + 1) for alias in aliases}
        except _Unbindable as error:
            if depth:
                raise
            raise _Unbindable(f"`{name}` stands for a type that cannot be bound: {error}") from error
        if len(resolved) > 1:
            raise _Unbindable(f"`{name}` stands for {len(resolved)} different types; write the type out")
        return types.known.setdefault(short, resolved.pop())
    if name in types.unit.types:
        raise _Unbindable(f"`{name}` is a struct, class, union, enum or vector; {_PASS}")
    if name in {STREAM, "CUstream"}:
        return _CType(STREAM, "void", False, 0)
    vector = vector_of(name)
    dtype = vector[0] if vector else dtype_of(name)
    if dtype is None and short.startswith("__nv_fp"):
        raise _Unbindable(f"`{name}` has no element type of its own here; take its bytes as `unsigned char`")
    if dtype is None:
        raise _Unbindable(f"the type `{name}` is not known; {_PASS}")
    return _CType(short, dtype, False, 0)


def _stars(declarator: tree_sitter.Node | None) -> int:
    """Number of pointers (arrays count as one) that a declarator adds. Raises _Unbindable for other kinds."""
    stars, node = 0, declarator
    while node is not None:
        kind = node.type
        if "pointer_declarator" in kind or "array_declarator" in kind:
            stars += 1
        elif "reference_declarator" in kind:
            raise _Unbindable("a reference cannot be bound; pass a pointer or a value")
        elif "function_declarator" in kind:
            raise _Unbindable("a function pointer cannot be bound")
        inner = node.child_by_field_name("declarator")
        if inner is None and ("parenthesized" in kind or kind == "attributed_declarator"):
            inner = next((c for c in node.named_children if not c.type.startswith("attribute")), None)
        node = inner
    return stars
