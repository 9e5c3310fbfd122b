"""Collects what a GPU box without network needs beside the torch and Triton that it has: `make wheelhouse`.

uv resolves for the box's Python and platform (pip would judge environment markers by this machine's), pip downloads.
What the box has of its own stays as it is: torch, Triton, NVIDIA's toolkit and driver are left out.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from email.parser import Parser
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

ROOT = Path(__file__).resolve().parents[1]
# The box's own. Another build of torch would not fit its driver, nor another Triton its torch.
_THERE = frozenset({"torch", "triton"})
# CUTLASS's headers; the wheel's Python interface, and all that it depends on, is not used.
_HEADERS = "nvidia-cutlass"
# torch was built against the box's numpy: any that is new enough may stay.
_MAY_STAY = frozenset({"numpy"})
_GLIBC = 28
_MACHINES = ("x86_64", "aarch64")
_OLDER = {5: "manylinux1", 12: "manylinux2010", 17: "manylinux2014"}


class WheelhouseError(Exception):
    """Nothing was collected; one line says why."""


def requirements_of(wheel: Path) -> list[Requirement]:
    """What the wheel needs at run time and the box does not have; extras are left out."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    found = [Requirement(line) for line in metadata.get_all("Requires-Dist", [])]
    return [r for r in found if canonicalize_name(r.name) not in _THERE and "extra" not in str(r.marker or "")]


def platform_tags(machine: str) -> list[str]:
    """Every wheel platform that runs on glibc 2.28 (RHEL 8, Ubuntu 20.04 and later), newest first."""
    tags = []
    for minor in range(_GLIBC, 4, -1):
        tags.append(f"manylinux_2_{minor}_{machine}")
        if minor in _OLDER:
            tags.append(f"{_OLDER[minor]}_{machine}")
    return [*tags, f"linux_{machine}"]


def collect(wheel: Path, out: Path, python: str, machine: str, constraints: Path) -> list[Path]:
    """Fill `out` with the wheel, everything it needs, and `requirements.txt`.

    Args:
        wheel: the project's own.
        out: wheels and a `requirements.txt` that lie there are replaced.
        python: the box's Python, `3.12`.
        machine: its processor.
        constraints: versions to keep to.

    Returns:
        The wheels.

    Raises:
        WheelhouseError: a requirement has no wheel for that Python and platform, or the index is out of reach.
    """
    if re.fullmatch(r"3\.\d+", python) is None:
        raise WheelhouseError(f"{python!r} is no Python version; give two numbers, such as 3.12")
    needed = requirements_of(wheel)
    pins = _resolve(needed, python, machine, constraints)
    with tempfile.TemporaryDirectory(prefix="wheelhouse-") as temporary:
        folder = Path(temporary)
        _download([*pins, _HEADERS], folder, python, machine, constraints)
        out.mkdir(parents=True, exist_ok=True)
        for old in (*out.glob("*.whl"), *out.glob("requirements.txt")):
            old.unlink()
        for found in (wheel, *folder.glob("*.whl")):
            (out / found.name).write_bytes(found.read_bytes())
    wheels = sorted(out.glob("*.whl"))
    (out / "requirements.txt").write_text(_requirements(wheels, needed), encoding="utf-8")
    return wheels


def _resolve(needed: Iterable[Requirement], python: str, machine: str, constraints: Path) -> list[str]:
    command = [
        *("uv", "pip", "compile", "-", "--quiet", "--no-header", "--no-annotate", "--only-binary", ":all:"),
        *("--constraint", str(constraints)),
        *("--python-version", python, "--python-platform", f"{machine}-manylinux_2_{_GLIBC}"),
    ]
    return _run(command, "\n".join(map(str, needed))).split()


def _download(names: Sequence[str], folder: Path, python: str, machine: str, constraints: Path) -> None:
    platforms = [part for tag in platform_tags(machine) for part in ("--platform", tag)]
    wanted = ("--no-deps", "--only-binary=:all:", "--implementation", "cp", "--python-version", python)
    where = ("--constraint", str(constraints), "--dest", str(folder))
    _run(["pip", "download", "--quiet", *wanted, *platforms, *where, *names], "")


def _run(command: Sequence[str], stdin: str) -> str:
    """Run a Python module; its output."""
    done = subprocess.run(
        [sys.executable, "-m", *command], input=stdin, capture_output=True, text=True, check=False, cwd=ROOT
    )
    if done.returncode != 0:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise WheelhouseError(f"{' '.join(command[:2])} failed: {' '.join(said)[-600:] or 'no reason given'}")
    return done.stdout


def _requirements(wheels: Iterable[Path], needed: Sequence[Requirement]) -> str:
    lower = {canonicalize_name(r.name): str(r.specifier) for r in needed}
    lines = []
    for wheel in wheels:
        name, version, _, _ = parse_wheel_filename(wheel.name)
        lines.append(f"{name}{lower.get(name, '')}" if name in _MAY_STAY else f"{name}=={version}")
    return "\n".join(lines) + "\n"


def _build(folder: Path) -> Path:
    _run(["build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)], "")
    (wheel,) = folder.glob("*.whl")
    return wheel


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; 0 when everything was collected."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", default="3.12", help="the box's Python, such as 3.12")
    parser.add_argument("--machine", default="x86_64", choices=_MACHINES, help="the box's processor")
    parser.add_argument("--out", type=Path, default=Path("wheelhouse"), help="folder to fill")
    given = parser.parse_args(arguments)
    try:
        with tempfile.TemporaryDirectory(prefix="wheelhouse-") as temporary:
            wheel = _build(Path(temporary))
            wheels = collect(wheel, given.out, given.python, given.machine, ROOT / "constraints.txt")
    except WheelhouseError as error:
        print(f"wheelhouse: {error}", file=sys.stderr)
        return 1
    size = sum(w.stat().st_size for w in wheels) / 1e6
    name = given.out.name
    print(f"{len(wheels)} wheels, {size:.0f} MB in {given.out}, for Python {given.python} on {given.machine}. There:")
    print(f"  python -m pip install --no-index --find-links {name} --no-deps -r {name}/requirements.txt")
    return 0


if __name__ == "__main__":
    sys.exit(main())
