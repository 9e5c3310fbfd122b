"""The YAML a user writes, as frozen models. Unknown keys fail and name the nearest known one."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, Field, ValidationError
from pydantic_core import ErrorDetails
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from agent.config_executor import Executor, ExecutorSection
from agent.config_llm import PATHS, LLMSection, RoleSection
from agent.config_values import Count, Dim, Gpus, NotNegative, Positive, Section, ShapeClass, Whole
from agent.errors import ConfigError

_Placed = TypeVar("_Placed", bound=Section)

# What to write where pydantic's own words (a pattern, a tuple) do not say it.
_FORMS: Mapping[str, str] = {
    "task.name": "write letters, digits, `_`, `.` and `-`, beginning with a letter or a digit",
    "task.dims": "write each dim with its size, such as {M: 512}",
    "device.gpus": "write all, or a list such as [0, 1] or [GPU-…]",
    "device.arch": "write it as sm_90 or sm_90a, or leave it at auto",
}
_PATHS = {
    ("task", "baseline"),
    ("task", "reference"),
    *(("llm", name) for name in PATHS),
}


class TensorSection(Section):
    """One pointer parameter: its shape by dims, and what it is."""

    shape: tuple[int | str, ...]
    dtype: str | None = None
    role: Literal["in", "out", "inout"] | None = None
    init: Literal["normal", "uniform", "zeros", "ones", "reference"] = "normal"
    zeroed: bool = False
    unordered: bool = False
    ties: str | None = None


class ToleranceSection(Section):
    """Elementwise bounds, and the factors of the relative norm check (None: by `precision`)."""

    atol: NotNegative
    rtol: NotNegative
    baseline_factor: Positive | None = None
    eps_factor: Positive | None = None


class WorkSection(Section):
    """Expressions over the dims; they give the floor."""

    flops: str | float | None = None
    bytes: str | float | None = None


class BuildSection(Section):
    """How every kernel of the task is built."""

    flags: tuple[str, ...] = ()
    define: Mapping[str, str | int] = {}
    include: tuple[Path, ...] = ()
    std: str = "c++17"
    timeout_s: Positive = 120.0


class AllowSection(Section):
    """Shared libraries a kernel may need beyond the language's own run-time."""

    libraries: tuple[str, ...] = ()


class TaskSection(Section):
    """What is to be made faster, and what right means."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
    backend: Literal["auto", "cuda", "cutlass", "triton", "cpp"] = "auto"
    family: str | None = None
    shape_class: ShapeClass | None = None
    baseline: Path
    reference: Path | None = None
    dims: Mapping[str, Dim]
    shapes: Literal["any", "fixed"] = "any"
    check_dims: tuple[Mapping[str, Dim], ...] = ()
    hidden_shapes: Annotated[Whole, Field(ge=0, le=16)] = 3
    tensors: Mapping[str, TensorSection] | None = None
    scalars: Mapping[str, float | int | bool] = {}
    tolerance: ToleranceSection | None = None
    work: WorkSection = WorkSection()
    precision: Literal["input", "tf32", "any"] = "input"
    build: BuildSection = BuildSection()
    allow: AllowSection = AllowSection()


class SearchSection(Section):
    """How far and how wide to search."""

    iterations: Count = 3
    branches: Annotated[Whole, Field(ge=1, le=64)] = 4
    methods: Annotated[Whole, Field(ge=1, le=16)] = 3
    axis_cap: Count = 2
    ncu_top: Count = 5
    noise: Annotated[float, Field(ge=0, lt=1)] = 0.02
    repairs: Annotated[Whole, Field(ge=0, le=3)] = 3
    patience: Count | None = None
    near_peak: Annotated[float, Field(ge=0, le=1)] = 0.15
    policy: Literal["advisory", "strict"] = "advisory"
    ablate: bool = True


class BudgetSection(Section):
    """Where a run stops spending. None: no limit."""

    usd: Positive | None = None
    tokens: Count | None = None
    minutes: Positive | None = None


class MeasureSection(Section):
    """How long and how to measure; walls around one worker."""

    warmup_ms: NotNegative = 50.0
    min_samples: Annotated[Whole, Field(ge=10)] = 10
    min_time_s: NotNegative = 0.2
    max_time_s: Positive = 20.0
    pairs: Annotated[Whole, Field(ge=3)] = 3
    l2: Literal["cold", "hot"] = "cold"
    call_timeout_s: Positive = 30.0
    memory_gib: Positive | None = None
    require_sandbox: bool = False
    sanitize: bool = True


class MemorySection(Section):
    """Where strategies are remembered: any SQLAlchemy URL; SQLite paths resolve against the working directory.

    `tokens`: how many of them a prompt may spend on what memory holds.
    """

    url: str = "sqlite:///.roofclimb/memory.db"
    tokens: Count = 1500


class DeviceSection(Section):
    """What a candidate may use of this machine.

    Attributes:
        threads: cores, for C++ kernels.
        gpus: which GPUs, by index as CUDA_VISIBLE_DEVICES lets them through, or by the beginning of a UUID; none
            stands for all. The first is the run's own.
        arch: what GPU kernels are built for; `auto` is the GPU's own.
    """

    threads: Count = 1
    gpus: Gpus = ()
    arch: Annotated[str, Field(pattern=r"^(auto|sm_[0-9]{2,3}[af]?)$")] = "auto"


class Config(Section):
    """One run's configuration; every path in it is absolute once loaded."""

    task: TaskSection
    search: SearchSection = SearchSection()
    llm: LLMSection | None = None
    budget: BudgetSection = BudgetSection()
    measure: MeasureSection = MeasureSection()
    memory: MemorySection = MemorySection()
    device: DeviceSection = DeviceSection()
    executor: Executor = ExecutorSection()
    output: Path = Path("runs")


