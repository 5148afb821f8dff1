"""The page Now, and Audit: what is told, and the buttons that decide who answers users."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from loops import Loop
from playwright.async_api import Page, Route, expect
from serving import until

from slipstream.api import events

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


async def test_it_tells_who_answers_users_and_where_the_loop_stands(page: Page, site: Loop) -> None:
    await page.goto("/#/now")
    serving = page.locator("section", has=page.get_by_role("heading", name="Who answers users"))
    await expect(serving.get_by_role("row", name="version 8")).to_contain_text("50.0 %")
    await expect(serving.get_by_role("row", name="production")).to_contain_text("50.0 %")
    status = await site.status()
    training = page.locator("section", has=page.get_by_role("heading", name="Training"))
    await expect(training).to_contain_text(f"Version served by the Explorer{status['policy']['version']}")
    rewards = page.locator("section", has=page.get_by_role("heading", name="Rewards"))
    await expect(rewards.get_by_role("row").nth(1)).to_contain_text(f"{status['rewards'][0]['mean']:.3f}")
    await expect(page.locator("section", has=page.get_by_role("heading", name="Selection"))).to_contain_text("sampling")


async def told(page: Page, **topics: Any) -> None:
    """Have the stream of events tell this, and end."""
    said = "".join(f"event: {name}\ndata: {json.dumps(shown)}\n\n" for name, shown in topics.items())
    body = f"retry: 600000\n\n{said}"
    await page.route("**/events", lambda route: route.fulfill(content_type="text/event-stream", body=body))


async def test_a_lane_that_is_not_ready_answers_nobody(page: Page, site: Loop) -> None:
    serving = {**(await site.client.get("/serving")).json(), "ready": False, "reason": "the lane does not answer"}
    await told(page, status=await site.status(), serving=serving)
    await page.goto("/#/now")
    told_by = page.locator("section", has=page.get_by_role("heading", name="Who answers users"))
    await expect(told_by.get_by_role("row", name="version 8")).to_contain_text("0.0 %")
    await expect(told_by.get_by_role("row", name="production")).to_contain_text("100.0 %")
    await expect(told_by).to_contain_text("the lane does not answer")
    await expect(page.locator("header")).to_contain_text("production answers everybody: the lane is not ready")
    await expect(page.locator("header")).not_to_contain_text("version 8 answers")


async def test_the_time_until_the_next_commit_counts_down(page: Page, site: Loop) -> None:
    status = await site.status()
    status["next_commit"]["at"] = time.time() + 1000
    await page.clock.install()
    await told(page, status=status)
    await page.goto("/#/now")
    figure = page.locator(".figure", has_text="Next commit")
    await expect(figure).to_contain_text(re.compile(r"Next commit1[67] min"))
    await page.clock.fast_forward(940_000)
    await expect(figure).to_contain_text(re.compile(r"Next commit[1-6]?\d s"))
    await page.clock.fast_forward(100_000)
    await expect(figure).to_contain_text("Next commit0 s")


async def test_figures_that_are_old_because_nothing_can_be_read_are_told_as_such(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    await page.goto("/#/now")
    await expect(page.get_by_role("img", name="live", exact=True)).to_be_visible()

    async def fails(*_: Any) -> None:
        raise OSError("the disk is gone")

    with monkeypatch.context() as patched:
        patched.setattr(events, "status_view", fails)
        await expect(page.get_by_role("img", name="not live")).to_be_visible()
        await expect(page.locator("header")).to_contain_text("not live: the store does not answer")
        await expect(page.get_by_role("heading", name="Who answers users")).to_be_visible()
    await expect(page.get_by_role("img", name="live", exact=True)).to_be_visible()
    await expect(page.locator("header")).not_to_contain_text("not live")


async def test_a_kill_asks_for_the_word_has_effect_at_once_and_is_taken_back(page: Page, site: Loop) -> None:
    await page.goto("/#/now")
    await page.get_by_role("button", name="Kill").click()
    dialog = page.get_by_role("dialog", name="Have production answer everybody")
    kill = dialog.get_by_role("button", name="Kill")
    await expect(kill).to_be_disabled()
    await dialog.get_by_label("Type kill to go on").fill("kil")
    await expect(kill).to_be_disabled()
    await dialog.get_by_label("Type kill to go on").fill("kill")
    await kill.click()
    await expect(page.get_by_text("Production answers everybody.")).to_be_visible()
    assert (await site.client.get("/serving")).json()["killed"] is True
    await expect(page.locator("header")).to_contain_text("killed: production answers everybody")
    await page.get_by_role("button", name="Take the kill back").click()
    await page.get_by_role("dialog").get_by_role("button", name="Take the kill back").click()
    await expect(page.locator("header")).to_contain_text("version 8 answers 50 %")
    assert (await site.client.get("/serving")).json()["killed"] is False
    await page.goto("/#/audit")
    rows = page.get_by_role("row")
    await expect(rows.nth(1)).to_contain_text("serving revive")
    await expect(rows.nth(2)).to_contain_text("serving kill")


async def test_a_refusal_is_told_in_the_apis_words_and_nothing_is_lost(page: Page) -> None:
    await page.route(
        "**/commit",
        lambda route: route.fulfill(
            status=503, json={"error": {"message": "the Explorer did not take it", "code": "explorer_unavailable"}}
        ),
    )
    await page.goto("/#/now")
    await page.get_by_role("button", name="Commit now").click()
    dialog = page.get_by_role("dialog", name="Deliver what is ready")
    await dialog.get_by_role("button", name="Commit now").click()
    await expect(dialog.get_by_role("alert")).to_have_text("the Explorer did not take it")
    await page.unroute("**/commit")
    await dialog.get_by_role("button", name="Commit now").click()
    await expect(page.get_by_text("Delivered.")).to_be_visible()


async def test_of_a_write_that_gets_no_answer_it_is_said_that_nobody_knows_whether_it_was_done(page: Page) -> None:
    await page.route("**/commit", lambda route: route.abort())
    await page.goto("/#/now")
    await page.get_by_role("button", name="Commit now").click()
    dialog = page.get_by_role("dialog", name="Deliver what is ready")
    await dialog.get_by_role("button", name="Commit now").click()
    await expect(dialog.get_by_role("alert")).to_have_text(
        "The sidecar does not answer, so it is not known whether this was done. Look, and do it again if it was not."
    )


async def test_what_is_new_comes_by_itself(page: Page, site: Loop) -> None:
    await page.goto("/#/now")
    answers = page.locator("section", has=page.get_by_role("heading", name="Selection"))
    await expect(page.get_by_role("img", name="live", exact=True)).to_be_visible()
    before = await answers.inner_text()
    await site.chat(
        "Does this come by itself?", {"x-slipstream-task-id": "by-itself", "x-slipstream-session-id": "by-itself"}
    )
    await expect(answers).not_to_have_text(before)


async def test_one_stream_a_tab_and_none_while_it_is_hidden(page: Page, site: Loop) -> None:
    opened: list[str] = []
    page.on("request", lambda request: opened.append(request.url) if request.url.endswith("/events") else None)
    await page.goto("/#/now")
    for place in ("tasks", "audit", "now"):
        await page.goto(f"/#/{place}")
    await expect(page.get_by_role("img", name="live", exact=True)).to_be_visible()
    assert len(opened) == 1
    hidden = """(value) => {
        Object.defineProperty(document, "hidden", {value, configurable: true});
        document.dispatchEvent(new Event("visibilitychange"));
    }"""
    await page.evaluate(hidden, True)
    await expect(page.get_by_role("img", name="not live")).to_have_count(1)
    await page.evaluate(hidden, False)
    await expect(page.get_by_role("img", name="live", exact=True)).to_be_visible()
    assert len(opened) == 2


async def test_the_audit_is_filtered_by_key_and_action_and_goes_on_page_by_page(page: Page, site: Loop) -> None:
    for number in range(120):
        response = await site.client.post("/marks", json={"task_id": f"marked-{number}"})
        assert response.status_code == 202
    await page.goto("/#/audit?action=mark")
    rows = page.get_by_role("row")
    await expect(rows).to_have_count(101)
    held: list[Route] = []

    async def hold(route: Route) -> None:
        held.append(route)

    await page.route("**/audit?*cursor=*", hold)
    await page.get_by_role("button", name="Older entries").click()
    await until(lambda: held)
    await site.client.post("/marks", json={"task_id": "marked-120"})  # it pushes marked-20 out of the first page
    await held[0].continue_()
    await expect(rows.nth(120)).to_contain_text("marked-0")
    await page.get_by_role("button", name="auto").click()
    tasks = await rows.get_by_role("link").all_inner_texts()
    assert tasks == [f"marked-{number}" for number in range(119, -1, -1)]
    await page.get_by_label("Action").fill("rollout_begin")
    await page.get_by_role("button", name="Filter").click()
    await expect(rows).to_have_count(2)
    await expect(rows.nth(1)).to_contain_text(re.compile(r"\(decider\).*rollout begin"))
    await page.get_by_label("Action").fill("no_such_action")
    await page.get_by_role("button", name="Filter").click()
    await expect(page.get_by_role("alert")).to_contain_text("action:")
