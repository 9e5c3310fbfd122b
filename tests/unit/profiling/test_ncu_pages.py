"""Every shape of Nsight Compute's output that was met in public: read right, or refused in one line that says why."""

from __future__ import annotations

import codecs
from pathlib import Path

import pytest

from profiling.findings import Profile, Work
from profiling.ncu.faults import NcuFault
from profiling.ncu.pages import Pages, inaccessible, parse_pages
from profiling.ncu.runner import make_profile
from profiling.ncu.summary import DURATION, kernels_of, overall

DATA = Path(__file__).parents[2] / "data" / "ncu"
DRAM = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
SIGNATURE = "gemm<float, 4>(const float *, float *, int)"

F1 = '"ID","Process ID","Process Name","Host Name","Kernel Name","Kernel Time","Context","Stream",'
F1 += '"Section Name","Metric Name","Metric Unit","Metric Value"'
F2 = '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size",'
F2 += '"Device","CC","Section Name","Metric Name","Metric Unit","Metric Value","Rule Name","Rule Type",'
F2 += '"Rule Description","Estimated Speedup Type","Estimated Speedup"'


def f1(metric: str, unit: str, value: str, *, kernel: str = SIGNATURE, number: int = 0, process: int = 7) -> str:
    head = f'"{number}","{process}","app","127.0.0.1","{kernel}","2024-Nov-13 18:14:36","1","7",'
    return head + f'"Command line profiler metrics","{metric}","{unit}","{value}"'


def f2(metric: str, unit: str, value: str, *, kernel: str = SIGNATURE, number: int = 0, process: int = 7) -> str:
    head = f'"{number}","{process}","app","127.0.0.1","{kernel}","1","7","(256, 1, 1)","(64, 2, 1)","0","9.0",'
    return head + f'"Some section","{metric}","{unit}","{value}",'


def wide(columns: dict[str, tuple[str, str]], *, name: str = "k", units: bool = True) -> str:
    ids = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size",
           "Grid Size", "Device", "CC"]  # fmt: skip
    rows = [[*ids, *columns]]
    rows += [["" for _ in ids] + [unit for unit, _ in columns.values()]] if units else []
    rows += [["0", "7", "app", "127.0.0.1", name, "1", "7", "(256, 1, 1)", "(64, 1, 1)", "0", "9.0"]
             + [value for _, value in columns.values()]]  # fmt: skip
    return "".join(",".join(f'"{cell}"' for cell in row) + "\n" for row in rows)


def read(*lines: str) -> Pages:
    return parse_pages("\n".join(lines) + "\n")


def profile_of(pages: Pages) -> Profile:
    return make_profile(pages, "full", time_ms=None, work=Work(None, None), ceilings=None, dtype="float32", note="read")


def test_a_real_raw_page_in_base_units() -> None:
    """2,238 columns, `ms` here and `us` there, Mbyte and Kbyte for one metric."""
    gemm = parse_pages((DATA / "gemm_naive_full_raw.csv").read_bytes())
    (launch,) = gemm.launches
    assert launch.name == "gemm_kernel(const float *, const float *, float *, int, int, int)"
    assert (launch.grid, launch.block) == ((128, 128, 1), (16, 16, 1))
    assert launch.metrics[DURATION] == pytest.approx(3.135488e-3)
    assert launch.metrics["dram__bytes_write.sum"] == pytest.approx(12.192256e6)
    assert launch.metrics["l1tex__m_xbar2l1tex_read_bytes.sum"] == pytest.approx(4.159882e9)
    assert launch.metrics["launch__shared_mem_per_block"] == 1024
    assert launch.units["dram__cycles_elapsed.avg.per_second"] == "hz"
    assert "derived_tempMetric4" not in launch.metrics, "nan is missing"
    assert "sass__inst_executed_register_spilling_mem_local" in launch.missing, "so is `no data`"
    assert "launch__func_cache_config" not in launch.metrics
    two = parse_pages((DATA / "softmax_two_full_raw.csv").read_bytes())
    assert [launch.metrics[DURATION] for launch in two.launches] == pytest.approx([16.384e-6, 12.256e-6])
    assert two.launches[1].metrics["dram__bytes_write.sum"] == pytest.approx(652.544e3)


