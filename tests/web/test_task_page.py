"""One task on the page: what was said and answered, what became of it, and what can be done with it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import replaying
from filled_site import filled_site, talk
from loops import Loop
from playwright.async_api import Locator, Page, Route, expect
from serving import until

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Loop]:
    async with filled_site(tmp_path_factory.mktemp("site"), rollouts=False) as loop:
        await talk(loop)
        await loop.commit()
        await talk(loop, 3)
        yield loop


@pytest_asyncio.fixture(loop_scope="module", autouse=True)
async def clipboard(page: Page) -> None:
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])


async def task_of(site: Loop, task_id: str) -> dict[str, Any]:
    """A task, once it is decided."""

    async def decided() -> Any:
        task = await site.task(task_id)
        return task if task is not None and task["decided"] else None

    task: dict[str, Any] = await until(decided)
    return task


async def selected(site: Loop, content: Any, name: str) -> dict[str, Any]:
    """A task in which this was said and which was selected, once its runs have a reward."""
    for number in range(20):
        task_id = f"{name}-{number}"
        await site.chat(content, {"x-slipstream-task-id": task_id})
        if (await task_of(site, task_id))["selected"]:
            break

    async def scored() -> Any:
        task = await task_of(site, task_id)
        return task if task["groups"] and all(run["state"] == "scored" for run in task["groups"][0]["runs"]) else None

    task: dict[str, Any] = await until(scored)
    return task


def run(page: Page, number: int) -> Locator:
    return page.get_by_role("article", name=f"run {number}")


async def test_production_and_each_run_stand_side_by_side_with_what_became_of_them(page: Page, site: Loop) -> None:
    task = await task_of(site, "order-1047")
    (group,) = task["groups"]
    assert (group["state"], group["commit"]) == ("delivered", 1)
    await page.goto("/#/tasks/order-1047")
    await expect(page.get_by_role("region", name="Conversation")).to_contain_text("You answer the customers of a shop")
    said = task["calls"][0]["answer"]["content"]
    await expect(page.get_by_role("article", name="production")).to_contain_text(said)
    for each in group["runs"]:
        card = run(page, each["run_id"])
        await expect(card.locator(".amount")).to_have_text(f"{each['reward']:.2f}")
        for part, value in each["breakdown"].items():
            await expect(card.get_by_role("row", name=part)).to_contain_text(f"{value:.2f}")
        await expect(card).to_contain_text("scored")
        await expect(card).to_contain_text("3 + 2 tokens")
        await expect(card.get_by_role("link", name="version 8")).to_have_attribute("href", "#/versions/8")
    await expect(page.locator(".delivery")).to_contain_text("delivered in commit 1, trained into version 1")
    await page.get_by_role("link", name=task["session_id"]).click()
    await expect(page).to_have_url(re.compile(r"#/tasks\?session_id=customer-7$"))


async def test_words_that_differ_from_productions_are_marked_until_d_is_typed(page: Page, site: Loop) -> None:
    await page.goto("/#/tasks/order-1040?call=1")
    card = run(page, 0)
    await expect(card.locator("ins")).to_have_text("I looked it up")
    await expect(card.locator("del")).to_have_text("echo")
    await page.keyboard.press("d")
    await expect(card.locator("ins, del")).to_have_count(0)
    await expect(card.locator(".message")).to_contain_text("I looked it up: <script>alert(1)</script>")


async def test_very_long_answers_are_not_compared_and_hold_nothing_up(page: Page, site: Loop) -> None:
    task = await selected(site, "so long, " * 5000, "long")
    await page.goto(f"/#/tasks/{task['task_id']}")
    await expect(run(page, 0)).to_contain_text("Too long to be compared word by word.")
    await expect(run(page, 0).get_by_role("button", name="Show more")).to_be_visible()


async def test_each_call_has_its_answers_and_feedback_stands_with_them(page: Page, site: Loop) -> None:
    task = await task_of(site, "order-1040")
    await page.goto("/#/tasks/order-1040")
    await expect(page.get_by_role("heading", name="Answers to call 4")).to_be_visible()
    await page.get_by_role("button", name="call 3: 3 runs").click()
    await expect(page.get_by_role("heading", name="Answers to call 3")).to_be_visible()
    await expect(page).to_have_url(re.compile(r"\?call=2$"))
    await page.keyboard.press("[")
    await expect(page.get_by_role("heading", name="Answers to call 2")).to_be_visible()
    feedback = page.locator("section", has=page.get_by_role("heading", name="Feedback"))
    await expect(feedback.get_by_role("row")).to_have_count(1 + len(task["feedback"]))
    await expect(feedback).to_contain_text("thumbs down")
    await expect(feedback).to_contain_text("from the page's test")


async def test_the_id_of_a_runs_answer_leads_to_that_run(page: Page, site: Loop) -> None:
    task = await task_of(site, "order-1040")
    msg_id = task["groups"][1]["runs"][2]["msg_id"]
    await page.goto(f"/#/calls/{msg_id}")
    await expect(page.get_by_role("heading", name="Answers to call 2")).to_be_visible()
    await expect(page.locator("article.marked")).to_have_attribute("aria-label", "run 2")
    await run(page, 2).get_by_text("Details").click()
    await expect(run(page, 2)).to_contain_text(f'"msg_id": "{msg_id}"')


async def test_a_replay_shows_its_last_answer_what_led_there_and_why_it_failed(page: Page, site: Loop) -> None:
    runs = (await replaying.open_runs(site, "again", 2))["runs"]
    for number, each in enumerate(runs):
        async with replaying.sdk(site, each) as client:
            for text in ("first", "second"):
                await replaying.ask(client, f"{text} of {number}")
    await replaying.finish(site, "again", 0, reward=0.75, breakdown={"exact": 1.0, "late": -0.25})
    await replaying.finish(site, "again", 1, error="the <b>shop</b> did not answer")
    await page.goto("/#/tasks/again")
    await expect(run(page, 0).locator(".amount")).to_have_text("0.75")
    await expect(run(page, 0).get_by_role("row", name="late")).to_contain_text("-0.25")
    task = await task_of(site, "again")
    first, last = task["groups"][0]["runs"][0]["answers"]
    await expect(run(page, 0)).to_contain_text(last["content"])
    await expect(run(page, 0)).to_contain_text(re.compile(r"The whole run: .* tokens"))
    await expect(run(page, 0).locator(".foot", has_text="tokens")).to_have_count(0)
    before = run(page, 0).get_by_text(first["content"])
    await run(page, 0).get_by_text("An answer before the last").click()
    await expect(before.first).to_be_visible()
    await expect(run(page, 1)).to_contain_text("failed")
    await expect(run(page, 1)).to_contain_text("the <b>shop</b> did not answer")


async def test_productions_request_is_copied_as_a_command_that_sends_it_again(
    page: Page, site: Loop, tmp_path: Path
) -> None:
    mark = tmp_path / "run"
    said = f"it's $(touch {mark}) `touch {mark}` \"; touch {mark}; '\nEND\ntouch {mark}\n\u202e\u0000 \\n é 你"
    await site.chat(said, {"x-slipstream-task-id": "shell"})
    await task_of(site, "shell")
    await page.goto("/#/tasks/shell")
    await page.get_by_role("button", name="copy the request as curl").click()
    await expect(page.get_by_role("status").filter(has_text="Copied.")).to_be_visible()
    command = await page.evaluate("navigator.clipboard.readText()")
    assert "\u202e" not in command
    assert "$OPENAI_API_KEY" in command
    shell = await asyncio.create_subprocess_exec("bash", "-c", command, stdout=-1, stderr=-1)
    told, _ = await shell.communicate()
    assert json.loads(told)["choices"][0]["message"]["content"] == f"echo: {said}"
    assert not mark.exists()


async def test_a_mark_adds_its_labels(page: Page, site: Loop) -> None:
    await page.goto("/#/tasks/order-1045")
    await page.get_by_role("button", name="Mark").click()
    dialog = page.get_by_role("dialog", name="Mark this task")
    await dialog.get_by_label("Labels").fill("vip, " + "x" * 65)
    await dialog.get_by_role("button", name="Mark").click()
    await expect(dialog.get_by_role("alert")).to_have_text("labels: expected at most 64 characters each, found 65")
    await dialog.get_by_label("Labels").fill("vip, parcel ,")
    await dialog.get_by_role("button", name="Mark").click()
    await expect(page.locator("dl.facts")).to_contain_text("vip")
    assert sorted((await task_of(site, "order-1045"))["labels"]) == ["parcel", "vip"]


async def test_erasing_asks_for_the_id_and_tells_what_was_deleted_and_what_was_given_away(
    page: Page, site: Loop
) -> None:
    await page.goto("/#/tasks/order-1048")
    await page.get_by_role("button", name="Erase the task").click()
    dialog = page.get_by_role("dialog", name="Erase everything about this task")
    erase = dialog.get_by_role("button", name="Erase the task")
    await dialog.get_by_label("Type order-1048 to go on").fill("order-104")
    await expect(erase).to_be_disabled()
    await dialog.get_by_label("Type order-1048 to go on").fill("order-1048")
    await erase.click()
    report = page.get_by_role("status").filter(has=page.get_by_role("heading", name="Erased"))
    await expect(report).to_contain_text("1 calls, 1 groups, 3 runs, 1 feedback, 1 tasks")
    await expect(report).to_contain_text("3 experiences in commit 1. That cannot be taken back.")
    assert await site.task("order-1048") is None
    await page.get_by_role("link", name="All tasks").click()
    await expect(page.locator("a.task").first).to_be_visible()
    await page.goto("/#/tasks/order-1048")
    await expect(page.get_by_role("heading", name="There is no such task")).to_be_visible()


async def test_the_report_of_an_erasure_names_data_sets_and_versions(page: Page) -> None:
    answer: dict[str, Any] = {
        "erased_at": 1784552472.1, "deleted": {"tasks": 0}, "pending": {"groups": 0, "exchanges": 0, "datasets": 1},
        "explorer": {
            "delivered": {"experiences": 0, "commits": [], "versions": [], "groups": []},
            "uncertain": [], "recorded": [],
        },
        "datasets": [{"name": "support", "rows": 2, "versions": [5, 6]}, {"name": "late", "rows": 0, "versions": []}],
    }  # fmt: skip
    await page.route("**/data?*", lambda route: route.fulfill(json=answer))

    async def erased() -> Locator:
        await page.goto("/#/tasks/order-1047")
        await page.reload()
        await page.get_by_role("button", name="Erase the session").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_role("textbox").fill("customer-7")
        await dialog.get_by_role("button", name="Erase the session").click()
        return page.get_by_role("status").filter(has=page.get_by_role("heading", name="Erased"))

    report = await erased()
    await expect(report).to_contain_text("Nothing was stored under this id, outside of data sets.")
    await expect(report).to_contain_text("Still pending: 1 data sets that an export is writing")
    rows = report.get_by_role("listitem")
    await expect(rows.nth(0)).to_contain_text("support: 2 rows deleted. Versions that were trained on it")
    await expect(rows.nth(0).get_by_role("link", name="6")).to_have_attribute("href", "#/versions/6")
    await expect(rows.nth(1)).to_contain_text("late: pending.")
    answer |= {"datasets": [{"rows": 2}], "pending": {"groups": 0, "exchanges": 0, "datasets": 0}}
    report = await erased()
    await expect(report.get_by_role("listitem")).to_contain_text("A data set: 2 rows deleted.")
    await expect(report).not_to_contain_text("Still pending")


async def test_of_a_thousand_messages_the_newest_are_shown_and_more_when_asked_for(page: Page, site: Loop) -> None:
    said = [{"role": ("user", "assistant")[number % 2], "content": f"message {number}"} for number in range(999)]
    await site.chat(said, {"x-slipstream-task-id": "thousand"})
    await task_of(site, "thousand")
    await page.goto("/#/tasks/thousand")
    messages = page.get_by_role("region", name="Conversation").locator(".message")
    await expect(messages).to_have_count(50)
    await expect(messages.last).to_contain_text("echo: message 998")
    await expect(messages.last).to_be_in_viewport()
    await page.get_by_role("button", name="Show 200 earlier").click()
    await expect(messages).to_have_count(250)
    await expect(messages.first).to_contain_text("message 750")


async def test_messages_of_any_shape_are_shown(page: Page, site: Loop) -> None:
    odd: list[dict[str, Any]] = [
        {"role": 5, "content": [None, {"text": 3}, "a part"], "tool_calls": {"a": 1}, "name": 7},
        {"role": "assistant", "content": None, "tool_calls": [None, {"function": "f"}, {"function": {"name": 1}}]},
        {"role": "user", "content": "odd shapes"},
    ]
    await site.chat(odd, {"x-slipstream-task-id": "odd"})
    await task_of(site, "odd")
    await page.goto("/#/tasks/odd")
    await expect(page.get_by_role("region", name="Conversation")).to_contain_text("echo: odd shapes")
    await expect(page.get_by_role("region", name="Conversation")).to_contain_text("a part")


async def test_what_an_open_task_becomes_is_seen_without_asking(page: Page, site: Loop) -> None:
    named = {"x-slipstream-task-id": "tool-1"}
    answer = await site.chat("use the tool", named)
    await until(lambda: site.task("tool-1"))
    await page.goto("/#/tasks/tool-1")
    await expect(page.locator("dl.facts")).to_contain_text("not decided yet")
    message = answer["choices"][0]["message"]
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "42"}
    await site.chat([{"role": "user", "content": "use the tool"}, message, result], named)
    await expect(page.locator("dl.facts")).to_contain_text("complete")
    await expect(page.get_by_role("region", name="Conversation")).to_contain_text("calls look_up")


async def test_the_version_that_is_trained_after_the_task_was_opened_is_seen(page: Page, site: Loop) -> None:
    on_data = {"commits": 0, "first_commit": None, "last_commit": None, "dataset": {"name": "support"}}
    on_commits = {"commits": 1, "first_commit": 1, "last_commit": 1}
    pages = [{"versions": [{"version": 5, "trained_on": on_data}], "next": 5}, {"versions": [], "next": None}]
    mark = "one"

    async def versions(route: Route) -> None:
        await route.fulfill(json=pages["cursor=5" in route.request.url])

    async def events(route: Route) -> None:
        said = f'retry: 200\n\nevent: changed\ndata: {{"versions": "{mark}"}}\n\n'
        await route.fulfill(content_type="text/event-stream", body=said)

    await page.route("**/versions?*", versions)
    await page.route("**/events", events)
    await page.goto("/#/tasks/order-1047")
    delivery = page.locator(".delivery").first
    await expect(delivery).to_contain_text("which version was trained on it is not known")
    pages[1]["versions"].append({"version": 3, "trained_on": on_commits})  # behind one that was trained on a data set
    mark = "two"
    await expect(delivery).to_contain_text("trained into version 3")


async def test_a_task_that_was_over_and_goes_on_is_followed(page: Page, site: Loop) -> None:
    task = await task_of(site, "order-1047")
    mark = 0

    async def told(route: Route) -> None:
        await route.fulfill(json=task)

    async def events(route: Route) -> None:
        said = f'retry: 200\n\nevent: changed\ndata: {{"tasks": "{mark}"}}\n\n'
        await route.fulfill(content_type="text/event-stream", body=said)

    await page.route("**/tasks/order-1047", told)
    await page.route("**/events", events)
    await page.goto("/#/tasks/order-1047")
    delivery = page.locator(".delivery").first
    await expect(delivery).to_contain_text("delivered in commit 1")
    task["groups"][0] |= {"state": "running", "commit": None}
    await page.keyboard.press("r")
    await expect(delivery).to_contain_text("some of its runs have not ended")
    task["groups"][0] |= {"state": "ready"}
    mark += 1
    await expect(delivery).to_contain_text("it waits for the next commit")


async def test_its_json_is_made_when_it_is_opened(page: Page, site: Loop) -> None:
    await page.goto("/#/tasks/order-1047")
    raw = page.locator("details", has=page.get_by_text("Raw JSON"))
    await expect(raw).not_to_contain_text("updated_at")
    await raw.get_by_text("Raw JSON").click()
    await expect(raw).to_contain_text('"updated_at"')
    await page.get_by_role("button", name="Copy as curl").click()
    command = await page.evaluate("navigator.clipboard.readText()")
    assert command == f"curl '{site.url}/tasks/order-1047'"
