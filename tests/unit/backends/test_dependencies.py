"""What a user loses: a "faster kernel" that is somebody's BLAS, loaded where no list of needed libraries shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.cpp import CppBackend
from backends.dependencies import foreign_libraries, loader_symbols
from backends.types import BuildSpec, Built, ToolchainError

DLOPEN = """#include <dlfcn.h>
extern "C" void solve(float* b) {
  void* blas = dlopen("libopenblas.so.0", RTLD_NOW);
  if (blas) reinterpret_cast<void (*)(float*)>(dlsym(blas, "cblas_sgemm"))(b);
}
"""
# The loader's function under another name in the source, by a versioned alias of the assembler.
RENAMED = """asm(".symver innocent, dlopen@GLIBC_2.2.5");
extern "C" void* innocent(const char*, int);
extern "C" void solve(float* b) { b[0] = innocent("libopenblas.so.0", 2) ? 1 : 0; }
"""
HONEST = """#include <cmath>
#include <vector>
static float dlopen(float x) { return x + 1; }
extern "C" void solve(float* b) { std::vector<float> v(8, b[0]); b[0] = dlopen(expf(v[3])); }
"""


def artifact(folder: Path, text: str, *flags: str) -> Path:
    source = folder / "kernel.cpp"
    source.write_text(text, encoding="utf-8")
    built = CppBackend().build(source, BuildSpec(flags=flags), folder / "cache")
    assert isinstance(built, Built), built
    return built.artifact


def test_a_library_opened_at_run_time_shows_in_the_symbols_alone(tmp_path: Path) -> None:
    library = artifact(tmp_path, DLOPEN)
    assert foreign_libraries(library, ()) == ()
    assert loader_symbols(library) == ("dlopen", "dlsym")


@pytest.mark.skipif(CppBackend.needs_features == (), reason="names a symbol version of x86-64")
def test_another_name_in_the_source_hides_nothing(tmp_path: Path) -> None:
    assert loader_symbols(artifact(tmp_path, RENAMED, "-ldl")) == ("dlopen",)


def test_an_honest_kernel_calls_no_loader_whatever_its_functions_are_named(tmp_path: Path) -> None:
    assert loader_symbols(artifact(tmp_path, HONEST)) == ()


def test_openmp_is_no_loader(tmp_path: Path) -> None:
    text = """extern "C" void solve(float* b, int n) {
#pragma omp parallel for
  for (int i = 0; i < n; ++i) b[i] += 1;
}
"""
    library = artifact(tmp_path, text, "-fopenmp")
    assert (foreign_libraries(library, ()), loader_symbols(library)) == ((), ())


def test_what_is_no_library_is_named(tmp_path: Path) -> None:
    (tmp_path / "kernel.so").write_text("text")
    with pytest.raises(ToolchainError, match="cannot be read as a shared library"):
        loader_symbols(tmp_path / "kernel.so")
