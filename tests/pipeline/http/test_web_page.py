"""The page in a browser: it says what the job's status says, at every size, to eyes and to keyboards, and asks nobody
else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from idle_handle import idle_handle, run
from playwright.sync_api import Browser, Page, expect

from checkpoint.checkpoint_kind import CheckpointKind
from pipeline import Autoscale, JobHandle
from pipeline.http.address import Address
from pipeline.http.server import HttpServer
from pipeline.runtime.driver.job_master import JobMaster
from pipeline.runtime.driver.scaling.autoscaler import Autoscaler
from pipeline.runtime.driver.scaling.rescaling import Rescaled
from pipeline.runtime.system import SYSTEM

PARTS = {"start_delay": 0.004, "alignment": 0.002, "sync": 0.001, "async": 0.01, "size": 2048, "in_flight_bytes": 512}
TOTALS = "totals → out"


def checkpoints(handle: JobHandle, first: int, last: int, subtasks: int = 2) -> None:
    """Complete ones, each 20 ms long; each hundredth fails."""
    history = handle._master.history
    for id in range(first, last):
        now = 5.0 * id
        history.triggered(id, CheckpointKind.CHECKPOINT, now, 1.7e9 + now)
        for i in range(subtasks):
            history.acknowledged(id, f"{TOTALS}[{i}]", PARTS, now + 0.018)
        if id % 100 == 0:
            history.failed(id, "the disk is full", now + 0.02)
        else:
            history.completed(id, now + 0.02)


class Seen:
    """A page, and what has gone on behind it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.trouble: list[str] = []
        self.asked: set[str] = set()
        page.on("console", lambda message: self.trouble.append(message.text))
        page.on("pageerror", lambda error: self.trouble.append(str(error)))
        page.on("request", lambda request: self.asked.add(re.sub(r"^(\w+://[^/]*).*", r"\1", request.url)))


@pytest.fixture
def handle(request: pytest.FixtureRequest) -> JobHandle:
    parallelism = getattr(request, "param", 2)
    handle = idle_handle(parallelism=parallelism, max_parallelism=max(128, parallelism))
    run(handle)
    return handle


@pytest.fixture
def server(handle: JobHandle) -> Iterator[HttpServer]:
    one = HttpServer(Address("127.0.0.1", 0))
    one.start("orders", handle)
    yield one
    one.close()
    one.await_close()


@pytest.fixture
def seen(browser: Browser, server: HttpServer) -> Iterator[Seen]:
    context = browser.new_context(viewport={"width": 1300, "height": 900})
    seen = Seen(context.new_page())
    seen.page.goto(server.new_link())
    expect(seen.page.locator("#state")).to_have_text("running")
    yield seen
    context.close()
    assert seen.trouble == []
    assert seen.asked == {server.url}