def test_a_triton_kernel_has_a_bare_name() -> None:
    (launch,) = parse_pages((DATA / "softmax_triton_full_raw.csv").read_bytes()).launches
    assert launch.name == "softmax_kernel"


def test_a_details_page_has_the_names_and_values_of_the_raw_page() -> None:
    """Whoever only kept the details page gets the same evidence, as far as it goes."""
    for stem in ("gemm_naive", "softmax_two"):
        raw = parse_pages((DATA / f"{stem}_full_raw.csv").read_bytes())
        details = parse_pages((DATA / f"{stem}_full_details.csv").read_bytes())
        for one, other in zip(raw.launches, details.launches, strict=True):
            shared = [name for name in other.metrics if name in one.metrics]
            assert len(shared) > 60
            for name in shared:
                # The details page rounds to two decimals of its own unit.
                assert other.metrics[name] == pytest.approx(one.metrics[name], rel=0.03, abs=0.006), name
                assert other.units[name] == one.units[name], name


def test_rules_carry_their_estimates_largest_first() -> None:
    rules = parse_pages((DATA / "gemm_naive_full_details.csv").read_bytes()).rules
    first = rules[0]
    assert (first.rule, first.kind, first.speedup_kind) == ("MemoryCacheAccessPattern", "OPT", "global")
    assert first.speedup_percent == pytest.approx(43.13)
    assert "only 18.0 of the 32 bytes" in first.text
    estimates = [rule.speedup_percent or 0.0 for rule in rules]
    assert estimates == sorted(estimates, reverse=True)
    assert any(rule.speedup_percent is None and rule.kind == "INF" for rule in rules), "no estimate is None, not 0"


def test_log_with_diagnostics_before_the_header() -> None:
    """C03: a header that comes after any number of ncu's own lines; a date is no number."""
    pages = read(
        "==PROF== Connected to process 7",
        "==PROF== Disconnected from process 7",
        "==WARNING== Found outstanding GPU clock reset, trying to revert...Success.",
        F1,
        f1(DURATION, "nsecond", "152192"),
    )
    (launch,) = pages.launches
    assert launch.metrics == {DURATION: pytest.approx(152.192e-6)}
    assert "Found outstanding GPU clock reset" in pages.warnings[0]


def test_names_of_2020_and_an_empty_line_under_the_header() -> None:
    """C04: an empty line is not the end of the table; old names are today's."""
    rows = [f1("SOL FB", "%", "45.5"), f1("Memory Frequency", "cycle/second", "772656250"), f1("SOL SM", "%", "12")]
    (launch,) = read(F1, "", *rows).launches
    assert launch.metrics[DRAM] == 45.5
    assert launch.metrics["dram__cycles_elapsed.avg.per_second"] == 772656250
    assert launch.metrics["sm__throughput.avg.pct_of_peak_sustained_elapsed"] == 12
    assert launch.labels[DRAM] == "SOL FB"


def test_two_metrics_of_one_label_are_told_apart_by_their_unit() -> None:
    (launch,) = read(F2, f2("Memory Throughput", "%", "98.57"), f2("Memory Throughput", "Gbyte/s", "14.59")).launches
    assert launch.metrics["gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"] == 98.57
    assert launch.metrics["dram__bytes.sum.per_second"] == pytest.approx(14.59e9)


def test_units_decide_a_comparison_of_two_raw_pages() -> None:
    """A10, C06: without units 2.10 (Mbyte) looks less than 980.5 (Kbyte), and 950.2 (us) more than 1.10 (ms)."""
    baseline = wide({"dram__bytes_read.sum": ("Mbyte", "2.10"), DURATION: ("us", "950.2")})
    candidate = wide({"dram__bytes_read.sum": ("Kbyte", "980.5"), DURATION: ("ms", "1.10")})
    before, after = (parse_pages(text).launches[0].metrics for text in (baseline, candidate))
    assert before["dram__bytes_read.sum"] == pytest.approx(2.1e6)
    assert after["dram__bytes_read.sum"] == pytest.approx(9.805e5)
    assert before[DURATION] == pytest.approx(950.2e-6)
    assert after[DURATION] == pytest.approx(1100e-6)


