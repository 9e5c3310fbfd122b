"""Machine-code signatures as data: the files in `profiling/signatures/`, read and checked.

What the keys mean stands at the head of `profiling/signatures/cpp.yaml`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache
from importlib import resources
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError, model_validator

from backends.types import Instruction

Where = Literal["anywhere", "loop", "innermost"]
Change = Literal["appears", "grows", "shrinks", "vanishes", "present"]
Measure = Literal["count", "share", "densest", "peak", "distinct", "carried"]

_SM_RANGE = re.compile(r"sm_(\d+)(?:-(\d+)|(\+))?")
_SM = re.compile(r"sm_(\d+)[a-z]?")


class SignatureError(Exception):
    """A signature file that contradicts itself or its schema. The message names the file and the entry."""


@dataclass(frozen=True, slots=True)
class Row:
    """One way to be of a kind: the mnemonic matches, and operands and called symbol where asked for."""

    opcodes: re.Pattern[str]
    operands: re.Pattern[str] | None
    target: re.Pattern[str] | None

    def register(self, instruction: Instruction) -> str | None:
        """None when the instruction is not of the kind, else group 1 of `operands` ("" where there is none)."""
        if self.opcodes.fullmatch(instruction.opcode) is None:
            return None
        if self.target is not None and self.target.search(instruction.target or "") is None:
            return None
        if self.operands is None:
            return ""
        found = self.operands.search(instruction.operands)
        if found is None:
            return None
        return (found[1] or "") if found.re.groups else ""


@dataclass(frozen=True, slots=True)
class Kind:
    """A named kind of instructions."""

    name: str
    rows: tuple[Row, ...]

    def register(self, instruction: Instruction) -> str | None:
        """None when the instruction is not of this kind, else the register that makes it so, or ""."""
        for row in self.rows:
            register = row.register(instruction)
            if register is not None:
                return register
        return None

    def holds(self, instruction: Instruction) -> bool:
        """Whether the instruction is of this kind."""
        return self.register(instruction) is not None


@dataclass(frozen=True, slots=True)
class Pattern:
    """What must have changed. `of` is the base of a share (None: all instructions)."""

    kind: Kind
    where: Where
    change: Change
    measure: Measure
    of: Kind | None
    by: float
    least: int

    @property
    def label(self) -> str:
        """Such as `fma in innermost loops`."""
        place = {"anywhere": "", "loop": " in loops", "innermost": " in innermost loops"}[self.where]
        return self.kind.name + place


Alternative = tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class SignatureFile:
    """The signatures of one kind of machine.

    Attributes:
        none: methods that leave no opcode of their own.
        methods: per method, per architecture key, the alternatives.
        classes: per architecture key, the named kinds.
    """

    none: frozenset[str]
    methods: Mapping[str, Mapping[str, tuple[Alternative, ...]]]
    classes: Mapping[str, Mapping[str, Kind]]

    def alternatives(self, method: str, arch: str) -> tuple[Alternative, ...]:
        """The method's alternatives on `arch`, those of the narrowest key that covers it; empty when there are none."""
        by_arch = self.methods.get(method, {})
        key = _narrowest(by_arch, arch)
        return () if key is None else by_arch[key]

    def kinds(self, arch: str) -> Mapping[str, Kind]:
        """The named kinds on `arch`; empty when none are defined for it."""
        key = _narrowest(self.classes, arch)
        return {} if key is None else self.classes[key]


@dataclass(frozen=True, slots=True)
class Signatures:
    """All signature files, by name (`cpp`, `gpu`)."""

    files: Mapping[str, SignatureFile]

    def on(self, arch: str) -> SignatureFile:
        """The file for an architecture: `gpu` for `sm_…`, else `cpp`."""
        return self.files["gpu" if arch.startswith("sm_") else "cpp"]

    def known(self, method: str) -> bool:
        """Whether any file says anything of the method."""
        return any(method in file.none or method in file.methods for file in self.files.values())


def _covers(key: str, arch: str) -> int | None:
    """How wide a range of architectures `key` names if it covers `arch`, else None.

    Keys are `x86_64`, `aarch64`, `sm_90` (that one, with any letter), `sm_80-89` or `sm_80+`.
    """
    if key == arch:
        return 0
    wanted, asked = _SM_RANGE.fullmatch(key), _SM.fullmatch(arch)
    if wanted is None or asked is None:
        return None
    low, number = int(wanted[1]), int(asked[1])
    high = 10**6 if wanted[3] else int(wanted[2] or low)
    return high - low if low <= number <= high else None


def _narrowest(keys: Iterable[str], arch: str) -> str | None:
    """The key that covers the fewest architectures, `arch` among them."""
    covering = [(width, key) for key in keys if (width := _covers(key, arch)) is not None]
    return min(covering)[1] if covering else None


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _RowEntry(_Strict):
    opcodes: tuple[str, ...] = ()
    operands: str | None = None
    target: str | None = None
    kind: str | None = Field(default=None, alias="class")

    @model_validator(mode="after")
    def _one(self) -> _RowEntry:
        if bool(self.opcodes) == (self.kind is not None):
            raise ValueError("needs either `opcodes` or `class`")
        if self.kind is not None and (self.operands or self.target):
            raise ValueError("`class` takes its operands and target from where it is defined")
        return self


