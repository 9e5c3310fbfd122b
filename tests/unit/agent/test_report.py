"""What a person reads in the morning: `summary.md` and `report.html` say the same, and no more than was measured."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from agent import events as ev
from agent.errors import ConfigError
from agent.report import fmt
from agent.report import page as page_module
from agent.report.build import write_reports
from agent.report.html import render_html
from agent.report.summary import render_summary
from agent.report.waterfall import is_zoomed, waterfalls
from agent.state_fold import fold
from profiling.findings import Work
from profiling.sanitizers.findings import Finding, SanitizerReport, Unavailable
from tests.unit.agent import event_log, gpu_log

SOURCES = {"baseline": "int a;\nint same;\n", "best": "int b; // \u202ereversed\nint same;\n"}
VOID = {"meta", "link", "br", "hr", "img", "input"}


def summary(events: list[ev.AnyEvent], noise: float = 0.02) -> str:
    given = [e.model_copy(update={"noise": noise}) if isinstance(e, ev.RunStarted) else e for e in events]
    return render_summary(fold(given), given)


def page(events: list[ev.AnyEvent]) -> str:
    return render_html(fold(events), events, SOURCES)


class Page(HTMLParser):
    """Text, tags and attributes of a page; closing tags must match."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.tags: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def row(text: str, *starts: str) -> str:
    """The one table row that begins with these cells."""
    (line,) = (line for line in text.splitlines() if line.startswith("| " + " | ".join(starts) + " |"))
    return line


def test_headline_states_the_gain_with_its_interval() -> None:
    assert "**3.98× [3.91, 4.05] as fast as the baseline.**" in summary(event_log.whole_run())


def test_a_gain_within_noise_is_never_a_headline() -> None:
    events = event_log.stamped([*event_log.opening(), *event_log.ending((1.03, 1.015, 1.05))])
    assert "No significant improvement: 1.030× [1.015, 1.050] does not clear 1.020×" in summary(events)


def test_the_noise_that_the_run_was_given_decides() -> None:
    events = event_log.stamped([*event_log.opening(), *event_log.ending((1.03, 1.015, 1.05))])
    assert "1.030× [1.015, 1.050] as fast as the baseline" in summary(events, noise=0.001)
    noisy = event_log.stamped(
        [
            *event_log.opening(),
            ev.AaMeasured(key="1", spread=0.04, median_ms=400.0),
            *event_log.ending((1.03, 1.015, 1.05)),
        ]
    )
    assert "does not clear 1.040×" in summary(noisy, noise=0.001)


def test_a_run_that_is_not_over_says_so_and_claims_nothing() -> None:
    events = event_log.stamped(
        [*event_log.opening(), *event_log.first_iteration(), ev.Paused(key="0", status="interrupted", reason="SIGINT")]
    )
    text = summary(events)
    assert "has not been compared with the baseline yet" in text
    assert "The run is not over (interrupted: SIGINT)." in text
    assert "| speedup over baseline | – |" in text


def test_a_run_that_changed_machines_says_so_and_reads_the_last_comparison() -> None:
    moved = [
        ev.SessionStarted(key="1", device_id="f" * 16, environment=event_log.ENVIRONMENT),
        event_log.compared("final@1", 0, "baseline", "iter1/b2", (500.0, 250.0), (2.0, 1.9, 2.1)),
    ]
    text = summary(event_log.stamped([*event_log.opening(), *event_log.first_iteration(), *moved]))
    assert "went on on another device" in text
    assert "| baseline | 500.0 ms |" in text


def test_a_final_comparison_that_failed_is_no_claim() -> None:
    events = event_log.whole_run()
    final = next(e for e in events if isinstance(e, ev.Compared) and e.key == "final")
    broken = final.model_dump(mode="json")
    broken["outcome"] = {"kind": "rejected", "stage": "verify", "reason": "best is wrong at C[0]", "evidence": ""}
    events[events.index(final)] = ev.EVENT.validate_python(broken)
    assert "No claim: the final comparison failed (best is wrong at C[0])." in summary(events)


@pytest.mark.parametrize("count", range(len(event_log.whole_run()) + 1))
def test_a_run_killed_after_any_event_still_reports(count: int) -> None:
    assert "## Environment and trust" in summary(event_log.whole_run()[:count])


@pytest.mark.parametrize("count", range(1, len(event_log.whole_run()), 9))
def test_its_page_has_no_chart_of_infinite_size(count: int) -> None:
    charts = " ".join(re.findall(r"<svg.*?</svg>", page(event_log.whole_run()[:count]), re.S))
    assert not re.search("Infinity|NaN|undefined", charts)


