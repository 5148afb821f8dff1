"""The way of somebody who sees the page for the first time, as `docs/page.md` has it: which tasks does the newest
version still fail, and why? By what stands on the page alone: no address is typed but the first one."""

from __future__ import annotations

import re

import pytest
from loops import Loop
from playwright.async_api import Page, expect

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


async def test_from_the_first_page_to_a_failed_task_and_the_part_of_its_reward_that_is_missing(
    page: Page, site: Loop
) -> None:
    await page.goto("/")
    navigation = page.get_by_role("navigation")
    await navigation.get_by_role("link", name="Learning").click()
    await page.get_by_text("The same in numbers").click()
    named = await page.get_by_role("row", name=re.compile(r"^version \d+")).all_inner_texts()
    newest = max(int(re.match(r"version (\d+)", row)[1]) for row in named)  # type: ignore[index]

    await navigation.get_by_role("link", name="Tasks").click()
    await page.get_by_label("Version").fill(str(newest))
    await page.keyboard.press("Enter")
    await page.get_by_label("Reward below").fill("0.5")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(re.compile(rf"#/tasks\?version={newest}&reward_below=0.5$"))
    failed = page.locator("a.task")
    await expect(failed.first).to_be_visible()
    task_id = await failed.first.inner_text()
    await failed.first.click()

    runs = [run for group in (await site.task(task_id) or {})["groups"] for run in group["runs"]]
    run = min((run for run in runs if run["reward"] is not None), key=lambda run: float(run["reward"]))
    assert run["reward"] < 0.5
    cards = page.get_by_role("article", name=f"run {run['run_id']}")
    card = cards.filter(has=page.locator(".amount", has_text=f"{run['reward']:.2f}")).first
    missing, value = min(run["breakdown"].items(), key=lambda part: float(part[1]))
    await expect(card.get_by_role("row", name=missing)).to_contain_text(f"{value:.2f}")
    await expect(page.get_by_role("article", name="production")).to_be_visible()