def test_base_units_with_exponents_and_separators() -> None:
    """C06: `--print-units base` prints `10,240,000` bytes and `4.0e-05` seconds."""
    page = wide({"dram__bytes_read.sum": ("byte", "10,240,000"), DURATION: ("second", "4.0e-05")})
    (launch,) = parse_pages(page).launches
    assert launch.metrics == {"dram__bytes_read.sum": 1.024e7, DURATION: 4e-5}


def test_the_row_of_units_is_no_kernel_and_its_absence_is_an_error() -> None:
    """C06: values without units are off by up to a billion; a nameless kernel is still a kernel."""
    columns = {DURATION: ("us", "5")}
    assert len(parse_pages(wide(columns, name="")).launches) == 1
    with pytest.raises(NcuFault, match="row of units under the header is missing"):
        parse_pages(wide(columns, units=False))


def test_columns_are_found_by_name_in_any_order() -> None:
    """C12: sources disagree on which of grid and block comes first."""
    swapped = F2.replace('"Block Size","Grid Size"', '"Grid Size","Block Size"')
    row = f2("Duration", "us", "3").replace('"(256, 1, 1)","(64, 2, 1)"', '"(64, 2, 1)","(256, 1, 1)"')
    for pages in (read(swapped, row), read(F2, f2("Duration", "us", "3"))):
        assert pages.launches[0].grid == (64, 2, 1)
        assert pages.launches[0].block == (256, 1, 1)


def test_nvtx_columns_with_doubled_quotes() -> None:
    """C07: two more columns between host and kernel, their cells full of quotes and commas."""
    names = '"thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg",'
    names += '"Id:Domain:Start/Stop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg",'
    cells = '"7  ""<default domain>:layer.0:none:none"" , ""x"" ","",'
    header = F2.replace('"Kernel Name"', names + '"Kernel Name"')
    row = f2("Duration", "us", "3").replace('"127.0.0.1",', '"127.0.0.1",' + cells)
    (launch,) = read(header, row).launches
    assert launch.name == SIGNATURE
    assert launch.metrics[DURATION] == pytest.approx(3e-6)
    page = wide({DURATION: ("us", "3")}).splitlines()
    page[0] = page[0].replace('"Kernel Name"', names + '"Kernel Name"')
    page[1] = page[1].replace('"","","","",', '"","","","","","",', 1)
    page[2] = page[2].replace('"127.0.0.1",', '"127.0.0.1",' + cells)
    (launch,) = read(*page).launches
    assert launch.metrics == {DURATION: pytest.approx(3e-6)}, "a range is no metric"


def test_a_metric_without_a_value_is_missing_and_the_rest_is_kept() -> None:
    """C09: read as 0% device memory, `(!) n/a` makes any kernel look compute-bound."""
    (launch,) = read(
        F1, f1(DRAM, "", "(!) n/a"), f1("sm__cycles_active.avg", "cycle", "5"), f1("a__b", "", "N/A")
    ).launches
    assert launch.metrics == {"sm__cycles_active.avg": 5}
    assert launch.missing == (DRAM, "a__b")
    assert DRAM in profile_of(read(F1, f1(DRAM, "", "n/a"), f1("sm__cycles_active.avg", "cycle", "5"))).note


def test_no_kernels_says_which_there_are() -> None:
    """C10, A12: the user's filter missed; the names to use are in the log, among the program's own prints."""
    text = """==PROF== Connected to process 7
[PTX stub] C[0,0]=0.0
==WARNING== No kernels were profiled.
Available Kernels:
1. gn_stats_kernel_h(const __half *, float *, int, int)
2. Kernel2
==PROF== Disconnected from process 7
"""
    with pytest.raises(NcuFault, match="no kernels were profiled; available: gn_stats_kernel_h") as caught:
        parse_pages(text)
    assert caught.value.kind == "no-kernels"
    assert caught.value.available == ("gn_stats_kernel_h(const __half *, float *, int, int)", "Kernel2")


