"""AddressSanitizer and ThreadSanitizer over real C++ kernels, behind the walls that they run in when they are timed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from backends.registry import get_backend
from backends.types import BuildSpec, Built
from profiling.harness.harness import Harness
from profiling.sanitizers.check import Sanitizers
from profiling.sanitizers.findings import Finding, SanitizerReport
from profiling.sanitizers.kept import Kept
from profiling.sanitizers.shapes import NONE_SMALL, SMALL_ELEMENTS, small_cases
from profiling.types import Limits, MeasureSettings
from tests.kernels import GEMM_FAST, gemm_case, gemm_problem

SETTINGS = MeasureSettings(warmup_ms=1.0, min_time_s=0.005)


def gemm(before: str, include: str = "") -> str:
    """A right product that does something else first; its line is 4, or 5 behind an include."""
    return (f"#include <{include}>\n" if include else "") + GEMM_FAST.replace("{", f"{{\n{before}", 1)


READS_PAST = gemm("volatile float seen = A[M * K];")
WRITES_PAST = gemm("volatile float* own = new float[K]; own[K] = A[0]; delete[] own;")
READS_FREED = gemm(
    "auto* own = static_cast<float*>(malloc(64)); own[3] = A[0]; free(own); volatile float seen = own[3];", "stdlib.h"
)
RACES = gemm(
    "int n = 0; auto count = [&] { for (int i = 0; i < 1000; i++) n++; }; "
    "std::thread a(count), b(count); a.join(), b.join();",
    "thread",
)
SHARES = gemm(
    "int n[2] = {}; auto count = [&](int which) { for (int i = 0; i < 1000; i++) n[which]++; }; "
    "std::thread a(count, 0), b(count, 1); a.join(), b.join();",
    "thread",
)
POOLS = gemm(
    "static std::thread waits([] { for (;;) std::this_thread::sleep_for(std::chrono::hours(1)); });",
    "thread",
)
OPEN_MP = GEMM_FAST.replace(
    "for (int i = 0; i < M; i++)", '_Pragma("omp parallel for num_threads(2)")\n    for (int i = 0; i < M; i++)'
)


@dataclass(frozen=True, slots=True)
class Bed:
    sanitizers: Sanitizers
    folder: Path

    def check(self, source: str, *flags: str) -> SanitizerReport:
        path = self.folder / "kernel.cpp"
        path.write_text(source)
        sanitizers = replace(self.sanitizers, spec=BuildSpec(flags=flags))
        built = sanitizers.backend.build(path, sanitizers.spec, sanitizers.cache)
        assert isinstance(built, Built), built
        return sanitizers.check(path, built)


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    folder = tmp_path_factory.mktemp("sanitizers")
    problem = gemm_problem(folder)
    with Harness(problem, SETTINGS, Limits(call_s=5.0), folder / "cache") as harness:
        yield Bed(Sanitizers(harness, problem, get_backend("cpp"), BuildSpec(), folder / "builds", threads=2), folder)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        (READS_PAST, "address: heap-buffer-overflow: READ of size 4, 0 bytes after A at kernel.cpp:3"),
        (WRITES_PAST, "address: heap-buffer-overflow: WRITE of size 4, 0 bytes after a buffer of the kernel's own"),
        (READS_FREED, "address: heap-use-after-free: READ of size 4, 12 bytes inside a buffer of the kernel's own"),
    ],
)
def test_an_access_that_changes_no_result_is_found_with_its_line(bed: Bed, source: str, found: str) -> None:
    report = bed.check(source)
    (told,) = [f for f in report.findings if f.tool == "address"]
    assert str(told).startswith(found)
    assert (told.where or "").startswith("kernel.cpp:")
    assert "address" not in report.clean
    assert report.unavailable == ()


def test_a_race_of_two_threads_is_found_with_both_its_lines(bed: Bed) -> None:
    report = bed.check(RACES)
    assert report.clean == ("address",)
    (race,) = report.findings
    assert (race.tool, race.kind, race.where) == ("thread", "data race", "kernel.cpp:4")
    assert race.message.count("kernel.cpp:4") == 2


def test_what_was_found_before_is_not_looked_for_again_but_races_are(bed: Bed) -> None:
    path = bed.folder / "kernel.cpp"
    path.write_text(RACES)
    built = bed.sanitizers.backend.build(path, bed.sanitizers.spec, bed.sanitizers.cache)
    assert isinstance(built, Built), built
    kept = Kept(bed.folder / "kept", (built.key,))
    found = bed.sanitizers.check(path, built, kept)
    assert (found.clean, [f.kind for f in found.findings]) == (("address",), ["data race"])
    before = Finding("address", "heap-buffer-overflow", "as an earlier run found it", "kernel.cpp:4", 1)
    for file in (bed.folder / "kept").iterdir():  # one for each shape
        file.write_bytes(TypeAdapter(tuple[Finding, ...]).dump_json((before,)))
    again = bed.sanitizers.check(path, built, kept)
    assert (again.clean, {f.kind for f in again.findings}) == ((), {"heap-buffer-overflow", "data race"})


@pytest.mark.parametrize("source", [SHARES, POOLS])
def test_threads_that_share_nothing_and_threads_that_stay_are_clean(bed: Bed, source: str) -> None:
    assert bed.check(source) == SanitizerReport(("address", "thread"), (), ())


def test_a_kernel_of_openmp_runs_under_both(bed: Bed) -> None:
    """Whether its races are seen is the run-time library's matter; it must not be lost for want of one."""
    report = bed.check(OPEN_MP, "-fopenmp")
    assert "address" in report.clean
    assert report.unavailable == ()


