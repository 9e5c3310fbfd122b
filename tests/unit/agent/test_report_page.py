"""`report.html` in a real browser: on a desk and on a phone, by day and by night, with a mouse and with keys."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from agent import events as ev
from agent.report.build import write_reports
from agent.report.html import render_html
from agent.state_fold import fold
from tests.chromium import SIZES, Scheme, visit
from tests.unit.agent import event_log, gpu_log

SCROLLS = """[...document.querySelectorAll(".scroll:not(.diff)")].filter(node => node.scrollWidth > node.clientWidth)
  .map(node => node.getAttribute("aria-label"))"""
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of a run on a GPU."""
    folder = tmp_path_factory.mktemp("run")
    gpu_log.write_run(folder)
    write_reports(folder)
    return (folder / "report.html").as_uri()


@pytest.mark.parametrize("size", list(SIZES))
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_every_screen_and_asks_nobody_for_anything(
    browser: Browser, report: str, size: str, scheme: Scheme
) -> None:
    with visit(browser, report, size, scheme) as seen:
        seen.keep(f"report-{size}-{scheme}")
        assert seen.requests == [report]
        assert seen.complaints == []
        assert seen.page.evaluate("document.documentElement.scrollWidth") == SIZES[size][0]
        assert seen.cut_off() == []
        if size == "desk":  # where no table has to be pushed to be read
            assert seen.page.evaluate(SCROLLS) == []
        background = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (background == "rgb(245, 246, 248)") == (scheme == "light")
        # One of the two drawings of each chart, the one made for this width.
        shown = seen.page.locator("figure svg:visible")
        assert shown.count() == seen.page.locator("figure").count() >= 5
        for chart in shown.all():
            caption = chart.locator("xpath=ancestor::figure//figcaption").inner_text()
            assert f"{chart.get_attribute('aria-label')}." == caption
            box = chart.bounding_box()
            assert box is not None
            assert box["x"] + box["width"] <= SIZES[size][0]


@pytest.mark.parametrize("size", list(SIZES))
def test_a_mark_leads_to_its_branch_which_opens(browser: Browser, report: str, size: str) -> None:
    with visit(browser, report, size) as seen:
        branch = seen.page.locator("#iter2-b2")
        assert not branch.locator(".facts").is_visible()
        seen.page.locator("#timeline figure svg:visible a[href='#iter2-b2']").click()
        branch.locator(".facts").wait_for(state="visible")
        assert "9 of 9 calls right at 3 shapes" in branch.inner_text()
        assert branch.locator("summary").first.evaluate("node => node === document.activeElement")
        branch.get_by_text("Its source").click()
        assert "RC_TF32_EMULATION_3XTF32_BF16X6" in branch.locator("pre").inner_text()
        seen.keep(f"report-branch-{size}")
        assert seen.complaints == []


def test_keys_reach_a_mark_show_its_tip_and_follow_it(browser: Browser, report: str) -> None:
    with visit(browser, report) as seen:
        mark, tip = seen.page.locator("#timeline figure svg:visible a[href='#iter3-b2']"), seen.page.locator("#tip")
        mark.focus()
        assert "iteration 3, b2: suspect" in tip.inner_text()
        seen.page.keyboard.press("Escape")
        assert not tip.is_visible()
        seen.page.keyboard.press("Enter")
        seen.page.locator("#iter3-b2 .facts").wait_for(state="visible")
        assert "under the floor" in seen.page.locator("#iter3-b2").inner_text()


def test_a_tip_says_what_a_bar_or_a_kernel_is(browser: Browser, report: str) -> None:
    with visit(browser, report) as seen:
        tip = seen.page.locator("#tip")
        for chart, mark, said in (
            ("attribution", "memory.tiling_smem", "without it +2.204 ms [2.200, 2.207]"),
            ("roofline", "iteration 1:", "of the roof above it"),
            ("drift", "iteration 1, memory", "headroom 0.92"),
        ):
            shape = seen.page.locator(f"#{chart} svg:visible [role=graphics-symbol][aria-label^='{mark}']").first
            shape.hover(force=True)
            assert said in tip.inner_text()
        assert seen.complaints == []


