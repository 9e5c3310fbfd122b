"""What a Triton kernel's source says without being run: its functions, method switches, imports and identity."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Mapping, Sequence

from backends.types import Argument, Parameter, Signature, SourceError

RUN, SETUP = "run_kernel", "setup"

_FREE_IMPORTS = frozenset(
    (
        *("torch", "triton", "__future__", "collections", "dataclasses", "enum", "functools", "itertools", "math"),
        *("numbers", "operator", "types", "typing"),
    )
)
# Parts of torch that compile, load or call code of others.
_TORCH_PARTS = frozenset(
    (
        *("_C", "_dynamo", "_inductor", "_ops", "classes", "compile", "compiler", "hub", "jit", "library", "load"),
        *("nn", "ops", "utils"),
    )
)
_CALLS = frozenset(("__import__", "breakpoint", "compile", "eval", "exec", "input", "open"))

_Function = (ast.FunctionDef, ast.AsyncFunctionDef)


def parse(text: str, name: str) -> ast.Module:
    """The syntax tree of a source called `name`.

    Raises:
        SourceError: it is not Python. Names the line.
    """
    try:
        return ast.parse(text)
    except SyntaxError as error:
        raise SourceError(f"{name}:{error.lineno or 1}: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:  # a NUL byte, or nested without end
        raise SourceError(f"{name}: cannot be read as Python: {error}") from None


def function(tree: ast.Module, name: str, source: str) -> ast.FunctionDef:
    """The one module-level function `name` of the file `source`.

    Raises:
        SourceError: there is none, or more than one.
    """
    found = [node for node in _statements(tree.body) if isinstance(node, _Function) and node.name == name]
    if not found:
        raise SourceError(f"{source}: no function `{name}`; a Triton kernel defines `setup` and `run_kernel`")
    if len(found) > 1:
        lines = ", ".join(str(node.lineno) for node in found)
        raise SourceError(f"{source}: `{name}` is defined more than once (lines {lines}); keep one")
    if isinstance(found[0], ast.AsyncFunctionDef):
        raise SourceError(f"{source}:{found[0].lineno}: `{name}` is async; make it a plain function")
    return found[0]


def bind(tree: ast.Module, arguments: Sequence[Argument], source: str) -> Signature:
    """How `run_kernel` is called with these arguments, in their order.

    Raises:
        SourceError: `run_kernel` is missing, defined twice, or cannot be called with exactly these keywords.
    """
    run = function(tree, RUN, source)
    where, taken = f"{source}:{run.lineno}: {RUN}", run.args
    passed = [argument.name for argument in arguments]
    if taken.posonlyargs:
        raise SourceError(f"{where}: `{taken.posonlyargs[0].arg}` is positional-only; arguments come as keywords")
    required = [p.arg for p in taken.args[: len(taken.args) - len(taken.defaults)]]
    required += [p.arg for p, default in zip(taken.kwonlyargs, taken.kw_defaults, strict=True) if default is None]
    for name in required:
        if name not in passed:
            raise SourceError(f"{where} requires `{name}`, which nobody passes; it is called with {', '.join(passed)}")
    known = {p.arg for p in (*taken.args, *taken.kwonlyargs)}
    for name in passed:
        if taken.kwarg is None and name not in known:
            raise SourceError(f"{where} does not take `{name}`; add it or `**_`: it is called with {', '.join(passed)}")
    return Signature(tuple(map(_parameter, arguments)))


def _parameter(argument: Argument) -> Parameter:
    tensor = argument.shape is not None
    kind = "tensor" if tensor else {"bool": "bool", "float64": "float"}.get(argument.dtype, "int")
    return Parameter(argument.name, kind, argument.dtype, pointer=tensor, const=tensor and not argument.output)


def has_switch(text: str, switch: str) -> bool:
    """Whether `switch` is a module constant with a literal value that the source uses somewhere else."""
    try:
        tree = parse(text, "")
    except SourceError:
        return False
    if not any(True for _ in _constants(tree, switch)):
        return False
    return any(isinstance(n, ast.Name) and n.id == switch and isinstance(n.ctx, ast.Load) for n in ast.walk(tree))


def with_constants(text: str, define: Mapping[str, str], name: str) -> str:
    """`text` with the values of module constants replaced, and else as it was. A name that is no constant is ignored.

    `RC_X = 1`, `RC_X = True` and `RC_X = tl.constexpr(1)` are constants, annotated or not; a bool stays one.

    Raises:
        SourceError: it is not Python, or a value is not a number or a bool.
    """
    tree = parse(text, name)
    lines = text.encode().splitlines(keepends=True)
    spans = [(value, given) for switch, given in define.items() for value in _constants(tree, switch)]
    for value, given in sorted(spans, key=lambda span: (span[0].lineno, span[0].col_offset), reverse=True):
        line = lines[value.lineno - 1]
        new = _literal(value, given, name).encode()
        lines[value.lineno - 1] = line[: value.col_offset] + new + line[value.end_col_offset or 0 :]
    return b"".join(lines).decode()


def _literal(value: ast.Constant, given: str, name: str) -> str:
    try:
        new = ast.literal_eval(given)
    except (ValueError, SyntaxError):
        new = None
    if not isinstance(new, (bool, int, float)):
        raise SourceError(
            f"{name}:{value.lineno}: `{given}` cannot be the value of a constant; give a number or a bool"
        )
    return str(bool(new)) if isinstance(value.value, bool) else given


def _constants(tree: ast.Module, name: str) -> Iterator[ast.Constant]:
    """The literals that the module assigns to `name`."""
    for node in _statements(tree.body):
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets, value = [node.target], node.value
        else:
            continue
        if isinstance(value, ast.Call) and _last_name(value.func) == "constexpr" and len(value.args) == 1:
            value = value.args[0]
        numeric = isinstance(value, ast.Constant) and isinstance(value.value, (bool, int, float))
        if isinstance(value, ast.Constant) and numeric and value.lineno == value.end_lineno:
            yield from (value for target in targets if isinstance(target, ast.Name) and target.id == name)


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Module-level statements, those under `if` and `try` included."""
    for node in body:
        yield node
        if isinstance(node, (ast.If, ast.Try, ast.With)):
            for part in ("body", "orelse", "finalbody"):
                yield from _statements(getattr(node, part, []))
        if isinstance(node, ast.Try):
            for handler in node.handlers:
                yield from _statements(handler.body)