def test_rates_floor_and_reference_come_from_measured_work() -> None:
    text = summary(event_log.whole_run())
    assert "| baseline rate | 2.513 GFLOP/s, 0.01508 GB/s |" in text
    assert "| best rate | 10.00 GFLOP/s, 0.06000 GB/s |" in text
    assert "| speedup over reference | 8.00× |" in text
    assert "| floor | 25.00 ms |" in text
    assert "| best, share of the floor's speed | 12.5% |" in text


def test_tables_hold_timeline_branches_drift_attribution_and_frontier() -> None:
    text = summary(event_log.whole_run())
    timeline = row(text, "1", "memory.cache_blocking, compute.fma", "b2", "200.0 ms")
    assert timeline.endswith("| 4.00× [3.90, 4.10] | accepted | 3.90 exceeds 1.020 |")
    assert row(text, "2", "b1", "suspect", "9.000 ms", "–", "–", "0").count("9.000 ms is under the floor") == 1
    assert row(text, "1", "b1", "pass", "250.0 ms", "3.20×", "+25.0%", "0")
    drift = row(text, "2", "200.0 ms", "25.00 ms", "87.5%", "0.88", "0.41", "0.22", "compute")
    assert drift.endswith("| compute 1, memory 2, latency 0 |")
    assert row(text, "1", "compute.fma", "effective", "+150.0 ms [140.0, 161.0]", "verified", "switch")
    assert row(text, "1", "memory.cache_blocking", "unverified", "–", "none", "rewrite")
    assert row(text, "1", "compute.fma", "verified", "vfmadd 0 → 96")
    assert row(text, "1", "compute.fma", "miss_rate 0.91", "a made-up reason")
    assert "    vfmadd231ps ymm0, ymm1, ymm2" in text
    assert row(text, "1", "b1", "250.0 ms", "+25.0%")
    assert "Iteration 1: gain +600.0 ms, 450.0 ms of it explained by no method alone; switch audit: all off" in text


def test_memory_cost_and_trust_are_told() -> None:
    text = summary(event_log.whole_run())
    for expected in (
        "| 1 | blocked | memory.prefetch | 0.970× | made 3% slower on this machine |",
        "| FMA pays once tiles fit the first cache. |",
        "$0.50 for 5 calls; tokens: input 5.0k, output 10.0k, cache read 2.5k, cache write 0; "
        "33.3% of the input came from the cache.",
        "| branch | 4 | 6.0k | 2.0k | 8.0k | $0.40 |",
        "| device | Imaginary CPU, 4 usable cores |",
        "| versions | g++: g++ (made up) 12.2.0; perf: not installed |",
        "| counters | counted (perf is not installed) |",
        "| sandbox layers in force | network namespace |",
        "| sandbox layers missing | seccomp |",
        "| A/A spread | 1.3% |",
        "| known exploits rejected at the start | no_op; after_return left out: does not build |",
        "| where ceilings come from | method: copy and FMA loops; date: 2026-11-29 |",
        "M=127, N=65 (baseline is wrong at C[3])",
        "- clock frequency varied by 3%",
        "prompt differs from the recorded one",
    ):
        assert expected in text


def test_what_was_lost_with_a_node_and_done_again_is_told() -> None:
    """A cluster that loses every second node would look like one that works."""
    tasks = ("evaluation of build 0a1b2c3d", "build of b0/kernel.cu", "evaluation of build 4e5f6071")
    retried = [
        ev.TaskRetried(key=str(at), task=task, place="the Ray cluster", reason="node died")
        for at, task in enumerate(tasks)
    ]
    text = summary([*event_log.whole_run(), *event_log.stamped(retried)])
    assert "| evaluations lost and done again | 2 at the Ray cluster: node died |" in text
    assert "| builds lost and done again | 1 at the Ray cluster: node died |" in text
    assert "lost and done again" not in summary(event_log.whole_run())


def test_what_ran_under_sanitizers_and_what_did_not_is_told() -> None:
    finding = Finding("memcheck", "Invalid read", "Invalid read, 1 bytes after A", "kernel.cu:7", 3)
    missing = Unavailable("racecheck", "the call took longer than 30 s under it")
    ran = SanitizerReport(("initcheck", "synccheck"), (finding,), (missing,))
    events = event_log.stamped(
        [*event_log.opening(), ev.Sanitized(key="iter1/sanitized", iteration=1, kernel="iter1/b0", report=ran)]
    )
    text = summary(events)
    assert "memcheck: Invalid read, 1 bytes after A at kernel.cu:7 (3 times)" in text
    assert "clean: initcheck, synccheck" in text
    assert "unavailable: racecheck" in text
    assert "no kernel ran under them" in summary(event_log.stamped(event_log.opening()))