def test_the_rail_leads_through_the_page_and_follows_it(browser: Browser, report: str) -> None:
    with visit(browser, report) as seen:
        links = seen.page.locator(".rail a")
        for href in [link.get_attribute("href") for link in links.all()]:
            assert href is not None
            assert seen.page.locator(href).count() == 1
        seen.page.locator(".rail a[href='#cost']").click()
        seen.page.locator(".rail a[href='#cost'][aria-current]").wait_for()


def test_on_paper_everything_but_whole_sources_is_open(browser: Browser, report: str) -> None:
    with visit(browser, report, scheme="dark") as seen:
        seen.page.emulate_media(media="print")
        seen.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        assert not seen.page.locator(".rail").is_visible()
        assert seen.page.locator("#iter1-b0 .facts").is_visible()
        assert not seen.page.locator("#iter1-b0 pre").is_visible()
        # Dark ink whatever the screen was like.
        assert seen.page.evaluate("getComputedStyle(document.body).color") == "rgb(22, 26, 32)"
        seen.page.evaluate("window.dispatchEvent(new Event('afterprint'))")
        assert not seen.page.locator("#iter1-b0 .facts").is_visible()


def test_what_a_model_or_a_kernel_says_stays_text(browser: Browser, tmp_path: Path) -> None:
    attack = "<img src=x onerror=alert(1)><svg onload=alert(2)></script><script>alert(3)</script>\"'>"
    events = [
        e.model_copy(update={"source": f"// {attack}\n"}) if isinstance(e, ev.BranchWritten) else e
        for e in event_log.whole_run()
    ]
    events = [
        e.model_copy(update={"reason": attack}) if isinstance(e, ev.ChampionDecided | ev.IterationEnded) else e
        for e in events
    ]
    path = tmp_path / "report.html"
    path.write_text(render_html(fold(events), events, {"baseline": "int a;", "best": f"int b; // {attack}"}))
    with visit(browser, path.as_uri()) as seen:
        assert seen.complaints == []
        assert seen.requests == [path.as_uri()]
        assert seen.page.locator("img, [onload], [onerror]").count() == 0
        assert seen.page.locator("script").count() == 1
        assert attack in (seen.page.locator("#timeline").text_content() or "")
        assert attack in (seen.page.locator("#source").text_content() or "")


def test_a_run_without_a_gain_or_without_an_end_is_a_whole_page(browser: Browser, tmp_path: Path) -> None:
    for name, events, figure in (
        ("no-gain", [*event_log.opening(), *event_log.ending((1.03, 1.015, 1.05))], "No gain"),
        ("begun", event_log.opening()[:1], "Nothing yet"),
    ):
        stamped = event_log.stamped(events)
        path = tmp_path / f"{name}.html"
        path.write_text(render_html(fold(stamped), stamped, {}))
        with visit(browser, path.as_uri(), "phone") as seen:
            seen.keep(f"report-{name}")
            assert seen.page.locator(".figure").inner_text() == figure
            assert seen.complaints == []


def test_colours_of_text_stand_out_from_what_is_behind_them() -> None:
    """WCAG's 4.5 to 1, by day and by night."""
    css = (ROOT / "agent/report/templates/page.css.j2").read_text()
    day, night = (dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", part)) for part in css.split("@media", 2)[:2])
    for colours in (day, {**day, **night}):
        for ink in ("text", "muted", "link", "good", "bad", "unsure"):
            for paper in ("page", "card", "sunk"):
                assert contrast(colours[ink], colours[paper]) >= 4.5, (ink, paper)
        for ink in ("good", "bad", "unsure"):
            assert contrast(colours[ink], colours[f"{ink}-soft"]) >= 4.5, ink
        for ink in ("keyword", "string", "digit", "name", "muted", "unsure"):
            for paper in ("good-soft", "bad-soft"):
                assert contrast(colours[ink], colours[paper]) >= 4.5, (ink, paper)


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
