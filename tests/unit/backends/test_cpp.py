"""What a user loses when builds go wrong: a night's run, to a compiler that hangs or an error nobody can read."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType

import pytest

from backends.cpp import CppBackend
from backends.types import BuildSpec, Built, Rejected, SourceError, ToolchainError

NOTHING: Mapping[str, str] = MappingProxyType({})
ROOT = Path(__file__).resolve().parents[3]
PLAIN = BuildSpec()
ADD = 'extern "C" void solve(const float* a, float* b, int n) { for (int i = 0; i < n; ++i) b[i] = a[i] + ONE; }\n'
ONE = BuildSpec(define={"ONE": "1.0f"})
# Every value needs a new constexpr evaluation; the limits are lifted, so only the clock can end it.
ENDLESS = """constexpr unsigned spin() { unsigned x = 1; while (x) x = x * 3 | 1; return x; }
extern "C" void solve(float* b) { constexpr unsigned n = spin(); b[0] = n; }
"""
LIFTED = ("-fconstexpr-ops-limit=9223372036854775807", "-fconstexpr-loop-limit=2147483647")


def write(folder: Path, text: str, name: str = "kernel.cpp") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / name
    source.write_text(text, encoding="utf-8")
    return source


def built(source: Path, spec: BuildSpec, cache: Path) -> Built:
    result = CppBackend().build(source, spec, cache)
    assert isinstance(result, Built), result
    return result


def rejected(source: Path, spec: BuildSpec, cache: Path) -> Rejected:
    result = CppBackend().build(source, spec, cache)
    assert isinstance(result, Rejected), result
    assert result.stage == "build"
    return result


def run(artifact: Path, value: float) -> float:
    """Call the built `solve` on one element."""
    a, b = (ctypes.c_float * 1)(value), (ctypes.c_float * 1)()
    ctypes.CDLL(str(artifact)).solve(a, b, 1)
    return float(b[0])


def leftovers(cache: Path) -> list[str]:
    return [entry.name for entry in cache.iterdir() if len(entry.name) != 64]


def test_a_build_computes_and_an_equal_one_comes_from_the_cache(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = built(write(tmp_path / "b0", ADD), ONE, cache)
    again = built(write(tmp_path / "b1", ADD), ONE, cache)
    assert run(first.artifact, 2.0) == 3.0
    assert first.artifact == cache / first.key / "kernel.so"
    assert (first.cached, again.cached, again.seconds) == (False, True, 0.0)
    assert first.seconds > 0
    assert (again.artifact, again.key, again.command) == (first.artifact, first.key, first.command)
    assert leftovers(cache) == []


def test_whatever_changes_the_code_changes_the_key(tmp_path: Path) -> None:
    """A method switched off must not be served the build in which it is on."""
    cache = tmp_path / "cache"
    header = write(tmp_path, "#define ONE 1\n", "one.h")
    source = write(tmp_path, '#include <cstddef>\n#include "one.h"\n' + ADD)
    specs = [PLAIN, BuildSpec(flags=("-O1",)), BuildSpec(std="c++20"), BuildSpec(define={"RC_TILING": "0"})]
    keys = [built(source, spec, cache).key for spec in specs]
    assert built(source, BuildSpec(timeout_s=60.0), cache).key == keys[0]
    header.write_text("#define ONE 2\n", encoding="utf-8")
    changed = built(source, PLAIN, cache)
    assert run(changed.artifact, 2.0) == 4.0
    source.write_text(source.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    keys += [changed.key, built(source, PLAIN, cache).key]
    assert len(set(keys)) == len(keys)


def test_task_flags_come_last_and_libraries_after_the_source(tmp_path: Path) -> None:
    spec = BuildSpec(flags=("-O1", "-lm"), define={"ONE": "1"})
    command = built(write(tmp_path, ADD), spec, tmp_path / "cache").command
    assert command.index("-O3") < command.index("-O1") < command.index("-DONE=1")
    assert command.index("kernel.cpp") < command.index("-lm")
    assert Path(command[0]).is_absolute()


def test_names_with_spaces_brackets_and_a_leading_dash(tmp_path: Path) -> None:
    folder = tmp_path / "General Matrix (GEMM)"
    write(folder, "#define ONE 1\n", "one (1).h")
    for name in ("General Matrix (GEMM).cpp", "-o x.cpp", "größe 'q\".cpp"):
        source = write(folder, '#include "one (1).h"\n' + ADD, name)
        assert run(built(source, PLAIN, folder / "ca che").artifact, 1.0) == 2.0
        assert len(CppBackend().signature(source, PLAIN).parameters) == 3


def test_relative_paths_give_an_absolute_artifact(tmp_path: Path) -> None:
    """dlopen of a relative path looks in the system's folders and fails."""
    write(tmp_path / "k", "#define ONE 1\n", "one.h")
    write(tmp_path / "k", '#include "one.h"\n' + ADD)
    code = (
        "from pathlib import Path; from backends.cpp import CppBackend; from backends.types import BuildSpec;"
        "print(CppBackend().build(Path('k/kernel.cpp'), BuildSpec(), Path('cache')).artifact)"
    )
    done = python(code, cwd=tmp_path)
    assert done.stderr == ""
    assert Path(done.stdout.strip()).is_absolute()
    assert Path(done.stdout.strip()).is_file()