def test_a_program_that_failed_is_named_before_its_missing_kernels() -> None:
    """C10: no kernels were profiled because the program died; a filter is not what is wrong."""
    text = "==ERROR== The application returned an error code (1).\n==WARNING== No kernels were profiled.\n"
    with pytest.raises(NcuFault, match="ended with code 1") as caught:
        parse_pages(text)
    assert caught.value.kind == "application"


def test_warnings_with_commas_and_progress_are_no_rows() -> None:
    """C11: a line with six commas, a progress bar without its newline, a name cut short."""
    warning = "==WARNING== Unable to access the following 6 metrics: ctc__rx_bytes_data_user.sum, b__c.sum, d, e, f, g"
    progress = '==PROF== Profiling "distribution_elementwise_grid..." - 0: 0%....50%....100% - 37 passes'
    pages = read(progress, warning, F1, f1(DURATION, "nsecond", "8"), warning, f1("a__b", "inst", "1,000"), progress)
    (launch,) = pages.launches
    assert launch.metrics == {DURATION: pytest.approx(8e-9), "a__b": 1000}
    assert inaccessible(pages.warnings)[:2] == ("ctc__rx_bytes_data_user.sum", "b__c.sum")


@pytest.mark.parametrize("stray", ["a,b,c", 'he said "hello, world', '"quoted","line"', "", "0.5 0.25", '"'])
def test_prints_of_the_program_between_rows(stray: str) -> None:
    """A stray quote must not swallow the rows behind it."""
    pages = read(F2, f2("Duration", "us", "3"), stray, f2("Elapsed Cycles", "cycle", "9"), stray, stray)
    assert pages.launches[0].metrics == {DURATION: pytest.approx(3e-6), "gpc__cycles_elapsed.max": 9}


def test_prints_glued_to_header_and_rows() -> None:
    """C14: a program that prints `done` without a newline."""
    pages = read("done" + F1, "x=1 " + f1(DURATION, "nsecond", "8"))
    assert pages.launches[0].metrics == {DURATION: pytest.approx(8e-9)}
    assert pages.launches[0].id == "0"


@pytest.mark.parametrize(
    "encode",
    [
        lambda text: codecs.BOM_UTF16_LE + text.encode("utf-16-le"),
        lambda text: codecs.BOM_UTF16_BE + text.encode("utf-16-be"),
        lambda text: text.encode("utf-16-le"),
        lambda text: codecs.BOM_UTF8 + text.encode(),
        lambda text: text.replace("\n", "\r\n").encode(),
    ],
    ids=["utf-16 of PowerShell", "utf-16 big-endian", "utf-16 without mark", "utf-8 mark", "crlf"],
)
def test_encodings(encode: object) -> None:
    assert callable(encode)
    text = "\n".join([F1, f1(DURATION, "nsecond", "8"), ""])
    assert parse_pages(encode(text)).launches[0].metrics == {DURATION: pytest.approx(8e-9)}


def test_two_processes_with_the_same_id() -> None:
    """A parent and its child both have a kernel 0; taken for one, the child's numbers overwrite the parent's."""
    pages = read(F2, f2("Duration", "us", "3", process=7), f2("Duration", "us", "5", process=8))
    assert [launch.metrics[DURATION] for launch in pages.launches] == pytest.approx([3e-6, 5e-6])
    (kernel,) = kernels_of(pages.launches)
    assert kernel.launches == 2
    assert kernel.time_ms == pytest.approx(8e-3)


def test_a_summary_page_stands_for_all_launches() -> None:
    """F4: no ID and no value, but invocations and an average."""
    header = '"Process ID","Process Name","Host Name","Kernel Name","Block Size","Grid Size","Device","CC",'
    header += '"Invocations","Section Name","Metric Name","Metric Unit","Minimum","Maximum","Average"'
    row = '"7","app","127.0.0.1","k(int, int)","(256, 1, 1)","(64, 1, 1)","0","9.0","4","S",'
    rows = [row + '"Duration","us","1","3","2"', row + '"DRAM Throughput","%","10","30","20"']
    rows += [row.replace("k(int, int)", "other") + '"Duration","us","1","1","1"']
    pages = read(header, *rows)
    first, second = kernels_of(pages.launches)
    assert (first.name, first.launches) == ("k(int, int)", 4)
    assert first.time_ms == pytest.approx(8e-3)
    assert first.metrics[DRAM] == 20
    assert second.launches == 4
    # Without the process columns, as other versions print it.
    bare = [line.replace('"Process ID","Process Name","Host Name",', "").replace('"7","app","127.0.0.1",', "")
            for line in (header, *rows)]  # fmt: skip
    assert len(read(*bare).launches) == 2


