"""Reports through NVIDIA's `ncu_report`, where it lies beside ncu: in one short process, where ncu's pages take two.

It stays out of this process. What it says is held to the same rules as a page, cell by cell, so that the two agree.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from backends.host_compiler import search_path
from backends.process import run_process
from profiling.ncu.command import NcuTool
from profiling.ncu.pages import Launch, Pages, launch_of, ranked
from profiling.types import RuleFinding

_CHILD = Path(__file__).with_name("report_child.py")
_MOST_OUTPUT = 64 << 20
# NvRules::IFrontend::MsgType and SpeedupType, as numbers in one version and by name in another.
_KINDS: Mapping[int | str, str] = {
    0: "INF",
    1: "INF",
    2: "OPT",
    3: "WRN",
    "NONE": "INF",
    "OK": "INF",
    "OPTIMIZATION": "OPT",
    "WARNING": "WRN",
}
_SPEEDUPS: Mapping[int | str, Literal["global", "local"]] = {
    1: "local",
    2: "global",
    "LOCAL": "local",
    "GLOBAL": "global",
}
_URL = re.compile(r"@url:([^:@]*):([^@]*)@")
_LINK = re.compile(r"@(?:section|sass):[^:@]*:([^@]*)@|@source:[^:@]*:\d+:([^@]*)@")
_MARKUP = re.compile(r"@[a-z]+:")


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class _Rule(_Model):
    rule: str
    kind: int | str
    text: str
    speedup_kind: int | str | None
    speedup_percent: float | None


class _Launch(_Model):
    name: str
    metrics: list[tuple[str, str, str]]
    """Name, unit and value, as a cell of a page."""
    rules: list[_Rule]


class _Report(_Model):
    launches: list[_Launch]


def reader_folder(ncu: NcuTool) -> Path | None:
    """Where the `ncu_report` of this ncu lies, None where it has none."""
    real = ncu.path.resolve()
    version = ".".join(ncu.version.split(".")[:3])
    # The toolkit's own `ncu` is a script that starts the one in a folder beside it.
    homes = (
        *real.parents[:3],
        real.parent.parent / f"nsight-compute-{version}",
        Path("/opt/nvidia/nsight-compute", version),
    )
    folders = (home / "extras" / "python" for home in homes)
    return next((folder for folder in folders if (folder / "ncu_report.py").is_file()), None)


def read_with_python(ncu: NcuTool, report: Path, timeout_s: float) -> Pages | None:
    """Kernels and rules of a report file; None where the reader is not there, fails, or says what is not known here."""
    folder = reader_folder(ncu)
    if folder is None:
        return None
    with tempfile.TemporaryDirectory(prefix="roofclimb-ncu-") as private:
        env = {"LC_ALL": "C", "PATH": search_path(), "HOME": private, "TMPDIR": private}
        command = [sys.executable, "-I", "-S", str(_CHILD), str(folder), str(report.absolute())]
        try:
            done = run_process(command, timeout_s=timeout_s, env=env, max_output_bytes=_MOST_OUTPUT)
        except OSError:
            return None
    return None if done.timed_out or done.returncode != 0 else pages_of(done.stdout)


def pages_of(answer: str) -> Pages | None:
    """What the reader's answer makes; None where anything in it is not as known."""
    try:
        found = _Report.model_validate_json(answer).launches
        launches = tuple(_launch(number, launch) for number, launch in enumerate(found))
        rules = tuple(_finding(launch.name, rule) for launch in found for rule in launch.rules)
    except (ValidationError, _UnknownError):
        return None
    # A report of metrics alone has no rules; nor has one whose rules this version does not give. Pages tell them apart.
    return Pages(launches, ranked(rules)) if launches and rules else None


class _UnknownError(Exception):
    """Something that a page would have said otherwise."""


def _launch(number: int, launch: _Launch) -> Launch:
    cells = {name: cell for name, _, cell in launch.metrics}
    sizes = {
        label: f"({', '.join(_whole(cells, f'launch__{stem}_dim_{axis}') for axis in 'xyz')})"
        for label, stem in (("Grid Size", "grid"), ("Block Size", "block"))
    }
    made = launch_of({"ID": str(number), "Kernel Name": launch.name, **sizes}, launch.metrics)
    if not launch.name or not made.metrics:
        raise _UnknownError(launch.name)
    return made


def _whole(cells: Mapping[str, str], name: str) -> str:
    try:
        return str(int(float(cells[name])))
    except (KeyError, ValueError, OverflowError):
        raise _UnknownError(name) from None


def _finding(kernel: str, rule: _Rule) -> RuleFinding:
    speedup = rule.speedup_kind
    try:
        kind = _KINDS[_plain(rule.kind)]
        speedup_kind = None if speedup is None else _SPEEDUPS[_plain(speedup)]
    except KeyError as unknown:
        raise _UnknownError(f"{rule.rule}: {unknown}") from None
    text = _LINK.sub(lambda link: link[1] or link[2] or "", _URL.sub(r"\1 (\2)", rule.text))
    if _MARKUP.search(text):
        raise _UnknownError(text)
    percent = rule.speedup_percent
    return RuleFinding(
        kernel=kernel,
        rule=rule.rule,
        kind=kind,
        text=" ".join(text.split()),
        speedup_kind=speedup_kind,
        speedup_percent=None if percent is None else float(f"{percent:.4g}"),  # as a page prints it
    )


def _plain(name: int | str) -> int | str:
    return name.upper().removeprefix("MSG_") if isinstance(name, str) else name