def test_only_solve_is_exported_and_helpers_may_share_its_neighbours_names(tmp_path: Path) -> None:
    """A kernel that exports its own malloc must not replace anyone's."""
    text = '#include <cstddef>\nextern "C" void* malloc(size_t) { return nullptr; }\nint main() { return 0; }\n' + ADD
    artifact = built(write(tmp_path, text), ONE, tmp_path / "cache").artifact
    library = ctypes.CDLL(str(artifact))
    assert hasattr(library, "solve")
    names = subprocess.run(["nm", "-D", "--defined-only", artifact], capture_output=True, text=True, check=True).stdout
    assert [line.split()[-1] for line in names.splitlines()] == ["solve"]


def test_error_is_one_line_with_its_place_and_no_private_path(tmp_path: Path) -> None:
    text = '#include <vector>\nextern "C" void solve(float* b) {\n  int unused;\n  b[0] = missing;\n}\n'
    source = write(tmp_path, text, "my kernel.cpp")
    result = rejected(source, BuildSpec(flags=("-Wall",)), tmp_path / "cache")
    assert result.reason == "my kernel.cpp:4:10: error: 'missing' was not declared in this scope"
    assert "b[0] = missing;" in result.evidence
    assert str(tmp_path) not in result.evidence
    assert "unused" not in result.evidence
    assert leftovers(tmp_path / "cache") == []


def test_template_noise_is_cut_and_still_points_into_the_kernel(tmp_path: Path) -> None:
    kinds = range(10)
    text = "#include <algorithm>\n#include <iostream>\n#include <list>\n"
    text += "".join(f"struct Tile{n} {{}};\n" for n in kinds)
    text += 'extern "C" void solve(float* b) {\n  std::list<int> l;\n  std::sort(l.begin(), l.end());\n'
    text += "".join(f"  std::cout << Tile{n}();\n" for n in kinds) + "}\n"
    source = write(tmp_path, text)
    raw = subprocess.run(["g++", "-std=c++17", "-fsyntax-only", source], capture_output=True, text=True, check=False)
    assert len(raw.stderr) > 100_000
    result = rejected(source, PLAIN, tmp_path / "cache")
    assert len(result.evidence) < 6500
    assert len(result.evidence.splitlines()) <= 61
    assert "error: no match for" in result.evidence
    assert "kernel.cpp:" in result.evidence


def test_missing_symbol_is_a_build_error_that_names_it(tmp_path: Path) -> None:
    source = write(tmp_path, 'float helper(float);\nextern "C" void solve(float* b) { b[0] = helper(b[0]); }\n')
    assert "undefined reference to `helper(float)'" in rejected(source, PLAIN, tmp_path / "cache").reason


def test_warning_is_not_an_error_and_is_kept(tmp_path: Path) -> None:
    source = write(tmp_path, 'extern "C" void solve(float* b) { int unused; b[0] = 1; }\n')
    spec = BuildSpec(flags=("-Wall",))
    first, again = (built(source, spec, tmp_path / "cache") for _ in range(2))
    assert "warning: unused variable 'unused'" in first.log
    assert again.log == first.log


