"""What a user loses: his files, read by a kernel that somebody else wrote, at the moment it is compiled."""

from __future__ import annotations

import os
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from backends import call_filter, landlock, walls
from backends.cpp import CppBackend
from backends.cuda import CudaBackend
from backends.process import run_process
from backends.types import BuildSpec, Built, Rejected, SourceError
from backends.walls import Walls

needs_files = pytest.mark.skipif(not walls.layers()["build_files"], reason="no Landlock here")
SECRET = "leaked_4711"
LANDLOCK_CREATE_RULESET = 444
BACKENDS = [CppBackend(), CudaBackend()]
HEAD = 'extern "C" void solve(float* b)'
SOLVE = f"{HEAD} {{ b[0] = 1; }}\n"
# `{0}` is a file with a secret, which is fit to be compiled, assembled and included as it is.
ESCAPES = {
    "include": '#include "{0}"\n',
    "angled": "#include <{0}>\n",
    "by macro": '#define P "{0}"\n#include P\n',
    "relative": '#include "../../../../../../../../../../../../../../../..{0}"\n',
    "import": '#import "{0}"\n',
    "embed": 'static const char s[] = {{\n#embed "{0}"\n}};\n',
    "has_include": '#if __has_include("{0}")\n#endif\n',
    "pragma": '#pragma GCC dependency "{0}"\n',
    "incbin": 'asm(".incbin \\"{0}\\"");\n',
    "assembled": 'asm(".include \\"{0}\\"");\n',
    "environment": "#include </proc/self/environ>\n",
    "processes": "#include </proc/1/environ>\n",
    "accounts": '#include "/etc/passwd"\n',
    "link": '#include "link.h"\n',
    "linked folder": '#include "away/secret.h"\n',
    "forged marker": '# 1 "{0}" 1\n',
    "forged device": '# 1 "/dev/zero" 1\n',
    "forged and absent": '# 1 "{0}.absent" 1\n',
}


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """Outside of every folder that a build is given."""
    path = tmp_path / "outside" / "secret.h"
    path.parent.mkdir()
    path.write_text(f"int {SECRET};\n", encoding="utf-8")
    return path


def write(folder: Path, text: str, suffix: str) -> Path:
    folder.mkdir(exist_ok=True)
    source = folder / f"kernel{suffix}"
    source.write_text(text, encoding="utf-8")
    return source


@needs_files
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: str(backend.name))
@pytest.mark.parametrize("escape", ESCAPES.values(), ids=ESCAPES)
def test_a_source_cannot_read_outside(
    backend: CppBackend | CudaBackend, escape: str, secret: Path, tmp_path: Path
) -> None:
    source = write(tmp_path / "kernel", escape.format(secret) + SOLVE, backend.suffix)
    (source.parent / "link.h").symlink_to(secret)
    (source.parent / "away").symlink_to(secret.parent)
    spec = BuildSpec(include=(source.parent,), arch="sm_90" if backend.name == "cuda" else "")
    result = backend.build(source, spec, tmp_path / "cache")
    assert isinstance(result, Rejected)
    assert result.stage == "build"
    assert "\n" not in result.reason
    assert SECRET not in result.reason + result.evidence
    if ".incbin" in escape or ".include" in escape:
        return  # of what the assembler reads, the preprocessor knows nothing
    with pytest.raises(SourceError) as said:
        backend.signature(source, spec)
    assert SECRET not in str(said.value)


HONEST = {
    "cpp": '#include "own.h"\n#include <task.h>\n#include <vector>\n' + SOLVE,
    "cuda": '#include "own.h"\n#include <task.h>\n#include <vector>\n#include <cuda_fp16.h>\n'
    "#include <cutlass/cutlass.h>\n"
    f"__global__ void one(float* b) {{ b[0] = __half2float(__float2half(1)); }}\n{HEAD} {{ one<<<1, 1>>>(b); }}\n",
}


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: str(backend.name))
def test_an_honest_source_reads_what_it_needs(backend: CppBackend | CudaBackend, tmp_path: Path) -> None:
    source = write(tmp_path / "kernel", HONEST[backend.name], backend.suffix)
    (source.parent / "own.h").write_text("#pragma once\n", encoding="utf-8")
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "task.h").write_text("#pragma once\n", encoding="utf-8")
    spec = BuildSpec(include=(tmp_path / "task", source.parent), arch="sm_90" if backend.name == "cuda" else "")
    result = backend.build(source, spec, tmp_path / "cache")
    assert isinstance(result, Built), result
    assert backend.signature(source, spec).returns == "void"
    listing = backend.disassemble(result)
    assert listing is not None
    assert listing.functions


@needs_files
def test_the_author_reads_why(secret: Path, tmp_path: Path) -> None:
    source = write(tmp_path / "kernel", f'#include "{secret}"\n' + SOLVE, ".cpp")
    result = CppBackend().build(source, BuildSpec(), tmp_path / "cache")
    assert isinstance(result, Rejected)
    assert result.reason.endswith(
        "Permission denied (a kernel reads its own folder, the toolchain and task.build.include)"
    )