class _PatternEntry(_RowEntry):
    where: Where
    change: Change
    measure: Measure = "count"
    of: str | None = None
    by: float = Field(default=1.0, ge=1.0)
    least: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _fitting(self) -> _PatternEntry:
        if self.of is not None and self.measure not in ("share", "densest"):
            raise ValueError("`of` belongs to `measure: share` and `measure: densest`")
        if self.measure in ("densest", "peak", "carried") and self.where != "innermost":
            raise ValueError(f"`measure: {self.measure}` counts one innermost loop; say `where: innermost`")
        if self.least > 1 and self.change in ("shrinks", "vanishes"):
            raise ValueError("`least` belongs to what appears, grows or is present")
        return self


class _All(_Strict):
    all: tuple[_PatternEntry, ...] = Field(min_length=2)


def _form(value: object) -> str:
    return "all" if isinstance(value, Mapping) and "all" in value else "pattern"


# Told apart by key, so that an error speaks of the form that was meant.
_AlternativeEntry = Annotated[
    Annotated[_All, Tag("all")] | Annotated[_PatternEntry, Tag("pattern")], Discriminator(_form)
]


class _FileEntry(_Strict):
    modifiers: bool = False
    classes: dict[str, dict[str, tuple[_RowEntry, ...]]] = Field(default_factory=dict)
    none: tuple[str, ...]
    signatures: dict[str, dict[str, tuple[_AlternativeEntry, ...]]]


@lru_cache(maxsize=1)
def load_signatures() -> Signatures:
    """Read the signature files that ship with the package (once per process).

    Raises:
        SignatureError: a file is not valid YAML, breaks the schema, or names a class that does not exist.
    """
    folder = resources.files("profiling").joinpath("signatures")
    return Signatures(
        {
            file.name.removesuffix(".yaml"): parse_signatures(file.read_text(encoding="utf-8"), file.name)
            for file in sorted(folder.iterdir(), key=lambda f: f.name)
            if file.name.endswith(".yaml")
        }
    )


def parse_signatures(text: str, name: str) -> SignatureFile:
    """One signature file.

    Args:
        text: the YAML.
        name: of the file, for messages.

    Raises:
        SignatureError: not YAML, not of the schema, an unknown class, or a method both `none` and signed.
    """
    try:
        entry = _FileEntry.model_validate(yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise SignatureError(f"{name}: not valid YAML: {' '.join(str(error).split())}") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise SignatureError(f"{name}: {place}: {first['msg']}") from error
    twice = sorted(set(entry.none) & set(entry.signatures))
    if twice:
        raise SignatureError(f"{name}: {twice[0]} is listed as `none` and has a signature; keep one")
    reader = _Reader(entry)
    try:
        classes = {
            arch: {k: reader.kind(k, rows, kinds) for k, rows in kinds.items()} for arch, kinds in entry.classes.items()
        }
        methods = {
            method: {arch: reader.alternatives(arch, found) for arch, found in by_arch.items()}
            for method, by_arch in entry.signatures.items()
        }
    except (re.error, LookupError) as error:
        raise SignatureError(f"{name}: {error}") from error
    return SignatureFile(frozenset(entry.none), methods, classes)


_Classes = Mapping[str, tuple[_RowEntry, ...]]


@dataclass(frozen=True, slots=True)
class _Reader:
    """Resolves the class names of a file."""

    file: _FileEntry

    def alternatives(self, arch: str, found: tuple[_All | _PatternEntry, ...]) -> tuple[Alternative, ...]:
        low = _SM_RANGE.fullmatch(arch)
        key = _narrowest(self.file.classes, f"sm_{low[1]}" if low else arch)
        classes = {} if key is None else self.file.classes[key]
        return tuple(
            tuple(self._pattern(p, classes) for p in (entry.all if isinstance(entry, _All) else (entry,)))
            for entry in found
        )

    def kind(self, name: str, rows: tuple[_RowEntry, ...], classes: _Classes) -> Kind:
        resolved: list[Row] = []
        for row in rows:
            if row.kind is not None:
                resolved.extend(self.kind(row.kind, _rows_of(row.kind, classes), classes).rows)
            else:
                resolved.append(
                    Row(
                        re.compile("|".join(map(self._mnemonic, row.opcodes))),
                        None if row.operands is None else re.compile(row.operands),
                        None if row.target is None else re.compile(row.target),
                    )
                )
        return Kind(name, tuple(resolved))

    def _mnemonic(self, glob: str) -> str:
        plain = self.file.modifiers and not set("*?[") & set(glob)
        return re.escape(glob) + r"(?:\..*)?" if plain else translate(glob)

    def _pattern(self, entry: _PatternEntry, classes: _Classes) -> Pattern:
        return Pattern(
            kind=self.kind(entry.kind or " ".join(entry.opcodes), (entry,), classes),
            where=entry.where,
            change=entry.change,
            measure=entry.measure,
            of=None if entry.of is None else self.kind(entry.of, _rows_of(entry.of, classes), classes),
            by=entry.by,
            least=entry.least,
        )


def _rows_of(name: str, classes: _Classes) -> tuple[_RowEntry, ...]:
    if name not in classes:
        raise LookupError(f"class {name!r} is not defined for this architecture; it has {', '.join(classes) or 'none'}")
    return classes[name]