def test_compiler_that_does_not_end_is_stopped(tmp_path: Path) -> None:
    source = write(tmp_path, ENDLESS)
    result = rejected(source, BuildSpec(flags=LIFTED, timeout_s=1.5), tmp_path / "cache")
    assert result.reason == "compiler exceeded 1.5 s"
    assert leftovers(tmp_path / "cache") == []


def test_preprocessor_that_does_not_end_is_stopped(tmp_path: Path) -> None:
    lines = [f"#define A{n} A{n + 1} A{n + 1}" for n in range(40)]
    source = write(tmp_path, "\n".join([*lines, "A0", ADD]))
    spec = BuildSpec(define={"ONE": "1"}, timeout_s=1.0)
    result = rejected(source, spec, tmp_path / "cache")
    assert "exceeded" in result.reason or "memory" in result.reason
    with pytest.raises(SourceError, match=r"kernel\.cpp"):
        CppBackend().signature(source, spec)


def test_output_without_end_does_not_fill_the_disk(tmp_path: Path) -> None:
    source = write(tmp_path, 'char big[1ull << 32] = {1};\nextern "C" void solve(float* b) { b[0] = big[1]; }\n')
    assert "256 MiB" in rejected(source, PLAIN, tmp_path / "cache").reason
    assert leftovers(tmp_path / "cache") == []


def test_equal_builds_in_parallel_do_not_collide(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    sources = [write(tmp_path / f"b{n}", ADD) for n in range(6)]
    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(lambda source: built(source, ONE, cache), sources))
    assert len({result.artifact for result in results}) == 1
    assert run(results[0].artifact, 1.0) == 2.0
    assert len(list(cache.iterdir())) == 1


def test_a_broken_cache_entry_is_built_anew(tmp_path: Path) -> None:
    source, cache = write(tmp_path, ADD), tmp_path / "cache"
    first = built(source, ONE, cache)
    first.artifact.unlink()
    again = built(source, ONE, cache)
    assert not again.cached
    assert run(again.artifact, 1.0) == 2.0


def test_missing_source_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"absent\.cpp: No such file"):
        CppBackend().build(tmp_path / "absent.cpp", PLAIN, tmp_path / "cache")


def test_a_kernel_cannot_blame_the_machine(tmp_path: Path) -> None:
    """An environment fault stops the run; a kernel that prints one is only a kernel that does not build."""
    for text in ("#error No space left on device", '#line 1 "g++: fatal error: cannot execute"\n#error x'):
        result = rejected(write(tmp_path, text + "\n" + ADD), ONE, tmp_path / "cache")
        assert "error" in result.reason


def test_toolchain_names_versions() -> None:
    tools = CppBackend().toolchain()
    assert len(tools) == 2
    assert all(any(c.isdigit() for c in line) for line in tools.values())


BUILD = (
    "import sys; from pathlib import Path; from backends.cpp import CppBackend; from backends.types import *\n"
    "try: print(CppBackend().build(Path(sys.argv[1]), BuildSpec(define={'ONE': '1'}), Path(sys.argv[2])).kind)\n"
    "except ToolchainError as error: print('ToolchainError', error)"
)


def python(
    code: str, *arguments: Path, cwd: Path | None = None, env: Mapping[str, str] = NOTHING
) -> subprocess.CompletedProcess[str]:
    """Run `code` in a fresh interpreter with nothing in its environment but `env`."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=cwd,
        env={"PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("env", [{}, {"PATH": ""}, {"PATH": "/nonexistent", "TMPDIR": "/nonexistent", "LANG": "de_DE"}])
def test_builds_under_cron(env: dict[str, str], tmp_path: Path) -> None:
    done = python(BUILD, write(tmp_path, ADD), tmp_path / "cache", env=env)
    assert (done.stdout, done.stderr) == ("built\n", "")


def test_builds_under_a_lower_memory_limit(tmp_path: Path) -> None:
    """A limit that the machine's owner set cannot be raised; that is no reason not to build."""
    limited = "import resource; resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))\n" + BUILD
    done = python(limited, write(tmp_path, ADD), tmp_path / "cache")
    assert (done.stdout, done.stderr) == ("built\n", "")


