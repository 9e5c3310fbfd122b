"""What a box without network is given: a package too few cannot be fetched there, a torch too many breaks it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.tags import sys_tags

from tools.wheelhouse import WheelhouseError, collect, platform_tags, requirements_of

ROOT = Path(__file__).parents[2]
READY = ROOT / "wheelhouse"
_OWN_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def make_wheel(folder: Path, name: str, requires: tuple[str, ...] = ()) -> Path:
    """A small wheel, real in every respect: a module of the same name, and what it requires."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    needs = "".join(f"Requires-Dist: {r}\n" for r in requires)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", "")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{needs}")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project's wheel, and a package index of a few wheels that stands for PyPI."""
    index = tmp_path / "index"
    packages = {"library": ("backport; python_version < '3.11'", "numpy")}
    for name in ("library", "backport", "numpy", "torch", "triton", "tester", "nvidia-cutlass"):
        page = index / name / "index.html"
        page.parent.mkdir(parents=True)
        wheel = make_wheel(page.parent, name.replace("-", "_"), packages.get(name, ()))
        page.write_text(f'<!DOCTYPE html><a href="{wheel.name}">{wheel.name}</a>')
    monkeypatch.setenv("UV_DEFAULT_INDEX", index.as_uri())
    monkeypatch.setenv("PIP_INDEX_URL", index.as_uri())
    for setting in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "UV_INDEX", "UV_FIND_LINKS"):
        monkeypatch.setenv(setting, "")
    needs = ("torch>=1", "triton; sys_platform == 'linux'", "library", "numpy>=0.5", "tester; extra == 'dev'")
    return make_wheel(tmp_path, "project", needs)


def names(wheels: list[Path]) -> set[str]:
    return {w.name.split("-")[0] for w in wheels}


def test_markers_are_those_of_the_box_and_torch_stays_its_own(project: Path, tmp_path: Path) -> None:
    """Resolved by the building machine's Python, a backport that the box's Python needs would be missing there."""
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("library<2\n")
    old = collect(project, tmp_path / "old", "3.10", "x86_64", constraints)
    assert names(old) == {"project", "library", "backport", "numpy", "nvidia_cutlass"}
    new = collect(project, tmp_path / "new", "3.12", "aarch64", constraints)
    assert names(new) == names(old) - {"backport"}
    lines = (tmp_path / "new" / "requirements.txt").read_text().splitlines()
    assert lines == ["library==1.0", "numpy>=0.5", "nvidia-cutlass==1.0", "project==1.0"]


def test_wheels_of_an_earlier_call_do_not_stay_and_other_files_do(project: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    make_wheel(out, "outdated")
    (out / "notes.txt").write_text("mine")
    wheels = collect(project, out, "3.12", "x86_64", Path(os.devnull))
    assert "outdated" not in names(wheels)
    assert (out / "notes.txt").read_text() == "mine"


def test_one_command_installs_it_where_there_is_no_index(project: Path, tmp_path: Path) -> None:
    out = tmp_path / "wheelhouse"
    collect(project, out, _OWN_PYTHON, "x86_64", Path(os.devnull))
    python = install(out, tmp_path / "env")
    subprocess.run([python, "-c", "import project, library"], check=True)


def test_what_has_no_wheel_is_one_line_and_nothing_is_left_behind(project: Path, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "other", ("absent>=3",))
    with pytest.raises(WheelhouseError, match=r"^uv pip failed: .*absent") as caught:
        collect(wheel, tmp_path / "out", "3.12", "x86_64", Path(os.devnull))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()
    with pytest.raises(WheelhouseError, match=r"give two numbers, such as 3\.12"):
        collect(project, tmp_path / "out", "3.12.1", "x86_64", Path(os.devnull))


def test_wheels_for_older_systems_are_taken_too() -> None:
    """Most wheels are tagged for a glibc older than the box's; few for exactly the one asked for."""
    tags = platform_tags("x86_64")
    assert {"manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64", "linux_x86_64"} <= set(tags)
    assert "manylinux_2_34_x86_64" not in tags
    own = {tag.platform for tag in sys_tags()}
    assert len(own & set(tags)) > 10 or os.uname().machine != "x86_64"


def test_what_the_project_needs_is_read_from_its_wheel_without_extras_and_the_boxs_own(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    needed = {r.name for r in requirements_of(wheel)}
    assert {"anthropic", "pydantic", "sqlalchemy", "tree-sitter-cpp"} <= needed
    assert needed.isdisjoint({"torch", "triton", "pytest", "nvidia-cuda-nvcc"})


def install(wheelhouse: Path, folder: Path) -> Path:
    """A fresh environment with the wheelhouse in it, by the documented command; its Python."""
    venv.create(folder, with_pip=True, symlinks=True)
    python = folder / "bin" / "python"
    where = ["--no-index", "--find-links", str(wheelhouse), "--no-deps", "-r", str(wheelhouse / "requirements.txt")]
    subprocess.run([python, "-m", "pip", "install", "-q", *where], check=True, capture_output=True, text=True)
    return python


def _has_wheels_for_us() -> bool:
    tags = {f"{tag.interpreter}-{tag.abi}" for tag in sys_tags() if tag.abi.startswith("cp3")}
    return any(f"-{tag}-" in wheel.name for wheel in READY.glob("pydantic_core-*.whl") for tag in tags)


@pytest.mark.skipif(
    not _has_wheels_for_us(), reason=f"run `make wheelhouse PYTHON_VERSION={_OWN_PYTHON}` first: it needs the network"
)
def test_the_wheelhouse_checks_a_task_beside_a_torch_that_was_there(tmp_path: Path) -> None:
    """The box's own torch is stood for by this environment's; nothing else of this environment is visible."""
    python = install(READY, tmp_path / "env")
    there = tmp_path / "there"
    there.mkdir()
    for name in needed_by("torch") | needed_by("triton"):
        for top in {file.parts[0] for file in metadata.files(name) or () if file.parts[0] not in ("..", "__pycache__")}:
            if not (there / top).exists():
                (there / top).symlink_to(Path(str(metadata.distribution(name).locate_file(top))))
    (site,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    (site / "torch.pth").write_text(f"{there}\n")
    done = subprocess.run(
        [python, "-m", "agent", "check", "--config", "softmax_cpu", "--json"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["task"]["rejected"] == ["zeros", "constant", "half", "input copy"]


def needed_by(name: str) -> set[str]:
    """An installed distribution and all that it depends on here."""
    found: set[str] = set()
    pending = [name]
    while pending:
        current = pending.pop()
        try:
            requires = metadata.requires(current) or ()
        except metadata.PackageNotFoundError:
            continue  # asked for on another platform alone
        if current not in found:
            found.add(current)
            pending.extend(re.split(r"[^\w.-]", line)[0] for line in requires if "extra ==" not in line)
    return found