def load_config(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Read, override and validate a task file.

    Args:
        path: the YAML file; its relative input paths resolve against its folder.
        overrides: `section.key=value` strings, values in YAML.

    Raises:
        ConfigError: anything wrong, in one line that says where.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ConfigError(f"{path}: cannot be read ({why}); name a task file in YAML") from None
    data = parse_yaml(text, str(path))
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: holds no mapping; a task file starts with `task:`")
    return resolve(validate(with_overrides(data, overrides), str(path), overrides), path.resolve().parent)


def with_overrides(data: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """The data with `section.key=value` strings applied, values in YAML. Raises ConfigError."""
    for override in overrides:
        _override(data, override)
    return data


def parse_assignments(texts: Sequence[str], option: str) -> dict[str, Any]:
    """`M=512` strings to a mapping, values in YAML. Raises ConfigError naming `option`."""
    values: dict[str, Any] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise ConfigError(f"{option} {text}: write it as NAME=VALUE, e.g. {option} M=512")
        values[name] = parse_yaml(value, f"{option} {text}")
    return values


def whole_dims(texts: Sequence[str]) -> dict[str, int]:
    """`--dim` options as whole numbers. Raises ConfigError."""
    sizes = parse_assignments(texts, "--dim")
    if not all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in sizes.values()):
        raise ConfigError(f"--dim {' '.join(texts)}: dims are whole numbers of 1 and more")
    return sizes


def validate(data: Mapping[str, Any], where: str, overrides: Sequence[str] = ()) -> Config:
    """Check plain data against the model; one line for the first thing wrong, which says whether `--set` gave it."""
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = next((f"--set {text}" for text in overrides if _gave(text, first["loc"])), where)
        raise ConfigError(f"{where}: {explain(first, Config)}") from None


def _gave(override: str, location: Sequence[int | str]) -> bool:
    """Whether the override's key is at, above or below the location."""
    pairs = zip(override.partition("=")[0].strip().split("."), location, strict=False)
    return all(part == str(at) for part, at in pairs)


def dump_config(config: Config, path: Path) -> None:
    """Write a config back as YAML that `load_config` reads to an equal config."""
    data = config.model_dump(mode="json", exclude_none=True)
    # JSON is YAML: indented and in order, and every text is quoted, so nothing is read back as another type.
    path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


def parse_yaml(text: str, where: str) -> Any:
    """Plain data of a YAML text. Raises ConfigError, which begins with `where`."""
    # YAML 1.2: `1e-5` is a number, `010` is ten, a dim may be called `No`, a key given twice is an error.
    try:
        return YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}:" if mark else ""
        problem = str(getattr(error, "problem", None) or error).splitlines()[0]
        raise ConfigError(f"{where}:{line} not YAML: {problem}") from None


def _override(data: dict[str, Any], override: str) -> None:
    key, separator, value = override.partition("=")
    parts = key.strip().split(".")
    if not separator or not all(parts):
        raise ConfigError(f"--set {override}: write it as section.key=value, e.g. search.branches=2")
    at = data
    for part in parts[:-1]:
        at = at.setdefault(part, {})
        if not isinstance(at, dict):
            raise ConfigError(f"--set {override}: `{part}` is a value, not a section")
    at[parts[-1]] = _from_here(tuple(parts), parse_yaml(value, f"--set {override}"))