def test_recorded_answers_are_never_passed_off_as_live_ones() -> None:
    assert "The model's answers were recorded" in summary(event_log.whole_run("replay"))
    assert "recorded;" not in summary(event_log.whole_run("anthropic"))


def test_an_unknown_price_is_a_dash_not_zero_dollars() -> None:
    events = event_log.whole_run()
    unknown = [
        ev.EVENT.validate_python(
            e.model_dump(mode="json") | {"reply": e.model_dump(mode="json")["reply"] | {"usd": None}}
        )
        if isinstance(e, ev.ReplyReceived)
        else e
        for e in events
    ]
    text = summary(unknown)
    assert "| cost | – |" in text
    assert "$0" not in text


def test_text_of_a_model_cannot_break_a_markdown_table() -> None:
    text = summary(event_log.whole_run())
    assert "\\<script\\>alert(1)\\</script\\> \\| \\*\\*bold\\*\\*  [31mred next line" in text
    rows = [line for line in text.splitlines() if line.startswith("| 1 | b0 |")]
    assert len(re.findall(r"(?<!\\)\|", rows[0])) == 11


def test_page_is_well_formed_and_fetches_nothing() -> None:
    html = page(event_log.whole_run())
    parsed = Page(html)
    assert parsed.open == []
    assert not re.search(r"(?i)\b(https?|ftp|wss?):|url\((?!#)|@import", html)
    names = [value for name, value in parsed.attributes if name == "id"]
    assert len(names) == len(set(names))
    for name, value in parsed.attributes:
        assert name != "src"
        assert not name.startswith("on")
        if name in ("href", "xlink:href"):
            assert value is not None
            assert value.startswith(("#", "data:"))