@pytest.mark.parametrize(
    "text",
    [
        "Kernel ID,Kernel Name,Duration (ns),L2 Hit Rate (%)\n0,flash_fwd,1234,100.229\n",
        "a,b\n1,2\n",
        "",
        "hello\n",
        '{"kernels": []}',
    ],
)
def test_what_is_no_page_is_refused_in_one_line(text: str) -> None:
    """C13: friendly unquoted columns that some script wrote are not ncu's."""
    with pytest.raises(NcuFault, match="not an ncu CSV") as caught:
        parse_pages(text)
    assert str(caught.value).startswith("not an ncu CSV")
    assert "\n" not in str(caught.value)


def test_a_header_alone_has_no_kernel() -> None:
    with pytest.raises(NcuFault, match="without a single kernel"):
        parse_pages(F2 + "\n")


@pytest.mark.parametrize("page", ["softmax_two_full_raw.csv", "softmax_two_full_details.csv"])
@pytest.mark.parametrize("lost", [500, 60])
def test_a_page_that_was_cut_off_is_not_read_as_if_it_were_whole(page: str, lost: int) -> None:
    """A copy that broke off would lose a kernel in silence, and the shares of the others would be wrong."""
    with pytest.raises(NcuFault, match="cut off"):
        parse_pages((DATA / page).read_bytes().rstrip()[:-lost])


def test_a_page_that_a_spreadsheet_saved_again() -> None:
    """Quotes only where they are needed."""
    header = F2.replace('"', "")
    row = f'0,7,app,127.0.0.1,"{SIGNATURE}",1,7,"(256, 1, 1)","(64, 2, 1)",0,9.0,S,Duration,us,"1,000",,,,,'
    assert read(header, row).launches[0].metrics == {DURATION: pytest.approx(1e-3)}


def test_a_hit_rate_above_100_is_100_and_said() -> None:
    """C13: counters of different passes; nothing above 100% may reach a load or a prompt."""
    rows = [f1("L2 Hit Rate", "%", "100.229"), f1("derived__pct_occupancy", "%", "5706")]
    pages = read(F1, *rows)
    assert pages.launches[0].metrics["lts__t_sector_hit_rate.pct"] == 100
    assert pages.launches[0].clamped == ("lts__t_sector_hit_rate.pct",)
    assert pages.launches[0].metrics["derived__pct_occupancy"] == 5706, "what is no share is left alone"
    assert "lts__t_sector_hit_rate.pct" in profile_of(pages).note


def test_launches_of_one_kernel_and_kernels_of_one_call_are_weighted_by_duration() -> None:
    """A short clean-up kernel must not count as much as the one that takes the time."""
    rows = []
    for number, (name, microseconds, percent, count) in enumerate(
        [("long", "80", "50", "5"), ("long", "10", "100", "7"), ("short", "10", "0", "1")]
    ):
        for metric, unit, value in (("Duration", "us", microseconds), ("DRAM Throughput", "%", percent),
                                    ("smsp__inst_executed.sum", "inst", count)):  # fmt: skip
            rows.append(f2(metric, unit, value, kernel=name, number=number))
    kernels = kernels_of(read(F2, *rows).launches)
    assert [(k.name, k.launches) for k in kernels] == [("long", 2), ("short", 1)]
    assert [k.share for k in kernels] == pytest.approx([0.9, 0.1])
    assert kernels[0].time_ms == pytest.approx(0.09)
    assert kernels[0].metrics[DRAM] == pytest.approx((80 * 50 + 10 * 100) / 90)
    assert kernels[0].metrics["smsp__inst_executed.sum"] == 12
    together = overall(kernels)
    assert together[DRAM] == pytest.approx(50)
    assert together["smsp__inst_executed.sum"] == 13
    assert together[DURATION] == pytest.approx(100e-6)