def import_refusal(text: str, allowed: Sequence[str]) -> str | None:
    """The first import or call that could bring in what is not the kernel's own, or None.

    This is advice that a model can act on, not the defence against a hostile kernel.
    """
    free = _FREE_IMPORTS | set(allowed)
    for node in ast.walk(parse(text, "kernel")):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CALLS:
            return f"line {node.lineno}: calls `{node.func.id}`, which a kernel has no use for"
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.Attribute)):
            for module in _modules(node):
                if not _is_free(module, free):
                    wanted = "torch (its tensors alone), triton and the likes of math, functools and typing"
                    return f"line {node.lineno}: uses `{module}`; a Triton kernel may use {wanted}"
    return None


def _modules(node: ast.Import | ast.ImportFrom | ast.Attribute) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.Attribute):
        dotted = _dotted(node)
        return [dotted] if dotted.startswith("torch.") else []
    module = f"{'.' * node.level}{node.module or ''}"
    return [f"torch.{alias.name}" for alias in node.names] if module == "torch" else [module]


def _is_free(module: str, free: frozenset[str]) -> bool:
    parts = module.split(".")
    if module in free:
        return True
    if parts[0] == "triton" and any(part.startswith("_") for part in parts[1:]):
        return False
    return parts[0] in free and not (parts[0] == "torch" and len(parts) > 1 and parts[1] in _TORCH_PARTS)


def _dotted(node: ast.expr) -> str:
    """`torch.nn.functional` of an attribute chain on a plain name, else an empty string."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(names)]) if isinstance(node, ast.Name) else ""


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def source_hash(text: str) -> str:
    """SHA-256, in hex, of the program without comments, layout and docstrings; of all of it where it is not Python."""
    try:
        tree = parse(text, "")
    except SourceError:
        return hashlib.sha256(text.encode()).hexdigest()
    for node in ast.walk(tree):
        if (
            isinstance(node, (ast.Module, ast.ClassDef, *_Function))
            and ast.get_docstring(node, clean=False) is not None
        ):
            node.body = node.body[1:] or [ast.Pass()]
    return hashlib.sha256(ast.unparse(tree).encode()).hexdigest()
