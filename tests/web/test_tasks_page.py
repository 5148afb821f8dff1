"""The page Tasks: a list that is searched, filtered by the address, read by keyboard, and not moved by what is new."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from filled_site import filled_site, talk
from loops import Loop
from playwright.async_api import Page, Route, expect
from serving import until

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Loop]:
    async with filled_site(tmp_path_factory.mktemp("site"), rollouts=False) as loop:
        await talk(loop)
        await loop.commit()
        await talk(loop, 3)
        yield loop


async def tasks_of(site: Loop, **filters: str) -> list[str]:
    found = (await site.client.get("/tasks", params=filters)).json()["tasks"]
    return [task["task_id"] for task in found]


async def shown(page: Page) -> list[str]:
    await expect(page.locator("a.task").first).to_be_visible()
    return await page.locator("a.task").all_inner_texts()


async def test_the_newest_tasks_stand_first_with_what_became_of_them(page: Page, site: Loop) -> None:
    await page.goto("/#/tasks")
    await expect(page.locator("a.task")).to_have_text(await tasks_of(site))
    task = (await site.client.get("/tasks", params={"selected": "true"})).json()["tasks"][-1]
    row = page.get_by_role("row", name=task["task_id"])
    await expect(row).to_contain_text("complete")
    await expect(row).to_contain_text("yes sampling")
    await expect(row).to_contain_text(f"{task['figures']['reward']['mean']:.2f}")
    await row.get_by_role("link", name=task["session_id"]).click()
    await expect(page).to_have_url(re.compile(rf"#/tasks\?session_id={task['session_id']}$"))
    await expect(page.locator("a.task")).to_have_text(await tasks_of(site, session_id=task["session_id"]))


async def test_filters_stand_in_the_address_so_that_a_link_can_be_sent(page: Page, site: Loop) -> None:
    await page.goto("/#/tasks")
    await page.get_by_label("Selected").select_option("no")
    await expect(page).to_have_url(re.compile(r"#/tasks\?selected=false$"))
    await expect(page.locator("a.task")).to_have_text(await tasks_of(site, selected="false"))
    await page.goto("/#/tasks?selected=true&version=8&reward_below=0.4&since=1000000")
    await expect(page.locator("a.task")).to_have_text(
        await tasks_of(site, selected="true", version="8", reward_below="0.4")
    )
    await expect(page.get_by_label("Version")).to_have_value("8")
    await page.get_by_label("Reward below").fill("-1")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="No task is as you ask")).to_be_visible()
    await page.go_back()
    await expect(page.get_by_label("Reward below")).to_have_value("0.4")
    await page.get_by_role("button", name="Clear 4 filters").click()
    await expect(page).to_have_url(re.compile(r"#/tasks$"))
    await expect(page.locator("a.task")).to_have_text(await tasks_of(site))


async def test_a_filter_that_is_refused_is_told_in_the_apis_words(page: Page) -> None:
    await page.goto("/#/tasks?version=eight")
    await expect(page.get_by_role("alert")).to_contain_text("version")
    await page.get_by_role("button", name="Clear the filter").click()
    await expect(page.locator("a.task").first).to_be_visible()


async def test_it_is_read_by_keyboard_alone(page: Page, site: Loop) -> None:
    await page.goto("/#/tasks")
    tasks = await shown(page)
    for key in ("j", "j", "j", "k"):
        await page.keyboard.press(key)
    await expect(page.locator("a.task:focus")).to_have_text(tasks[1])
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name=tasks[1], level=1)).to_be_visible()
    await page.keyboard.press("j")
    await expect(page.get_by_role("heading", name=tasks[2], level=1)).to_be_visible()
    await page.keyboard.press("u")
    await expect(page.locator("a.task:focus")).to_have_text(tasks[2])
    await page.keyboard.press("/")
    await expect(page.get_by_label("Search")).to_be_focused()
    await page.keyboard.type("jjj")
    await expect(page.get_by_label("Search")).to_have_value("jjj")


async def test_the_id_of_an_answer_or_of_a_task_leads_there(page: Page, site: Loop) -> None:
    task = (await site.client.get("/tasks/order-1040")).json()
    await page.goto("/#/tasks")
    for text in (task["calls"][0]["msg_id"], task["task_id"]):
        await page.get_by_label("Search").fill(text)
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="order-1040", level=1)).to_be_visible()
        await page.go_back()
    await page.goto("/#/calls/unheard-of")
    await expect(page.get_by_role("alert")).to_contain_text("no answer has the id 'unheard-of'")


async def test_new_tasks_are_told_and_move_nothing_until_they_are_shown(page: Page, site: Loop) -> None:
    await page.goto("/#/tasks")
    before = await shown(page)
    for name in ("one", "two"):
        await site.chat("hello", {"x-slipstream-task-id": f"new-{name}"})
    news = page.get_by_role("button", name="2 new tasks: show")
    await expect(news).to_be_visible()
    await expect(page.locator("a.task")).to_have_text(before)
    await page.keyboard.press("n")
    await expect(page.locator("a.task").first).to_have_text("new-two")
    await expect(page.locator("a.task")).to_have_text(["new-two", "new-one", *before])
    await expect(news).to_have_count(0)


async def test_a_list_that_could_not_be_read_is_read_when_it_changes(page: Page, site: Loop) -> None:
    await page.route(re.compile(r"/tasks\?"), lambda route: route.abort())
    await page.goto("/#/tasks")
    await expect(page.get_by_role("alert").locator("p")).to_have_text(
        "The sidecar does not answer. It may be restarting."
    )
    await page.unroute(re.compile(r"/tasks\?"))
    await site.chat("hello", {"x-slipstream-task-id": "after-all"})
    await expect(page.locator("a.task").first).to_have_text("after-all")


async def test_tasks_that_are_erased_elsewhere_leave_the_list(page: Page, site: Loop) -> None:
    for number in range(3):
        await site.chat("hello", {"x-slipstream-task-id": f"gone-{number}", "x-slipstream-session-id": "gone"})

    async def stored() -> bool:
        return len(await tasks_of(site, session_id="gone")) == 3

    await until(stored, 30)
    await page.goto("/#/tasks?session_id=gone")
    await expect(page.locator("a.task")).to_have_count(3)
    await site.client.delete("/data", params={"task_id": "gone-1"})
    await expect(page.locator("a.task")).to_have_text(["gone-2", "gone-0"])
    await site.client.delete("/data", params={"session_id": "gone"})
    await expect(page.get_by_role("heading", name="No task is as you ask")).to_be_visible()


async def test_only_tasks_that_the_first_page_would_have_leave_the_list(page: Page, site: Loop) -> None:
    given = (await site.client.get("/tasks")).json()["tasks"][0]
    newest, second, third, oldest = [{**given, "task_id": f"t-{at}", "updated_at": at} for at in (4, 3, 2, 1)]
    moved = {**oldest, "updated_at": 5}
    first = {"tasks": [newest, second, third, oldest], "next": "more"}

    async def answer(route: Route) -> None:
        await route.fulfill(json={"tasks": [], "next": "more"} if "cursor=" in route.request.url else first)

    await page.route(re.compile(r"/tasks\?"), answer)
    await page.goto("/#/tasks")
    await expect(page.locator("a.task")).to_have_text(["t-4", "t-3", "t-2", "t-1"])
    first["tasks"] = [moved, newest, {**given, "task_id": "t-new", "updated_at": 3.5}]
    await site.chat("hello", {"x-slipstream-task-id": "mark-1"})
    await expect(page.get_by_role("button", name="1 new task: show")).to_be_visible()
    await expect(page.locator("a.task")).to_have_text(["t-4", "t-3", "t-2", "t-1"])
    first["tasks"] = [moved, newest, third, {**given, "task_id": "t-older", "updated_at": 0.5}]
    await site.chat("hello", {"x-slipstream-task-id": "mark-2"})
    await expect(page.locator("a.task")).to_have_text(["t-4", "t-2", "t-1"])
    await expect(page.locator("button.news")).to_have_count(0)


async def test_a_search_is_repeated_once_a_task_of_it_was_erased(page: Page, site: Loop) -> None:
    for number in range(2):
        await site.chat("where is the zeppelin", {"x-slipstream-task-id": f"zeppelin-{number}"})

    async def stored() -> bool:
        return len(await tasks_of(site, text="the zeppelin")) == 2

    await until(stored, 30)
    await page.goto("/#/tasks?text=the+zeppelin")
    await page.get_by_role("link", name="zeppelin-1", exact=True).click()
    await page.get_by_role("button", name="Erase the task").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_role("textbox").fill("zeppelin-1")
    await dialog.get_by_role("button", name="Erase the task").click()
    await expect(page.get_by_role("heading", name="Erased")).to_be_visible()
    await page.get_by_role("link", name="All tasks").click()
    await expect(page.locator("a.task")).to_have_text(["zeppelin-0"])


async def test_older_tasks_come_page_by_page_and_stay_while_one_is_read(page: Page, site: Loop) -> None:
    for number in range(55):
        await site.chat("hello", {"x-slipstream-task-id": f"many-{number}", "x-slipstream-session-id": "many"})
    await until(lambda: all_stored(site), 30)
    await page.goto("/#/tasks?session_id=many")
    await expect(page.locator("a.task")).to_have_text(await tasks_of(site, session_id="many"))
    await page.get_by_role("button", name="Older tasks").click()
    await expect(page.locator("a.task")).to_have_count(55)
    oldest = await page.locator("a.task").last.inner_text()
    await page.locator("a.task").last.click()
    await expect(page.get_by_role("heading", name=oldest, level=1)).to_be_visible()
    await page.get_by_role("link", name="All tasks").click()
    await expect(page.locator("a.task")).to_have_count(55)
    await expect(page.locator("a.task:focus")).to_have_text(oldest)


async def all_stored(site: Loop) -> bool:
    return len(await tasks_of(site, session_id="many", limit="200")) == 55


async def test_the_list_is_copied_as_a_command_that_gives_it(page: Page, site: Loop) -> None:
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await page.goto("/#/tasks?session_id=it's+%22%24(id)%22")
    await page.get_by_role("button", name="Copy as curl").click()
    command = await page.evaluate("navigator.clipboard.readText()")
    shell = await asyncio.create_subprocess_exec("bash", "-c", command, stdout=-1, stderr=-1)
    told, _ = await shell.communicate()
    assert json.loads(told) == {"tasks": [], "next": None}


async def test_words_that_were_said_are_searched_for(page: Page, site: Loop) -> None:
    await page.goto("/#/tasks")
    await page.get_by_label("Search").fill("my subscription")
    await page.get_by_role("button", name="Search").click()
    await expect(page).to_have_url(re.compile(r"#/tasks\?text=my\+subscription$"))
    await expect(page.locator("a.task").first).to_be_visible()
    found = await tasks_of(site, text="my subscription")
    assert found
    await expect(page.locator("a.task")).to_have_text(found)
    await page.get_by_label("Search").fill("nobody ever said this")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="No task is as you ask")).to_be_visible()
    await page.get_by_label("Search").fill("order-10")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(re.compile(r"#/tasks\?text=order-10$"))
    await page.get_by_role("link", name="Look for tasks whose id begins so").click()
    await expect(page.locator("a.task")).to_have_text(await tasks_of(site, id_prefix="order-10"))
