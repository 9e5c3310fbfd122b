"""What a C++ unit declares at namespace scope: functions, their linkage, type aliases. Syntax only, by tree-sitter."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

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
_ATTRIBUTES = frozenset({"__attribute__", "__attribute", "__declspec"})
_SHOWN_CHARS = 80
_VECTOR = re.compile(r"vector_size|ext_vector_type")
_LEXEME = re.compile(
    r"""
    (?P<raw>(?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\()
    | (?P<quoted>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    | (?P<unclosed>["'])
    | (?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)
    | (?P<word>[A-Za-z_]\w*)
    | (?P<open>[(\[{])
    | (?P<close>[)\]}])
    | (?P<launch><<<)
    | (?P<launched>>>>)
    """,
    re.VERBOSE | re.DOTALL,
)


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
        head: its text up to the body, attributes included.
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
    head: str


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
        types: names of structs, classes, unions, enums and vector types, with the row of each.
        first_error_row: where the text first stops being C++, or None.
        unclosed_row: where a quote is opened and not closed on its line, or None.
    """

    functions: list[FunctionSyntax] = field(default_factory=list)
    templates: list[tuple[str, int]] = field(default_factory=list)
    aliases: dict[str, list[AliasSyntax]] = field(default_factory=dict)
    types: dict[str, int] = field(default_factory=dict)
    first_error_row: int | None = None
    unclosed_row: int | None = None


@dataclass(frozen=True, slots=True)
class _Context:
    c_linkage: bool = False
    scope: tuple[str, ...] = ()


_Todo = tuple[tree_sitter.Node, _Context]


def parse_unit(text: str) -> Unit:
    """Find what `text`, already preprocessed, declares at namespace scope."""
    plain, unclosed = _plain(text)
    source = text.encode()
    tree = tree_sitter.Parser(_LANGUAGE).parse(plain.encode())  # as many bytes as `source`
    unit = Unit(first_error_row=_first_error(tree.root_node), unclosed_row=unclosed)
    todo: list[_Todo] = [(tree.root_node, _Context())]
    while todo:
        node, context = todo.pop()
        todo.extend(reversed(_visit(node, context, unit, source)))
    return unit


def shown(node: tree_sitter.Node) -> str:
    """The node's text for a message: what is long is cut."""
    text = text_of(node)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


def text_of(node: tree_sitter.Node) -> str:
    """The node's text with runs of white space as one space."""
    return " ".join((node.text or b"").decode(errors="replace").split())


@dataclass(frozen=True, slots=True)
class _Open:
    """A bracket, a launch's `<<<` or an attribute's first parenthesis that is not closed yet, and where it starts."""

    kind: Literal["bracket", "launch", "attribute"]
    start: int


def _plain(text: str) -> tuple[str, int | None]:
    """The text with extension words, attributes and launches respelled, and the row of the first unclosed quote.

    One pass, whatever the text is: a hostile one must not take more time than its length.
    """
    edits: list[tuple[int, int, str]] = []
    stack: list[_Open] = []
    attribute: re.Match[str] | None = None  # the word, until it is known what follows
    inside = False  # an attribute
    at, unclosed = 0, None
    while unclosed is None and (match := _LEXEME.search(text, at)):
        start, at = match.span()
        follows = attribute is not None and not text[attribute.end() : start].strip()
        word, attribute = attribute, None
        match match.lastgroup:
            case "raw":
                end = text.find(f'){match["mark"]}"', at)
                at = end + len(match["mark"]) + 2
                unclosed = start if end < 0 else None
            case "unclosed":
                unclosed = start
            case "word" if match[0] in _ATTRIBUTES and not inside:
                attribute = match
            case "word" if match[0] in _WORDS and not inside:
                edits.append((start, at, _WORDS[match[0]].ljust(len(match[0]))))
            case "open" if word is not None and follows:
                stack.append(_Open("attribute", word.start()))
                inside = True
            case "open":
                stack.append(_Open("bracket", start))
            case "close":
                while stack and stack[-1].kind == "launch":
                    stack.pop()
                if stack and (opened := stack.pop()).kind == "attribute":
                    inside = False
                    if not _VECTOR.search(text, opened.start, at):  # that one changes the type
                        edits.append((opened.start, at, _blanked(text[opened.start : at])))
            case "launch" if not inside:
                stack.append(_Open("launch", start))
            case "launched" if stack and stack[-1].kind == "launch":
                # `kernel<<<grid, block>>>(x)` reads as `kernel  (grid, block)  (x)`.
                opened = stack.pop()
                edits += [(opened.start, opened.start + 3, "  ("), (start, at, ")  ")]
    return _edited(text, edits), None if unclosed is None else text.count("\n", 0, unclosed)


def _edited(text: str, edits: list[tuple[int, int, str]]) -> str:
    pieces: list[str] = []
    at = 0
    for start, end, replacement in sorted(edits):
        pieces += (text[at:start], replacement)
        at = end
    return "".join([*pieces, text[at:]])


def _blanked(text: str) -> str:
    return "".join("\n" if c == "\n" else " " * len(c.encode()) for c in text)


def _first_error(root: tree_sitter.Node) -> int | None:
    node, inner = root, root if root.has_error else None
    while inner is not None:
        node = inner
        if node.is_error or node.is_missing:
            break
        inner = next((child for child in node.children if child.has_error), None)
    return node.start_point[0] if root.has_error else None


def _visit(node: tree_sitter.Node, context: _Context, unit: Unit, source: bytes) -> list[_Todo]:
    """Note what `node` declares. Returns what to visit next, in order: text may be nested deeper than the stack."""
    match node.type:
        case "linkage_specification":
            value = node.child_by_field_name("value")
            inner = replace(context, c_linkage=value is not None and text_of(value) == '"C"')
            return [(body, inner) for body in node.children_by_field_name("body")]
        case "namespace_definition":
            name = node.child_by_field_name("name")
            inner = replace(context, scope=(*context.scope, text_of(name) if name else ""))
            return [(body, inner) for body in node.children_by_field_name("body")]
        case "declaration_list" | "ERROR" | "translation_unit":
            return [(child, context) for child in node.children]
        case "function_definition" | "declaration":
            _types(node, unit)
            unit.functions.extend(_functions(node, context, source))
        case "template_declaration":
            unit.templates.extend(_templates(node))
        case "alias_declaration":
            name, spec = node.child_by_field_name("name"), node.child_by_field_name("type")
            if name is not None and _VECTOR.search(text_of(node)):
                unit.types.setdefault(text_of(name), name.start_point[0])
            elif name is not None and spec is not None:
                alias = AliasSyntax(spec, spec.child_by_field_name("declarator"))
                unit.aliases.setdefault(text_of(name), []).append(alias)
        case "type_definition":
            for declarator in node.children_by_field_name("declarator"):
                name = innermost(declarator)
                if name is not None and _VECTOR.search(text_of(node)):
                    unit.types.setdefault(text_of(name), name.start_point[0])
                elif name is not None:
                    unit.aliases.setdefault(text_of(name), []).append(AliasSyntax(node, declarator))
        case "struct_specifier" | "class_specifier" | "union_specifier" | "enum_specifier":
            _name_type(node, unit)
    return []


def _types(node: tree_sitter.Node, unit: Unit) -> None:
    kind = node.child_by_field_name("type")
    if kind is not None and kind.type.endswith("_specifier"):
        _name_type(kind, unit)


def _name_type(node: tree_sitter.Node, unit: Unit) -> None:
    name = node.child_by_field_name("name")
    if name is not None:
        unit.types.setdefault(text_of(name), name.start_point[0])


def _functions(node: tree_sitter.Node, context: _Context, source: bytes) -> Iterator[FunctionSyntax]:
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
        head = source[_head_byte(node) : body.start_byte if body else node.end_byte]
        yield FunctionSyntax(
            name=text_of(name),
            node=node,
            declarator=declarator,
            pointers=pointers,
            row=name.start_point[0],
            defined=node.type == "function_definition",
            c_linkage=context.c_linkage,
            scope=context.scope,
            words=frozenset(
                text_of(child)
                for child in node.children
                if child.type in {"storage_class_specifier", "type_qualifier", "inline"}
            ),
            head=head.decode(errors="replace"),
        )


def _head_byte(node: tree_sitter.Node) -> int:
    """Where the blanked attributes before a declaration may begin: behind what comes before it."""
    if node.parent is not None and node.parent.type == "linkage_specification":
        node = node.parent
    if node.prev_sibling is not None:
        return node.prev_sibling.end_byte
    return node.parent.start_byte if node.parent is not None else node.start_byte


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