def test_missing_or_broken_compiler_says_what_to_install(tmp_path: Path) -> None:
    source = write(tmp_path, ADD)
    no_driver = tmp_path / "broken" / "c++"
    no_driver.parent.mkdir()
    no_driver.write_text('#!/bin/sh\n[ "$1" = --version ] && echo c++ 1.0 && exit\necho cannot execute >&2; exit 1\n')
    no_driver.chmod(0o755)
    for compiler in ("no-such-compiler", "/bin/false", str(no_driver)):
        done = python(BUILD, source, tmp_path / "cache", env={"CXX": compiler})
        assert done.stdout.startswith("ToolchainError "), done
        assert Path(compiler).name in done.stdout
        assert "apt install g++" in done.stdout
        assert done.stdout.count("\n") == 1


def test_compiler_with_arguments_in_cxx(tmp_path: Path) -> None:
    done = python(BUILD, write(tmp_path, ADD), tmp_path / "cache", env={"CXX": "g++ -DUNUSED=1"})
    assert done.stdout == "built\n"


def test_unwritable_cache_is_the_machines_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ToolchainError, match="cannot be used for builds: Not a directory; set another output folder"):
        CppBackend().build(write(tmp_path, ADD), ONE, tmp_path / "file" / "cache")


def test_full_disk_is_the_machines_fault(tmp_path: Path) -> None:
    """A full disk remembered as "does not build" would teach the memory nonsense."""
    small = tmp_path / "small"
    small.mkdir()
    mount = 'mount -t tmpfs -o size=256k none "$1" && shift && exec "$@"'
    unshare = shutil.which("unshare")
    own_mounts = [str(unshare), "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh", str(small)]
    if unshare is None or subprocess.run([*own_mounts, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("this kernel gives no private mounts to mount a small disk in")
    source = write(tmp_path, "#include <vector>\n" + ADD)
    done = subprocess.run(
        [*own_mounts, sys.executable, "-c", BUILD, str(source), str(small / "cache")],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.startswith("ToolchainError no space left on the disk that holds"), done


@pytest.mark.parametrize("limit_bytes", [1 << 14, 8 << 20])
def test_a_listing_that_does_not_fit_is_none_and_not_half_of_one(limit_bytes: int, tmp_path: Path) -> None:
    """Methods would be missing in a listing that was cut, and be held against the kernel."""
    source = write(tmp_path, 'extern "C" void solve(float* b) { b[0] = 1; asm(".fill 4000, 1, 0x90"); }\n')
    found = CppBackend().disassemble(built(source, PLAIN, tmp_path / "cache"), limit_bytes=limit_bytes)
    assert (found is not None) == (limit_bytes > 1 << 14)
    if found is not None:
        assert len(found.functions[-1].instructions) > 4000


def objdump_that(does: str, folder: Path) -> dict[str, str]:
    """A PATH on which objdump is a script."""
    folder.mkdir()
    script = folder / "objdump"
    script.write_text(f"#!/bin/sh\n{does}\n")
    script.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


DISASSEMBLE = """import sys
from pathlib import Path
from backends.cpp import CppBackend
from backends.types import BuildSpec, ToolchainError
built = CppBackend().build(Path(sys.argv[1]), BuildSpec(), Path(sys.argv[2]))
try:
    print(CppBackend().disassemble(built))
except ToolchainError as error:
    print(f"toolchain: {error}")
"""


def test_a_kernel_that_crashes_objdump_has_no_listing_and_does_not_end_the_run(tmp_path: Path) -> None:
    source, cache = write(tmp_path, 'extern "C" void solve(float*) {}\n'), tmp_path / "cache"
    script = f'case "$*" in *{cache}*) kill -SEGV $$;; *) exec /usr/bin/objdump "$@";; esac'
    done = python(DISASSEMBLE, source, cache, env=objdump_that(script, tmp_path / "bin"))
    assert done.stdout == "None\n", done.stderr


def test_an_objdump_that_reads_nothing_is_the_machines_fault(tmp_path: Path) -> None:
    source, cache = write(tmp_path, 'extern "C" void solve(float*) {}\n'), tmp_path / "cache"
    env = objdump_that("echo cannot load libbfd >&2; exit 127", tmp_path / "bin")
    done = python(DISASSEMBLE, source, cache, env=env)
    assert done.stdout.startswith("toolchain: ")
    assert "cannot read an empty library: cannot load libbfd; reinstall binutils" in done.stdout
