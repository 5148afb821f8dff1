"""Signing in to the page with keys of each role: what is shown, and what ends a session."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
import yaml
from browser_tab import tab
from filled_site import filled_site, talk
from loops import Loop
from playwright.async_api import Browser, Page, expect
from serving import until

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

ROLES = ("proxy", "viewer", "operator", "annotator", "admin")
KEYS = {role: f"slp_{secrets.token_urlsafe(32)}" for role in ROLES}

SEEN = {
    "viewer": {"Now", "Tasks", "Learning", "Versions", "Data"},
    "operator": {"Now", "Tasks", "Learning", "Versions", "Data"},
    "annotator": {"Prefer"},
    "admin": {"Now", "Tasks", "Learning", "Versions", "Prefer", "Data", "Audit", "Settings"},
}


def write_keys(path: Path, *roles: str) -> None:
    path.write_text(yaml.safe_dump([{"name": role, "roles": [role], "key": KEYS[role]} for role in roles]))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def keys_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "keys.yaml"
    write_keys(path, *ROLES)
    return path


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def guarded(tmp_path_factory: pytest.TempPathFactory, keys_file: Path) -> AsyncIterator[Loop]:
    async with filled_site(tmp_path_factory.mktemp("guarded"), access={"keys_file": str(keys_file)}) as loop:
        await talk(loop, 4, {"x-slipstream-key": KEYS["admin"]})
        yield loop


@asynccontextmanager
async def visitor(browser: Browser, site: Loop) -> AsyncIterator[Page]:
    context = await browser.new_context(base_url=site.url)
    async with tab(context) as page:
        yield page
    await context.close()


async def sign_in(page: Page, key: str) -> None:
    await page.get_by_label("Key", exact=True).fill(key)
    await page.get_by_role("button", name="Sign in").click()


@pytest.mark.parametrize("role", SEEN)
async def test_a_key_shows_the_pages_of_its_role(browser: Browser, guarded: Loop, role: str) -> None:
    async with visitor(browser, guarded) as page:
        await page.goto("/")
        await sign_in(page, KEYS[role])
        links = page.get_by_role("navigation").get_by_role("link")
        await expect(links.first).to_be_visible()
        assert set(await links.all_inner_texts()) == SEEN[role]
        decides = role in ("operator", "admin")
        if "Now" in SEEN[role]:
            await expect(page.get_by_role("heading", name="Who answers users")).to_be_visible()
            await expect(page.get_by_role("button", name="Kill")).to_have_count(int(decides))
            await page.goto("/#/tasks/order-1040")
            told = page.get_by_text("You answer the customers of a shop")
            if role == "admin":
                await expect(told.first).to_be_visible()
            else:
                await expect(page.get_by_role("main")).to_contain_text("admin")
                await expect(told).to_have_count(0)
        kept = await page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])")
        assert "slp_" not in kept
        assert "slipstream_session" not in kept, "scripts do not see the cookie"


async def test_a_wrong_key_is_told_and_the_page_stays_closed(browser: Browser, guarded: Loop) -> None:
    async with visitor(browser, guarded) as page:
        await page.goto("/#/tasks/order-1040")
        await sign_in(page, "slp_" + "x" * 40)
        await expect(page.get_by_role("alert")).to_contain_text("not valid here")
        await sign_in(page, KEYS["admin"])
        await expect(page.get_by_text("You answer the customers of a shop").first).to_be_visible()
        await page.reload()
        await expect(page.get_by_text("You answer the customers of a shop").first).to_be_visible()
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_role("heading", name="Slipstream")).to_be_visible()
        await page.reload()
        await expect(page.get_by_label("Key", exact=True)).to_be_visible()


async def test_a_key_without_a_page_says_so(browser: Browser, guarded: Loop) -> None:
    async with visitor(browser, guarded) as page:
        await page.goto("/")
        await sign_in(page, KEYS["proxy"])
        await expect(page.get_by_role("heading", name="Nothing to see here")).to_be_visible()


async def taken_away(page: Page, keys_file: Path, role: str) -> None:
    """Take the key away by which the page is signed in."""
    write_keys(keys_file, *(other for other in ROLES if other != role))

    async def ended() -> bool:  # the file is looked at once a second
        return (await page.context.request.get("status")).status == 401

    await until(ended)


async def test_a_key_that_is_taken_away_ends_its_session_where_one_was(
    browser: Browser, guarded: Loop, keys_file: Path
) -> None:
    async with visitor(browser, guarded) as page:
        await page.goto("/")
        await sign_in(page, KEYS["viewer"])
        await expect(page.get_by_role("heading", name="Now", exact=True)).to_be_visible()
        await taken_away(page, keys_file, "viewer")
        await page.get_by_role("navigation").get_by_role("link", name="Tasks").click()
        await expect(page.get_by_text("Your session has ended")).to_be_visible()
        await sign_in(page, KEYS["operator"])
        await expect(page.get_by_role("heading", name="Tasks", exact=True, level=1)).to_be_visible()


async def test_a_session_that_ended_is_told_of_where_only_the_stream_is_refused(
    browser: Browser, guarded: Loop, keys_file: Path
) -> None:
    async with visitor(browser, guarded) as page:
        await page.goto("/")
        await sign_in(page, KEYS["operator"])
        await expect(page.get_by_role("img", name="live", exact=True)).to_be_visible()
        hidden = """(value) => {
            Object.defineProperty(document, "hidden", {value, configurable: true});
            document.dispatchEvent(new Event("visibilitychange"));
        }"""
        await page.evaluate(hidden, True)
        await taken_away(page, keys_file, "operator")
        await page.evaluate(hidden, False)
        await expect(page.get_by_text("Your session has ended")).to_be_visible()
