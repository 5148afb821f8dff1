"""What is on every page: the way to the others, keys, colours, errors, and what a browser refuses to run."""

from __future__ import annotations

import pytest
from loops import Loop
from playwright.async_api import Page, expect

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

PAGES = ("Now", "Tasks", "Learning", "Versions", "Prefer", "Data", "Audit", "Settings")


async def test_each_page_is_reached_by_its_link_and_by_its_keys(page: Page) -> None:
    await page.goto("/")
    await expect(page.get_by_role("heading", name="Now", exact=True)).to_be_visible()
    for name in PAGES:
        await page.get_by_role("navigation").get_by_role("link", name=name).click()
        await expect(page.get_by_role("heading", name=name, exact=True, level=1)).to_be_visible()
        await expect(page.get_by_role("navigation").get_by_role("link", name=name)).to_have_attribute(
            "aria-current", "page"
        )
        assert await page.title() == f"{name} – Slipstream"
    await page.keyboard.press("g")
    await page.keyboard.press("t")
    await expect(page.get_by_role("heading", name="Tasks", exact=True, level=1)).to_be_visible()
    await page.go_back()
    await expect(page.get_by_role("heading", name="Settings", exact=True, level=1)).to_be_visible()
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog", name="Keys")).to_contain_text("Learning")
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_have_count(0)


async def test_a_place_that_is_none_says_so_and_shows_a_way_on(page: Page) -> None:
    await page.goto("/#/nowhere")
    await expect(page.get_by_role("heading", name="Nothing to see here")).to_be_visible()
    await page.get_by_role("main").get_by_role("link", name="Now").click()
    await expect(page.get_by_role("heading", name="Now", exact=True)).to_be_visible()


async def test_colours_follow_the_system_until_the_reader_chooses(page: Page) -> None:
    await page.emulate_media(color_scheme="dark")
    await page.goto("/")
    body, ground = page.locator("body"), "getComputedStyle(document.body).backgroundColor"
    await expect(page.get_by_role("button", name="auto")).to_be_visible()
    dark = await page.evaluate(ground)
    await page.get_by_role("button", name="auto").click()
    await expect(body).not_to_have_css("background-color", dark)
    light = await page.evaluate(ground)
    await page.reload()
    await expect(page.get_by_role("button", name="light")).to_be_visible()
    await expect(body).to_have_css("background-color", light)
    await page.get_by_role("button", name="light").click()
    await expect(body).to_have_css("background-color", dark)


async def test_a_sidecar_that_stops_is_told_of_and_found_again(page: Page) -> None:
    await page.route("**/session", lambda route: route.abort())
    await page.goto("/")
    await expect(page.get_by_role("alert")).to_contain_text("does not answer")
    await page.unroute("**/session")
    await page.get_by_role("button", name="Try again").click()
    await expect(page.get_by_role("heading", name="Now", exact=True)).to_be_visible()


async def test_the_browser_runs_no_markup_that_a_script_would_make(page: Page) -> None:
    bare = await page.context.new_page()  # in which a violation does not fail the test
    await bare.goto("/")
    refused = await bare.evaluate("""() => {
        try {
            document.body.insertAdjacentHTML("beforeend", "<b>x</b>");
            return "made";
        } catch (error) {
            return error.name;
        }
    }""")
    assert refused == "TypeError"


async def test_nothing_of_another_host_is_asked_for(page: Page, site: Loop) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for name in PAGES:
        await page.goto(f"/#/{name.lower()}")
        await expect(page.get_by_role("heading", name=name, exact=True, level=1)).to_be_visible()
    assert asked
    assert [url for url in asked if not url.startswith(site.url)] == []
