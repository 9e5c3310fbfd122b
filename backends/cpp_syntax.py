"""What a C++ unit declares at namespace scope: functions, their linkage, type aliases. Syntax only, by tree-sitter."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import tree_sitter
import tree_sitter_cpp

_LANGUAGE = tree_sitter.Language(tree_sitter_cpp.language())

# Extension words the grammar does not know everywhere: blanked or respelled at equal length, so positions stay.
_WORDS = {
    "__restrict__": "",
    "__restrict": "",
    "__extension__": "",
    "__volatile__": "volatile",
    "__const": "const",
    "__inline__": "inline",
    "__inline": "inline",
    "__signed__": "signed",
}
_WORD = re.compile(r"\b(?:" + "|".join(sorted(_WORDS, key=len, reverse=True)) + r")\b")
_ATTRIBUTE = re.compile(r"\b(?:__attribute__|__attribute|__declspec)\s*\(")
_VECTOR = re.compile(r"vector_size|ext_vector_type")
_HIDDEN = re.compile(r'visibility(?:__)?\s*\(\s*"(?:hidden|internal)"')


@dataclass(frozen=True, slots=True)
class FunctionSyntax:
    """A function declared or defined at namespace scope, not a template and not a member.

    Attributes:
        name: its identifier as written, scopes included.
        node: the declaration or definition.
        declarator: its function declarator (name and parameters).
        pointers: stars between the return type and the name.
        row: line of the name within the text, counted from 0.
        defined: whether it has a body.
        c_linkage: whether an `extern "C"` is around it.
        scope: namespaces around it; an unnamed one is the empty string.
        words: storage classes and function specifiers (`static`, `inline`, `constexpr`).
        hidden: whether an attribute hides it from the dynamic symbol table.
    """

    name: str
    node: tree_sitter.Node
    declarator: tree_sitter.Node
    pointers: int
    row: int
    defined: bool
    c_linkage: bool
    scope: tuple[str, ...]
    words: frozenset[str]
    hidden: bool


@dataclass(frozen=True, slots=True)
class AliasSyntax:
    """A `typedef` or `using`: `spec` holds type and qualifiers, `declarator` the pointers (None for none)."""

    spec: tree_sitter.Node
    declarator: tree_sitter.Node | None


@dataclass(slots=True)
class Unit:
    """Everything found in one text; filled while it is walked, read-only afterwards.

    Attributes:
        functions: in order of appearance.
        templates: names of function templates and their specialisations, with the row of each.
        aliases: by unscoped name; the same name in two namespaces has two entries.
        types: names of structs, classes, unions, enums and vector types.
        first_error_row: where the text first stops being C++, or None.
    """

    functions: list[FunctionSyntax] = field(default_factory=list)
    templates: list[tuple[str, int]] = field(default_factory=list)
    aliases: dict[str, list[AliasSyntax]] = field(default_factory=dict)
    types: set[str] = field(default_factory=set)
    first_error_row: int | None = None


@dataclass(frozen=True, slots=True)
class _Context:
    c_linkage: bool = False
    scope: tuple[str, ...] = ()


def parse_unit(text: str) -> Unit:
    """Find what `text`, already preprocessed, declares at namespace scope."""
    tree = tree_sitter.Parser(_LANGUAGE).parse(_plain(text).encode())
    unit = Unit(first_error_row=_first_error(tree.root_node))
    _walk(tree.root_node, _Context(), unit, text.split("\n"))
    return unit


def text_of(node: tree_sitter.Node) -> str:
    """The node's text with runs of white space as one space."""
    return " ".join((node.text or b"").decode(errors="replace").split())


def _plain(text: str) -> str:
    text = _WORD.sub(lambda match: _WORDS[match[0]].ljust(len(match[0])), text)
    pieces: list[str] = []
    start = 0
    while match := _ATTRIBUTE.search(text, start):
        end = _closing(text, match.end())
        pieces.append(text[start : match.start()])
        if _VECTOR.search(text, match.start(), end):  # this one changes the type
            pieces.append(text[match.start() : end])
            start = end
            continue
        pieces.append("".join("\n" if c == "\n" else " " * len(c.encode()) for c in text[match.start() : end]))
        start = end
    pieces.append(text[start:])
    return "".join(pieces)


def _closing(text: str, start: int) -> int:
    """Position after the parenthesis that closes the one just before `start`; the text's end when none does."""
    depth, quoted, i = 1, False, start
    while i < len(text) and depth:
        c = text[i]
        if quoted and c == "\\":
            i += 1
        elif c == '"':
            quoted = not quoted
        elif not quoted:
            depth += (c == "(") - (c == ")")
        i += 1
    return i