def test_no_script_but_our_own_can_run_in_a_page() -> None:
    html = page(event_log.whole_run())
    (script,) = re.findall(r"<script>(.*?)</script>", html, re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', html)
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none';")
    assert "connect-src 'none'" in policy
    assert script == (Path(page_module.__file__).parent / "templates" / "page.js").read_text()


def test_page_says_what_the_summary_says() -> None:
    events = event_log.whole_run()
    shown = Page(page(events)).text
    # What the page says in its own way: what stands there large, and lists of pairs, which need no head.
    said = {
        "what": "",
        "value": "",
        "speedup over baseline": "3.98× as fast as the baseline",
        "3.98× [3.91, 4.05]": "3.98× as fast as the baseline, 95% interval [3.91, 4.05]",
    }
    for line in summary(events).splitlines():
        if not line.startswith("|") or set(line) <= set("|-: "):
            continue
        for cell in re.split(r"(?<!\\)\|", line)[1:-1]:
            words = re.sub(r"\\(.)", r"\1", cell).strip()
            assert "\x1b" not in words
            assert said.get(words, words) in shown or "alert(1)" in words


def test_text_of_a_model_cannot_become_markup_in_the_page_or_its_charts() -> None:
    events = event_log.whole_run()
    spiked = [
        ev.EVENT.validate_json(e.model_dump_json().replace("latency.unroll", "<img src=x onerror=alert(1)>"))
        if not isinstance(e, ev.PlanDecided)  # a plan with such an id is refused
        else e
        for e in events
    ]
    parsed = Page(page(spiked))
    assert "img" not in parsed.tags
    assert parsed.text.count("<img src=x onerror=alert(1)>") >= 2
    assert "\x1b" not in page(spiked)


def test_charts_show_every_branch_and_every_known_attribution() -> None:
    html = page(event_log.whole_run())
    sections = re.findall(r'<section id="([\w-]+)" class="card flows">(.*?)</section>', html, re.S)
    wide = {
        name: text.split('<div class="wide">')[1].split("</div>")[0] for name, text in sections if "<figure>" in text
    }
    assert set(wide) == {"timeline", "roofline", "drift", "attribution"}
    links = re.findall(r'href="#(iter\d-b\d)"', wide["timeline"])
    assert sorted(links) == ["iter1-b0", "iter1-b1", "iter1-b2", "iter1-b3", "iter2-b0", "iter2-b1"]
    for anchor in links:
        assert f'<details class="branch" id="{anchor}">' in html
    assert "compute.fma" in wide["attribution"]
    assert "latency.unroll" in html
    assert "cache_blocking" not in wide["attribution"]  # unknown is no bar of length zero


def test_a_task_without_known_operations_is_told_by_its_bytes() -> None:
    events = [
        e.model_copy(update={"work": Work(flops=None, bytes=1.2e7)}) if isinstance(e, ev.TaskChecked) else e
        for e in event_log.whole_run()
    ]
    text = summary(events)
    assert row(text, "baseline", "796.0 ms", "–", "0.01508 GB/s", "0.1%")
    assert row(text, "iteration 1", "200.0 ms", "–", "0.06000 GB/s", "0.3%")
    assert 'id="roofline"' in page(events)


def test_the_roofline_stands_on_counted_traffic_only_where_every_kernel_has_it() -> None:
    counted = gpu_log.whole_run()
    text = summary(counted)
    assert "memory traffic as the profiler counted it" in text
    assert row(text, "baseline", "25.62 ms", "7.203 GB", "19.1", "5.365 TFLOP/s", "8.4%")
    assert row(text, "iteration 2", "2.253 ms", "1.249 GB", "110", "61.00 TFLOP/s", "95.9%")
    profiled = [e for e in counted if isinstance(e, ev.Profiled)]
    blind = [e for e in counted if e is not profiled[-1]]
    text = summary(blind)
    assert "the least memory traffic of the task, since none was counted for every kernel" in text
    assert row(text, "iteration 2", "2.253 ms", "–", "683", "61.00 TFLOP/s", "95.9%")


def test_a_waterfall_reaches_the_champion_and_names_what_no_method_explains() -> None:
    (_, first), (_, second), (_, third) = waterfalls(gpu_log.whole_run())
    assert [s.label for s in first] == [
        "best before",
        "compute.ilp_unroll_register_tile",
        "memory.tiling_smem",
        "memory.vectorized_access",
        "not attributed",
        "champion",
    ]
    assert first[1].begin == first[0].end == 25.62
    assert [first[1].low, first[1].high] == pytest.approx([25.62 - 13.24, 25.62 - 13.23])
    assert first[4].end == first[5].end == 2.955
    assert second[3].label == "overlap"
    assert second[3].end > second[3].begin
    assert [is_zoomed(steps) for steps in (first, second, third)] == [False, False, True]


def test_page_has_a_dark_form_and_fits_a_phone() -> None:
    html = page(event_log.whole_run())
    assert "prefers-color-scheme: dark" in html
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in html
    assert html.count('<div class="narrow"') == html.count('<div class="wide"') == 6


def test_the_change_from_baseline_to_best_is_shown_and_hides_nothing() -> None:
    html = page(event_log.whole_run())
    lines = [Page(line).text for line in re.findall(r'<tr class="(?:added|removed|same)">.*?</tr>', html)]
    assert lines == ["1 - int a ;", "1 + int b ; // \ufffdreversed", "2 2 int same ;"]
    assert "1 lines added, 1 removed" in html


def test_reports_are_written_from_the_folder_alone(tmp_path: Path) -> None:
    write_run(tmp_path)
    write_reports(tmp_path)
    assert "| noise setting | 2.0% |" in (tmp_path / "summary.md").read_text()
    html = (tmp_path / "report.html").read_text()
    assert "1 lines added, 1 removed" in html
    assert sorted(p.name for p in tmp_path.glob("*.tmp")) == []


def test_a_folder_that_is_no_run_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is this a run folder"):
        write_reports(tmp_path)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "–"), (0.0, "0 ms"), (12.3, "12.30 ms"), (0.0456, "45.60 µs"), (9999.96, "10000 ms"), (12345.0, "12.35 s")],
)
def test_times_read_with_four_digits_and_a_unit(value: float | None, shown: str) -> None:
    assert fmt.duration(value) == shown


def test_a_metric_of_many_digits_is_shown_in_thousands_of_millions() -> None:
    assert [fmt.quantity(v) for v in (0.0, 64.35, 8448, 1.5728e7, 2.991e10)] == [
        "0", "64.35", "8448", "15.73 M", "29.91 G"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ((None, None, None), "–"),
        ((3.21, 3.05, 3.4), "3.21× [3.05, 3.40]"),
        ((1.0214, 1.011, 1.0399), "1.021× [1.011, 1.040]"),
        ((123.4, 120.0, 130.0), "123× [120, 130]"),
    ],
)
def test_speedups_keep_the_digits_that_decide(values: tuple[float | None, ...], shown: str) -> None:
    assert fmt.speedup(*values) == shown


def write_run(folder: Path) -> None:
    """A run folder with what the reports read."""
    log = "".join(event.model_dump_json() + "\n" for event in event_log.whole_run())
    (folder / "events.jsonl").write_text(log)
    for name, text in SOURCES.items():
        (folder / name).mkdir()
        (folder / name / "kernel.cpp").write_text(text)