def _from_here(key: tuple[str, ...], value: Any) -> Any:
    """What is typed on the command line is meant from the working directory, also where it overrides a file's path."""
    if isinstance(value, dict):
        return {name: _from_here((*key, str(name)), inner) for name, inner in value.items()}
    if isinstance(value, list) and key == ("task", "build", "include"):
        return [str(Path(path).absolute()) for path in value]
    return str(Path(value).absolute()) if key in _PATHS and isinstance(value, str) else value


def explain(error: ErrorDetails, model: type[BaseModel]) -> str:
    """What is wrong, where in a file that `model` describes, and what was meant."""
    location = [str(part) for part in error["loc"]]
    # pydantic names the member of a union that it tried.
    tried = ("float", "int", "str", "bool", "constrained-int", "constrained-str")
    key = ".".join(part for part in location if part not in tried)
    if error["type"] == "extra_forbidden":
        known = _known_keys(model, location[:-1])
        close = difflib.get_close_matches(location[-1], known, n=1, cutoff=0.0)
        return f"{key}: unknown key; did you mean `{close[0]}`?" if close else f"{key}: unknown key"
    if error["type"] == "missing":
        return f"{key}: is required"
    form = _FORMS.get(key.removesuffix(".0"))
    message = error["msg"].removeprefix("Value error, ")
    message = form or message[:1].lower() + message[1:].replace("valid tuple", "list")
    return f"{key}: {message} (got {error['input']!r})" if "got" not in message else f"{key}: {message}"


def _known_keys(model: type[BaseModel], location: Iterable[str]) -> list[str]:
    current: Any = model
    for part in location:
        if not (isinstance(current, type) and issubclass(current, BaseModel)):
            return []
        current = _inner_model(current.model_fields[part].annotation) if part in current.model_fields else current
    return list(current.model_fields) if isinstance(current, type) and issubclass(current, BaseModel) else []


def _inner_model(annotation: Any) -> Any:
    """The model inside `X | None`, `Mapping[str, X]` and `tuple[X, ...]`."""
    if get_origin(annotation) is None:
        return annotation
    models = [_inner_model(a) for a in get_args(annotation)]
    return next((m for m in models if isinstance(m, type) and issubclass(m, BaseModel)), annotation)


def resolve(config: Config, folder: Path) -> Config:
    """The config with absolute paths: inputs against `folder`, `output` and SQLite against the working directory.

    Raises:
        ConfigError: the baseline or the reference is not there.
    """

    def absolute(path: Path | None) -> Path | None:
        return None if path is None else (folder / path).resolve()

    build = config.task.build.model_copy(
        update={"include": tuple((folder / p).resolve() for p in config.task.build.include)}
    )
    task = config.task.model_copy(
        update={
            "baseline": absolute(config.task.baseline),
            "reference": absolute(config.task.reference),
            "build": build,
        }
    )
    for label, path in (("baseline", task.baseline), ("reference", task.reference)):
        if path is not None and not path.is_file():
            raise ConfigError(
                f"task.{label}: no file at {path}; paths resolve against the task file's folder, those of --set "
                "against the working directory"
            )
    llm = None if config.llm is None else _resolved_llm(config.llm, absolute)
    memory = config.memory.model_copy(update={"url": _absolute_sqlite(config.memory.url)})
    return config.model_copy(update={"task": task, "llm": llm, "memory": memory, "output": config.output.absolute()})


def _resolved_llm(llm: LLMSection, absolute: Callable[[Path | None], Path | None]) -> LLMSection:
    def placed(section: _Placed) -> _Placed:
        known = {name: getattr(section, name) for name in PATHS if name in type(section).model_fields}
        return section.model_copy(update={name: absolute(path) for name, path in known.items()})

    own = {name: value for name, value in llm.roles if isinstance(value, RoleSection)}
    roles = {name: placed(role) for name, role in own.items()}
    branches = tuple(placed(role) for role in llm.roles.branch)
    return placed(llm).model_copy(update={"roles": llm.roles.model_copy(update={**roles, "branch": branches})})


def _absolute_sqlite(url: str) -> str:
    """A run resumed from another folder keeps its memory."""
    scheme, separator, path = url.partition(":///")
    if not separator or not scheme.startswith("sqlite") or path in ("", ":memory:"):
        return url
    return f"{scheme}:///{Path(path).absolute()}"