@needs_files
@pytest.mark.parametrize("name", ["runs/answer.h", "memory.db", "memory.db-wal", ".config/key.h", "link.h"])
def test_what_is_hidden_stays_so_in_a_folder_that_is_open(name: str, secret: Path, tmp_path: Path) -> None:
    """Runs and the memory often lie where the kernel does."""
    project = tmp_path / "project"
    source = write(project, f'#include "{name}"\n' + SOLVE, ".cpp")
    (project / "link.h").symlink_to(secret)
    if not (project / name).exists():
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(f"int {SECRET};\n", encoding="utf-8")
    (project / "memory.db").touch()
    spec = BuildSpec(include=(project,), hidden=(project / "runs", project / "memory.db"))
    (project / "runs").mkdir(exist_ok=True)
    result = CppBackend().build(source, spec, tmp_path / "cache")
    assert isinstance(result, Rejected)
    assert SECRET not in result.reason + result.evidence
    (project / "parts").mkdir()
    (project / "parts" / "part.h").write_text("#pragma once\n", encoding="utf-8")
    source.write_text('#include "parts/part.h"\n' + SOLVE, encoding="utf-8")
    assert isinstance(CppBackend().build(source, spec, tmp_path / "cache"), Built)


@needs_files
def test_a_candidate_in_a_run_cannot_read_what_lies_beside_it(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    source = write(runs / "b0", '#include "prompt.h"\n' + SOLVE, ".cpp")
    (source.parent / "prompt.h").write_text(f"int {SECRET};\n", encoding="utf-8")
    assert isinstance(CppBackend().build(source, BuildSpec(), tmp_path / "cache"), Built)
    assert isinstance(CppBackend().build(source, BuildSpec(hidden=(runs,)), tmp_path / "cache"), Rejected)


@needs_files
def test_a_kernel_in_the_home_reads_no_dot_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "home", '#include ".netrc"\n' + SOLVE, ".cpp")
    (source.parent / ".netrc").write_text(f"int {SECRET};\n", encoding="utf-8")
    monkeypatch.setenv("HOME", str(source.parent))
    result = CppBackend().build(source, BuildSpec(include=(source.parent,)), tmp_path / "cache")
    assert isinstance(result, Rejected)


def test_flags_of_the_task_open_the_folders_that_they_name(tmp_path: Path) -> None:
    source = write(tmp_path / "kernel", "#include <library.h>\n" + SOLVE, ".cpp")
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "library.h").write_text("#pragma once\n", encoding="utf-8")
    library = tmp_path / "library"
    for flags in (
        ("-isystem", str(library)),
        (f"-I{library}", f"-Wl,-rpath,{library}"),
        (f"-Wp,-I{library}",),
    ):
        result = CppBackend().build(source, BuildSpec(flags=flags), tmp_path / "cache")
        assert isinstance(result, Built), result


def test_a_compiler_of_ones_own_reads_its_own_headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules and environments bring compilers from anywhere; they say themselves where their parts are."""
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "part.h").write_text("#pragma once\n", encoding="utf-8")
    (tmp_path / "bin").mkdir()
    wrapper = tmp_path / "bin" / "my-g++"
    wrapper.write_text(f'#!/bin/sh\nexec g++ -isystem {tmp_path}/parts "$@"\n', encoding="utf-8")
    wrapper.chmod(0o755)
    monkeypatch.setenv("CXX", str(wrapper))
    source = write(tmp_path / "kernel", "#include <part.h>\n" + SOLVE, ".cpp")
    assert isinstance(CppBackend().build(source, BuildSpec(), tmp_path / "cache"), Built)


@needs_files
@pytest.mark.parametrize(
    "line", ["cat {0}/secret", "cat /proc/$PPID/environ", "echo > {0}/new", "mv secret away", "kill -0 {1}", "ls {0}"]
)
def test_a_program_behind_the_walls_can_do_nothing_outside(line: str, tmp_path: Path) -> None:
    if line.startswith("kill") and landlock.version() < 6:
        pytest.skip("this kernel's Landlock knows no signals")
    outside, own = tmp_path / "outside", tmp_path / "own"
    outside.mkdir()
    own.mkdir()
    (outside / "secret").write_text(SECRET, encoding="utf-8")
    command = line.format(outside, os.getpid())
    walled = run_process(["/bin/sh", "-c", command], timeout_s=20.0, cwd=outside, walls=Walls(writable=(own,)))
    assert walled.returncode != 0
    assert walled.stdout == ""
    assert [path.name for path in outside.iterdir()] == ["secret"]
    inside = run_process(
        ["/bin/sh", "-c", "echo 1 > a && mkdir b && mv a b/c && cat b/c && rm -r b"],
        timeout_s=20.0,
        cwd=own,
        walls=Walls(writable=(own,)),
    )
    assert inside.stdout == "1\n"
    assert list(own.iterdir()) == []


def test_walls_stand_around_what_was_started_and_not_around_us(tmp_path: Path) -> None:
    run_process(["true"], timeout_s=20.0, walls=Walls(writable=(tmp_path,)))
    assert Path("/etc/passwd").read_text(encoding="utf-8")
    (tmp_path.parent / "free").write_text("", encoding="utf-8")


def test_a_layer_that_the_system_does_not_grant_is_named_and_builds_go_on(tmp_path: Path) -> None:
    def looked() -> dict[str, bool]:
        assert call_filter.refuse((LANDLOCK_CREATE_RULESET,))
        assert landlock.version() == 0
        result = CppBackend().build(write(tmp_path, SOLVE, ".cpp"), BuildSpec(), tmp_path / "cache")
        assert isinstance(result, Built)
        return dict(walls.find_layers())

    with ThreadPoolExecutor(1) as thread:  # a filter is for good, so it goes with a thread
        found = thread.submit(looked).result()
    assert found == {**walls.layers(), "build_files": False}


def test_a_layer_that_is_reported_stands() -> None:
    found = walls.layers()
    if not found["build_network"]:
        pytest.skip("no system-call filters here")
    with pytest.raises(PermissionError):
        Walls().start(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