def test_a_call_that_does_not_end_gives_no_answer(bed: Bed) -> None:
    report = bed.check(gemm("_exit(3);", "unistd.h"))
    assert (report.clean, report.findings) == ((), ())
    assert [(u.tool, "exit code 3" in u.reason) for u in report.unavailable] == [("address", True), ("thread", True)]


def test_a_report_that_the_kernel_keeps_to_itself_is_held_against_it(bed: Bed) -> None:
    report = bed.check(gemm("close(2); volatile float seen = A[M * K];", "unistd.h"))
    assert [f.tool for f in report.findings] == ["address"]


def test_a_kernel_that_no_sanitizer_builds_is_not_clean(bed: Bed) -> None:
    """As an `#ifdef` could make it."""
    report = bed.check("#ifdef __SANITIZE_ADDRESS__\n#error not here\n#endif\n" + GEMM_FAST)
    assert report.clean == ("thread",)
    (missing,) = report.unavailable
    assert "not here" in missing.reason


def test_where_only_large_shapes_are_named_nothing_is_said(bed: Bed) -> None:
    problem = replace(bed.sanitizers.problem, timed=gemm_case(512, 512, 512), checks=())
    bed.folder.joinpath("kernel.cpp").write_text(READS_PAST)
    built = get_backend("cpp").build(bed.folder / "kernel.cpp", BuildSpec(), bed.sanitizers.cache)
    assert isinstance(built, Built)
    report = replace(bed.sanitizers, problem=problem).check(bed.folder / "kernel.cpp", built)
    assert (report.clean, report.findings) == ((), ())
    assert {u.reason for u in report.unavailable} == {NONE_SMALL}
    assert str(SMALL_ELEMENTS) in NONE_SMALL


def test_shapes_are_the_smallest_extra_one_and_the_largest_that_is_small() -> None:
    edge, odd, large = gemm_case(1, 1, 1), gemm_case(65, 33, 17), gemm_case(512, 512, 512)
    assert small_cases(large, (odd, edge)) == (1, 0)
    assert small_cases(gemm_case(128, 128, 128), (odd, edge)) == (1, None)
    assert small_cases(large, (large,)) == (0,), "the only extra shape, whatever its size"
    assert small_cases(large, (odd, edge), dropped=[edge.dims]) == (0,), "the baseline itself fails there"
    assert small_cases(large, ()) == ()
