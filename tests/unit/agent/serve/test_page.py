"""The served page in a real browser: clicks, live while a real process works, nothing asked of anybody else.

Screenshots are kept in build/screenshots, to be looked at.
"""

from __future__ import annotations

import fcntl
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from agent.report.build import write_reports
from tests.chromium import SIZES, Scheme, Seen, visit
from tests.unit.agent import event_log
from tests.unit.agent.serve.serving import Server, serving
from tests.writer import Writer, all_events, write_run


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of several tasks and days, a night, and folders that are half written."""
    runs = tmp_path_factory.mktemp("served") / "runs"
    for number, (task, speedup) in enumerate((("gemm", 3.98), ("softmax", 1.62), ("layernorm", 1.003), ("gemm", 7.21))):
        events = all_events(f"run_2026113{number}_010000")
        ending = event_log.ending((speedup, speedup - 0.05, speedup + 0.05))
        started = events[0].model_copy(update={"task": task})
        folder = write_run(runs / f"run_2026113{number}_010000", [started, *events[1:-3], *ending])
        config = {"search": {"iterations": 2, "branches": 4 + number}, "budget": {"minutes": 30}}
        (folder / "config.yaml").write_text(json.dumps(config))
        kernel = event_log.HOSTILE.replace("\x1b", "") + f"\nvoid solve() {{ /* {number} */ }}\n"
        (folder / "best" / "kernel.cpp").write_text(kernel)
    write_reports(runs / "run_20261130_010000")
    (runs / "run_20261129_010000").mkdir()
    damaged = write_run(runs / "run_20261128_010000")
    (damaged / "events.jsonl").write_text((damaged / "events.jsonl").read_text()[:4000] + "\nrubbish\n")
    stopped = write_run(runs / "run_20261127_010000", all_events("run_20261127_010000")[:30])
    (stopped / "report.html").unlink()
    night = runs / "night_20261130_000000"
    night.mkdir()
    (night / "night.jsonl").write_text(
        '{"type":"night_started","at":"2026-11-30T00:00:00+00:00","names":["gemm","softmax"]}\n'
        '{"type":"tried","task":0}\n{"type":"tried","task":1}\n'
        '{"type":"night_ended","at":"2026-11-30T05:00:00+00:00","exit_code":3}\n'
    )
    (night / "index.html").write_text(
        "<!doctype html><title>night</title><h1>The night</h1><a href='../run_20261130_010000/report.html'>gemm</a>"
    )
    return runs


@pytest.fixture(scope="module")
def server(root: Path) -> Iterator[Server]:
    with serving(root) as running:
        yield running


def all_well(seen: Seen, server: Server) -> None:
    """Nothing on the console, and nothing asked of anybody else."""
    assert seen.complaints == []
    assert all(url.startswith((server.url, "data:")) for url in seen.requests), seen.requests


def rows(seen: Seen) -> list[str]:
    """The names of the runs shown, from top to bottom."""
    shown = seen.page.locator("#runs tbody tr:visible")
    return [str(row.get_attribute("data-name")).removeprefix("run_")[:8] for row in shown.all()]


@pytest.mark.parametrize("size", list(SIZES))
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_every_screen(browser: Browser, server: Server, root: Path, size: str, scheme: Scheme) -> None:
    pages = {
        "runs": "/",
        "run": "/run/run_20261130_010000",
        "stopped": "/run/run_20261127_010000",
        "compare": "/compare?a=run_20261130_010000&b=run_20261133_010000",
    }
    with visit(browser, server.url, size, scheme) as seen:
        nights = seen.page.locator(".scroll", has=seen.page.locator("table.nights"))
        assert nights.evaluate("node => node.scrollWidth <= node.clientWidth")
        for name, target in pages.items():
            seen.page.goto(server.url + target)
            seen.keep(f"serve-{name}-{size}-{scheme}")
            assert seen.page.evaluate("document.documentElement.scrollWidth") == SIZES[size][0], name
            assert seen.cut_off() == [], name
            dark = seen.page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(245, 246, 248)"
            assert dark == (scheme == "dark")
        all_well(seen, server)


def test_runs_are_searched_filtered_and_sorted_and_a_reload_keeps_it(browser: Browser, server: Server) -> None:
    with visit(browser, server.url) as seen:
        page = seen.page
        assert rows(seen)[-1] == "20261129", "what never began comes last"
        page.get_by_role("searchbox", name="Search runs").fill("gemm 3.98")
        assert rows(seen) == ["20261130"]
        assert page.locator("#count").inner_text() == "1 of 7"
        page.get_by_role("searchbox", name="Search runs").fill("nothing like it")
        assert page.get_by_text("No run matches.").is_visible()
        page.get_by_role("searchbox", name="Search runs").fill("")
        page.get_by_role("button", name="finished", exact=True).click()
        page.get_by_role("button", name="speedup over baseline").click()
        assert rows(seen) == ["20261133", "20261130", "20261131", "20261132"]
        assert page.locator("th[aria-sort]").get_attribute("aria-sort") == "descending"
        page.get_by_role("button", name="speedup over baseline").click()
        assert rows(seen) == ["20261132", "20261131", "20261130", "20261133"]
        page.reload()
        assert rows(seen) == ["20261132", "20261131", "20261130", "20261133"]
        assert page.get_by_role("button", name="finished", exact=True).get_attribute("aria-pressed") == "true"
        all_well(seen, server)


def test_two_runs_are_chosen_and_compared(browser: Browser, server: Server) -> None:
    with visit(browser, server.url) as seen:
        page = seen.page
        for name in ("run_20261131_010000", "run_20261130_010000", "run_20261133_010000"):
            page.get_by_label(f"Compare {name}").check()
        assert not page.get_by_label("Compare run_20261131_010000").is_checked(), "the first of three is let go"
        seen.keep("serve-chosen")
        page.get_by_role("link", name="Compare", exact=True).click()
        page.wait_for_url("**/compare?**")
        text = page.locator("main").inner_text()
        assert "3.98× [3.93, 4.03] as fast as the baseline." in text
        assert "7.21× [7.16, 7.26] as fast as the baseline." in text
        assert page.locator("figure svg:visible").count() == 1
        settings = page.locator("section", has=page.locator("#config")).locator("tbody tr")
        assert settings.all_inner_texts() == ["search.branches\t4\t7"]
        diff = page.locator("pre.diff").inner_text()
        assert "-void solve() { /* 0 */ }" in diff
        assert "+void solve() { /* 3 */ }" in diff
        assert "<script>alert(1)</script>" in diff
        all_well(seen, server)


def test_a_phone_tells_why_a_branch_fell(browser: Browser, server: Server) -> None:
    with visit(browser, f"{server.url}/run/run_20261127_010000", "phone") as seen:
        wrong = seen.page.locator("table.branches tr", has_text="b3")
        assert "C[5] is 1.0, not 2.0" in wrong.inner_text()
        all_well(seen, server)


def test_a_report_opens_and_stands_alone(browser: Browser, server: Server) -> None:
    with visit(browser, f"{server.url}/run/run_20261130_010000") as seen:
        with seen.page.expect_popup() as opened:
            seen.page.get_by_role("link", name="Report").click()
        report = opened.value
        report.wait_for_url("**/report.html")  # until then it is an empty page, which cannot be loaded anew
        complaints: list[str] = []
        report.on("console", lambda message: complaints.append(message.text))
        report.reload()
        assert "as fast as the baseline" in report.locator("body").inner_text()
        assert report.evaluate("origin") == "null", "a page somebody put there reads nothing else of what is served"
        report.screenshot(path="build/screenshots/serve-report.png")
        assert complaints == []
        all_well(seen, server)


def test_nights_lead_to_their_page(browser: Browser, server: Server) -> None:
    with visit(browser, server.url) as seen:
        night = seen.page.locator("table.nights tbody tr")
        assert night.inner_text().split("\t") == [
            "night_20261130_000000", "finished exit code 3", "2 of 2", "2026-11-30 00:00", "2026-11-30 05:00"
        ]  # fmt: skip
        with seen.page.expect_popup() as opened:
            night.get_by_role("link").click()
        assert opened.value.locator("h1").inner_text() == "The night"
        opened.value.get_by_role("link", name="gemm").click()
        opened.value.wait_for_url(f"{server.url}/files/run_20261130_010000/report.html")
        assert "as fast as the baseline" in opened.value.locator("body").inner_text()


def test_keys_alone_are_enough(browser: Browser, server: Server) -> None:
    with visit(browser, server.url) as seen:
        page = seen.page
        page.get_by_role("button", name="speedup over baseline").focus()
        page.keyboard.press("Enter")
        assert rows(seen)[0] == "20261133"
        page.get_by_label("Compare run_20261133_010000").focus()
        page.keyboard.press("Space")
        assert page.locator("#picked").is_visible()
        page.locator("#runs tbody a").first.focus()
        page.keyboard.press("Enter")
        page.wait_for_url("**/run/run_20261133_010000")


def test_a_run_is_followed_live_while_its_process_works(browser: Browser, server: Server, root: Path) -> None:
    folder = root / "run_20261201_010000"
    try:
        with Writer(folder) as writer, visit(browser, server.url) as seen:
            page = seen.page
            card = page.locator(".card.now")
            writer.append_until("aa_measured")
            expect(card).to_contain_text("made_up_gemm")
            expect(card.locator(".stage")).to_contain_text("profiling the best kernel")
            page.get_by_role("searchbox", name="Search runs").fill("made_up")
            writer.append_until("branch_written")
            expect(card.locator("tbody tr")).to_have_count(4)
            assert page.get_by_role("searchbox", name="Search runs").input_value() == "made_up"
            assert page.evaluate("document.activeElement.id") == "search", "typing goes on while the page changes"
            writer.append_until("evaluated")
            writer.append(1)
            seen.keep("serve-live-runs")
            expect(card.locator("tbody tr").nth(1)).to_contain_text("250.0 ms")
            expect(card.locator("tbody tr").nth(2).locator(".busy")).to_have_count(1)
            before = card.locator("[data-ticks]").first.inner_text()
            expect(card.locator("[data-ticks]").first).not_to_have_text(before)
            page.goto(f"{server.url}/run/{folder.name}")
            expect(page.locator(".story li").first).to_contain_text("Wrote")
            writer.append_until("iteration_ended")
            expect(page.locator(".story li").first).to_contain_text("Accepted")
            expect(page.locator(".story li").first).to_contain_text("b2 200.0 ms")
            seen.keep("serve-live-run")
            writer.end()
            expect(page.locator(".masthead .badge")).to_have_text("finished")
            expect(page.locator(".headline")).to_contain_text("3.98×")
            all_well(seen, server)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_a_killed_run_says_how_to_go_on(browser: Browser, server: Server, root: Path) -> None:
    folder = root / "run_20261202_010000"
    try:
        with Writer(folder) as writer, visit(browser, f"{server.url}/run/run_20261130_010000") as seen:
            writer.append_until("plan_decided")
            seen.page.goto(f"{server.url}/run/{folder.name}")
            expect(seen.page.locator(".masthead .badge")).to_have_text("running")
            writer.kill()
            expect(seen.page.locator(".masthead .badge")).to_have_text("stopped")
            expect(seen.page.locator(".notice").last).to_contain_text(f"python -m agent resume {folder}")
            all_well(seen, server)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_a_night_that_is_on_shows_so(browser: Browser, server: Server, root: Path) -> None:
    log = root / "night_20261130_000000" / "night.jsonl"
    whole = log.read_text()
    try:
        with (root / ".nightly.lock").open("wb") as lock, visit(browser, server.url) as seen:
            fcntl.flock(lock, fcntl.LOCK_EX)
            log.write_text("".join(whole.splitlines(keepends=True)[:2]))
            expect(seen.page.locator("table.nights tbody tr")).to_contain_text(re.compile(r"running\s+1 of 2"))
    finally:
        log.write_text(whole)
        (root / ".nightly.lock").unlink()


def test_a_server_that_is_gone_is_told_of(browser: Browser, root: Path) -> None:
    with serving(root) as own, visit(browser, own.url) as seen:
        assert not seen.page.locator("#offline").is_visible()
        own.process.terminate()
        own.process.wait()
        expect(seen.page.locator("#offline")).to_be_visible()