def _first_error(node: tree_sitter.Node) -> int | None:
    if not node.has_error:
        return None
    if node.is_error or node.is_missing:
        return node.start_point[0]
    rows = (_first_error(child) for child in node.children)
    return next((row for row in rows if row is not None), node.start_point[0])


def _walk(node: tree_sitter.Node, context: _Context, unit: Unit, lines: list[str]) -> None:
    for child in node.children:
        _visit(child, context, unit, lines)


def _visit(node: tree_sitter.Node, context: _Context, unit: Unit, lines: list[str]) -> None:
    match node.type:
        case "linkage_specification":
            value = node.child_by_field_name("value")
            inner = replace(context, c_linkage=value is not None and text_of(value) == '"C"')
            body = node.child_by_field_name("body")
            if body is not None:
                _visit(body, inner, unit, lines)
        case "namespace_definition":
            name = node.child_by_field_name("name")
            inner = replace(context, scope=(*context.scope, text_of(name) if name else ""))
            body = node.child_by_field_name("body")
            if body is not None:
                _walk(body, inner, unit, lines)
        case "declaration_list" | "ERROR":
            _walk(node, context, unit, lines)
        case "function_definition" | "declaration":
            _types(node, unit)
            unit.functions.extend(_functions(node, context, lines))
        case "template_declaration":
            unit.templates.extend(_templates(node))
        case "alias_declaration":
            name, spec = node.child_by_field_name("name"), node.child_by_field_name("type")
            if name is not None and _VECTOR.search(text_of(node)):
                unit.types.add(text_of(name))
            elif name is not None and spec is not None:
                alias = AliasSyntax(spec, spec.child_by_field_name("declarator"))
                unit.aliases.setdefault(text_of(name), []).append(alias)
        case "type_definition":
            for declarator in node.children_by_field_name("declarator"):
                name = innermost(declarator)
                if name is not None and _VECTOR.search(text_of(node)):
                    unit.types.add(text_of(name))
                elif name is not None:
                    unit.aliases.setdefault(text_of(name), []).append(AliasSyntax(node, declarator))
        case "struct_specifier" | "class_specifier" | "union_specifier" | "enum_specifier":
            _name_type(node, unit)


def _types(node: tree_sitter.Node, unit: Unit) -> None:
    kind = node.child_by_field_name("type")
    if kind is not None and kind.type.endswith("_specifier"):
        _name_type(kind, unit)


def _name_type(node: tree_sitter.Node, unit: Unit) -> None:
    name = node.child_by_field_name("name")
    if name is not None:
        unit.types.add(text_of(name))


def _functions(node: tree_sitter.Node, context: _Context, lines: list[str]) -> Iterator[FunctionSyntax]:
    """The functions of one definition or declaration (`extern "C" int a, solve(float*);` declares one)."""
    body = node.child_by_field_name("body")
    if node.type == "function_definition" and body is None:  # `= delete`, `= default`
        return
    for outer in node.children_by_field_name("declarator"):
        pointers, declarator = 0, outer
        while declarator.type in {"pointer_declarator", "reference_declarator", "init_declarator"}:
            pointers += declarator.type != "init_declarator"
            declarator = declarator.child_by_field_name("declarator") or declarator.named_children[-1]
        name = innermost(declarator)
        if declarator.type != "function_declarator" or name is None:
            continue
        row = name.start_point[0]
        head = "\n".join(lines[node.start_point[0] : (body.start_point[0] if body else node.end_point[0]) + 1])
        yield FunctionSyntax(
            name=text_of(name),
            node=node,
            declarator=declarator,
            pointers=pointers,
            row=row,
            defined=node.type == "function_definition",
            c_linkage=context.c_linkage,
            scope=context.scope,
            words=frozenset(
                text_of(child)
                for child in node.children
                if child.type in {"storage_class_specifier", "type_qualifier", "inline"}
            ),
            hidden=bool(_HIDDEN.search(head)),
        )


def _templates(node: tree_sitter.Node) -> Iterator[tuple[str, int]]:
    for child in node.children:
        if child.type in {"function_definition", "declaration"}:
            declarator = child.child_by_field_name("declarator")
            name = innermost(declarator) if declarator is not None else None
            if name is not None:
                yield text_of(name).partition("<")[0], name.start_point[0]


def innermost(declarator: tree_sitter.Node) -> tree_sitter.Node | None:
    """The node that holds a declarator's name, below its stars, brackets and parameters; None where it has none."""
    node = declarator
    while True:
        if node.type.endswith("identifier") or node.type in {"primitive_type", "template_function", "operator_name"}:
            return node
        inner = node.child_by_field_name("declarator")
        if inner is None and node.type in {
            "parenthesized_declarator",
            "reference_declarator",
            "attributed_declarator",
        }:
            inner = next((child for child in node.named_children if not child.type.startswith("attribute")), None)
        if inner is None:
            return None
        node = inner
