"""A night's page in a real browser: on a desk and on a phone, by day and by night, and from it to each run's report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from agent import events as run_events
from agent.events import Event
from agent.log import Log
from agent.nightly import events as ev
from agent.nightly.asked import Asked, Job, NightBudget
from agent.nightly.events import NIGHT_EVENT
from agent.nightly.page import write_pages
from agent.nightly.summary import summarise
from agent.report.build import write_reports
from tests.chromium import SIZES, Scheme, visit
from tests.unit.agent import event_log, gpu_log
from tests.writer import write_run

ATTACK = "<img src=x onerror=alert(1)></p><script>alert(2)</script>"
BROKE = f"the oracle ended with signal 11 while it judged b2 {ATTACK}"
REFUSED = "/srv/kernels/attention_with_a_long_name.yaml: task.dim: unknown key; did you mean `dims`?"
LONG = "nvcc is gone: " + "/opt/somewhere/deep/include/cute/tensor_impl.hpp(812): error " * 12
TASKS: Sequence[tuple[str, tuple[int, str] | None]] = (
    ("gemm_fp32", (0, "")),
    ("softmax_fp32 (softmax_cutlass)", (0, "")),
    ("layernorm_fp32", (5, BROKE)),
    ("attention_with_a_long_name_that_no_phone_has_room_for", (2, REFUSED)),
    ("batchnorm", (3, LONG)),
    ("scan", None),
)


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A night's folder: of six tasks one is faster, one is not, three failed, and one was not reached."""
    runs = tmp_path_factory.mktemp("night") / "runs"
    for number in range(2, 4):
        write_run(runs / f"run_{number}", _log(number))
        write_reports(runs / f"run_{number}")
    (runs / "run_1").mkdir()
    gpu_log.write_run(runs / "run_1")
    (runs / "run_1" / "config.yaml").write_text("{}")
    write_reports(runs / "run_1")
    folder = runs / "night_20261130_010000"
    folder.mkdir()
    return folder


def _log(number: int) -> list[Event]:
    """Of a run without a gain; of one that failed."""
    opening = [*event_log.opening(), *event_log.first_iteration()]
    if number == 2:
        return [*opening, *event_log.ending((1.004, 0.99, 1.02))]
    return [*opening[:14], run_events.Paused(key="0", status="failed", reason=BROKE, exit_code=5)]


def write_night(folder: Path, upto: int, *, ended: bool) -> str:
    """The night's page once so many of its tasks were tried; its address."""
    jobs = tuple(Job(config=Path(f"/srv/kernels/{number}.yaml")) for number in range(len(TASKS)))
    asked = Asked(jobs=jobs, budget=NightBudget(usd=20, hours=7), output=folder.parent, on_finish="notify")
    names = tuple(name for name, _ in TASKS)
    (folder / "night.jsonl").unlink(missing_ok=True)
    log = Log(folder / "night.jsonl", NIGHT_EVENT, "night")
    night_id, active = folder.name, None if ended else upto
    log.append(ev.NightStarted(key="night", night_id=night_id, version="0", asked=asked, fingerprint="f", names=names))
    for session in range(3):
        log.append(ev.NightOpened(key=str(session), pid=1))
    for number in range(5):
        log.append(ev.RunPlaced(key=str(number), folder=f"../run_{number + 1}"))
    for number in range(3):
        log.append(ev.Surveyed(key=str(number), gap=0.979, odds=0.5, expected=1.9))
    for number, (_, tried) in enumerate(TASKS[:upto]):
        if tried is not None:
            log.append(ev.Tried(key=f"{number}#0", task=number, exit_code=tried[0], reason=tried[1]))
    if ended:
        log.append(ev.NightEnded(key="0", exit_code=5))
        log.append(ev.Told(key="0", problem="on_finish `notify` cannot be run: No such file or directory"))
    events, order = log.events, range(len(TASKS))
    log.close()
    summary = summarise(folder, events, order, active, "finished" if ended else "running", 5 if ended else None)
    write_pages(summary, folder)
    return (folder / "index.html").as_uri()


@pytest.mark.parametrize("size", list(SIZES))
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_every_screen_and_asks_nobody_for_anything(
    browser: Browser, night: Path, size: str, scheme: Scheme
) -> None:
    page = write_night(night, len(TASKS), ended=True)
    with visit(browser, page, size, scheme) as seen:
        seen.keep(f"night-{size}-{scheme}")
        assert seen.requests == [page]
        assert seen.complaints == []
        assert seen.page.evaluate("document.documentElement.scrollWidth") == SIZES[size][0]
        background = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (background == "rgb(245, 246, 248)") == (scheme == "light")
        assert seen.cut_off() == []


def test_it_says_of_each_task_what_came_of_it_and_why(browser: Browser, night: Path) -> None:
    with visit(browser, write_night(night, len(TASKS), ended=True)) as seen:
        assert seen.page.locator("h1").inner_text() == "6 tasks: 1 faster, 1 no gain, 3 failed, 1 not reached"
        cards = {str(card.locator("h2").inner_text()): card for card in seen.page.locator("article").all()}
        assert list(cards) == [name for name, _ in TASKS]
        assert cards["gemm_fp32"].locator(".gain").inner_text() == "11.4× [11.3, 11.4]"
        broke, refused, late = (cards[name] for name in (TASKS[2][0], TASKS[3][0], TASKS[5][0]))
        assert broke.locator(".badge").inner_text() == refused.locator(".badge").inner_text() == "failed"
        assert broke.locator(".why").inner_text() == BROKE
        assert refused.locator(".why").inner_text() == REFUSED
        assert refused.locator("dl").count() == 0  # nothing was measured, so no numbers
        assert "budget was used up" in late.inner_text()
        long = cards["batchnorm"].locator("details")
        assert not long.evaluate("node => node.open")
        long.locator("summary").click()
        assert LONG.strip() in " ".join(long.inner_text().split())
        notices = seen.page.locator(".notice").all_inner_texts()
        assert "on_finish failed: on_finish `notify` cannot be run" in notices[0]
        assert f"nightly --resume {night}" in notices[1]
        assert seen.page.locator("img, script, [onerror]").count() == 0
        assert seen.complaints == []


@pytest.mark.parametrize("size", list(SIZES))
def test_its_links_lead_to_the_reports(browser: Browser, night: Path, size: str) -> None:
    page = write_night(night, len(TASKS), ended=True)
    with visit(browser, page, size) as seen:
        hrefs = [link.get_attribute("href") for link in seen.page.locator("h2 a").all()]
        assert hrefs == [f"../run_{number}/report.html" for number in (1, 2, 3)]
        for number, title in ((1, "11.4×"), (2, "No gain"), (3, "No gain yet")):
            seen.page.locator(f"#task-{number} h2 a").click()
            assert seen.page.locator(".figure").inner_text() == title
            seen.page.go_back()
        seen.page.locator("#task-3 .run a").click()
        assert BROKE in seen.page.locator(".notice").first.inner_text()
        assert seen.complaints == []


def test_while_the_night_works_it_says_so_and_as_of_when(browser: Browser, night: Path) -> None:
    with visit(browser, write_night(night, 2, ended=False), "phone") as seen:
        seen.keep("night-running")
        assert seen.page.locator("#task-3 .badge").inner_text() == "working"
        assert seen.page.locator("#task-5 .badge").inner_text() == "queued"
        tiles = seen.page.locator(".tiles").inner_text()
        assert "running, after 2 stops" in tiles
        assert "as of" in tiles
        assert seen.page.locator(".notice").count() == 0