def test_it_shows_the_job_its_steps_and_its_checkpoints(
    seen: Seen, handle: JobHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = seen.page
    expect(page.locator("h1")).to_have_text("orders")
    expect(page.get_by_role("button", name=re.compile("^totals → out, 2 subtasks, in 0.s"))).to_be_visible()
    expect(page.locator("#timeline")).to_contain_text("None has begun yet")
    checkpoints(handle, 99, 103)
    expect(page.get_by_role("option")).to_have_count(4)
    expect(page.locator("#checkpoint")).to_contain_text("checkpoint 102")
    expect(page.locator("#checkpoint tbody tr")).to_have_count(2)
    expect(page.locator("#facts")).to_contain_text("3 checkpoints completed, 1 failed, encrypted: no")
    monkeypatch.setattr(JobMaster, "options", replace(handle._master.options, encrypt=True))
    expect(page.locator("#facts")).to_contain_text("encrypted: yes")


def test_figures_follow_the_job(seen: Seen, handle: JobHandle) -> None:
    run(handle, totals_1={"recordsInPerSecond": 1234.0, "busyMsPerSecond": 870.0})
    expect(seen.page.get_by_role("button", name=re.compile("in 1,234.s.*busy 87 %"))).to_be_visible()
    handle._master.status, handle._master.failure = "restarting", "ValueError: <b>not bold</b>"
    expect(seen.page.locator("#state")).to_have_text("restarting")
    expect(seen.page.locator("#failure")).to_have_text("ValueError: <b>not bold</b>")
    handle._master.restarts = 1
    handle._master._recoveries.begun(1.0, 2.0, 3.0, handle._master.progress, "ValueError: <b>not bold</b>")
    expect(seen.page.locator("#restarts td").nth(1)).to_have_text("ValueError: <b>not bold</b>")
    assert "restarting" in seen.page.title()


def test_the_hottest_keys_of_subtasks_are_shown(seen: Seen, handle: JobHandle) -> None:
    run(handle, totals_0={"hotKeys": [["'ann'", 0.714], ["'<b>'", 0.2]]}, totals_1={"hotKeys": [[None, 0.9]]})
    seen.page.locator(f'[id="vertex-{TOTALS}"]').click()
    expect(seen.page.get_by_role("cell", name="'ann' 71 %, '<b>' 20 %")).to_be_visible()
    expect(seen.page.get_by_role("cell", name="a key 90 %")).to_be_visible()


def test_trouble_is_said_in_a_sentence(seen: Seen, handle: JobHandle) -> None:
    expect(seen.page.locator("#diagnosis li")).to_have_count(1)
    handle._master.waits.report("in[0]", [("the Kafka brokers at kafka:9092", 90.0, "brokers")])
    trouble = seen.page.locator("#diagnosis li.bad")
    expect(trouble).to_contain_text("in[0] waits for the Kafka brokers at kafka:9092, for 9")


def test_it_shows_what_autoscale_does_and_what_it_does_not_and_why(
    seen: Seen, handle: JobHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = seen.page.locator("#parallelism")
    monkeypatch.setattr(JobMaster, "room", None)
    expect(shown).to_contain_text("Autoscale is off")
    master = handle._master
    master._requests._rescaling.done.append(Rescaled(1.7e9, "in, totals 1 → 2", 2.5))
    master.autoscaler = Autoscaler(Autoscale(most=8, pause=3600), master, SYSTEM)
    master.autoscaler.start()
    try:
        expect(shown).to_contain_text("Autoscale (1 to 8 subtasks a step) pauses for")
        expect(shown).to_contain_text("pauses for 1 h; advice must last for 1 min.")
        expect(shown).to_contain_text("Rescaled in, totals 1 → 2, at 2023-11-14 22:13:20 UTC, in 2.5 s.")
        no_space = RuntimeError("the disk is full")
        monkeypatch.setattr(master, "rescale_by_itself", lambda widths, answer: answer(no_space))
        busy = {"busyMsPerSecond": 1000.0, "recordsInPerSecond": 100.0}
        run(handle, in_0={"backPressuredMsPerSecond": 200.0}, totals_0=busy, totals_1=busy)
        master.autoscaler = Autoscaler(Autoscale(most=8, pause=0, window=0.6), master, SYSTEM)
        master.autoscaler.start()
        decided = shown.locator("tbody tr", has_text="failed").last
        expect(decided).to_contain_text(re.compile("totals, out 2 → 3.*failed.*the disk is full"))
        expect(shown.locator("li", has_text="is advised and not done: the rescale before failed")).to_have_count(1)
    finally:
        master.ended.set()


def test_everything_is_reached_by_keyboard_and_keeps_the_focus_while_figures_come(
    seen: Seen, handle: JobHandle
) -> None:
    checkpoints(handle, 98, 104)
    page = seen.page
    page.locator(f'[id="vertex-{TOTALS}"]').focus()
    page.keyboard.press("Enter")
    expect(page.locator("#subtasks tbody tr")).to_have_count(2)
    run(handle, totals_1={"recordsInPerSecond": 77.0})
    expect(page.locator("#subtasks")).to_contain_text("77/s")
    assert page.evaluate("document.activeElement.id") == f"vertex-{TOTALS}"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "bars"
    page.keyboard.press("Home")
    expect(page.locator("#checkpoint")).to_contain_text("checkpoint 98")
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    expect(page.locator("#checkpoint")).to_contain_text("the disk is full")
    checkpoints(handle, 104, 105)
    expect(page.get_by_role("option")).to_have_count(7)
    expect(page.locator("#checkpoint")).to_contain_text("checkpoint 100")  # what was chosen stays
    assert page.evaluate("document.activeElement.id") == "bars"


@pytest.mark.parametrize("handle", [200], indirect=True)
def test_two_hundred_subtasks_and_a_thousand_checkpoints_are_all_there(seen: Seen, handle: JobHandle) -> None:
    checkpoints(handle, 1, 1010)
    checkpoints(handle, 1010, 1011, subtasks=200)
    page = seen.page
    expect(page.get_by_role("option")).to_have_count(1000)
    expect(page.get_by_role("option", selected=True)).to_have_count(1)
    expect(page.locator("#checkpoint tbody tr")).to_have_count(200)
    page.locator(f'[id="vertex-{TOTALS}"]').click()
    expect(page.locator("#subtasks tbody tr")).to_have_count(200)


def test_checkpoints_that_came_while_nobody_looked_are_there_too(seen: Seen, handle: JobHandle) -> None:
    checkpoints(handle, 1, 3)
    expect(seen.page.get_by_role("option")).to_have_count(2)
    checkpoints(handle, 3, 91)
    expect(seen.page.get_by_role("option")).to_have_count(90)


def test_when_the_job_answers_no_more_it_says_since_when(browser: Browser, server: HttpServer) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(server.new_link())
    expect(page.locator("#state")).to_have_text("running")
    server.close()
    expect(page.locator("#stale")).to_contain_text("No news for")
    expect(page.locator("h1")).to_have_text("orders")  # the last that is known stays
    context.close()


CONTRASTS = """() => {
  const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const brightness = (text) => {
    context.fillStyle = text;
    context.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...context.getImageData(0, 0, 1, 1).data].map(
      (one) => (one / 255 <= 0.03928 ? one / 255 / 12.92 : ((one / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (one) => {
    for (; one; one = one.parentElement) {
      const back = getComputedStyle(one).backgroundColor;
      if (back !== "rgba(0, 0, 0, 0)") return back;
    }
    return "white";
  };
  const found = {};
  for (const one of document.querySelectorAll("h1, h2, p, li, td, th, caption, .badge, #facts, svg text")) {
    if (!one.textContent.trim()) continue;
    const style = getComputedStyle(one), text = one instanceof SVGElement ? style.fill : style.color;
    const [bright, dark] = [brightness(text), brightness(behind(one))].sort((x, y) => y - x);
    found[`${one.tagName} ${one.id} ${one.getAttribute("class")} ${text}`] = (bright + 0.05) / (dark + 0.05);
  }
  return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_light_and_dark(
    browser: Browser, server: HttpServer, handle: JobHandle, scheme: Any
) -> None:
    """At a contrast of 4.5, as WCAG 2.2 (1.4.3) asks for."""
    checkpoints(handle, 98, 103)
    run(handle, totals_0={"recordsFailed": 3, "lastFailure": "ValueError"})
    context = browser.new_context(color_scheme=scheme)
    page = context.new_page()
    page.goto(server.new_link())
    expect(page.get_by_role("option")).to_have_count(5)
    contrasts = page.evaluate(CONTRASTS)
    context.close()
    assert len(contrasts) > 8
    assert {what: ratio for what, ratio in contrasts.items() if ratio < 4.5} == {}
