"""A real browser in front of a sidecar that has something to show.

A test takes `page`, a tab of its own in which any error of a script, and any violation of the page's policy, fails the
test; and `site`, the sidecar, which the tests of a module share. Their module says:

    pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from filled_site import filled_site, talk
from loops import Loop
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, async_playwright

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def browser_path() -> str:
    """The browser of this machine. Fails where there is none, because what is marked slow must run."""
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    assert found is not None, "expected a Chromium (on Debian: apt-get install chromium-headless-shell); found none"
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=browser_path(), args=["--no-sandbox"])
        yield browser
        await browser.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Loop]:
    """The sidecar of a module's tests, in which users have talked."""
    async with filled_site(tmp_path_factory.mktemp("site")) as loop:
        await talk(loop)
        await loop.commit()
        await talk(loop, 3)
        yield loop


@asynccontextmanager
async def tab(context: BrowserContext) -> AsyncIterator[Page]:
    """A tab. Afterwards it fails if a script raised, or the page's policy was violated."""
    wrong: list[str] = []

    def logged(message: ConsoleMessage) -> None:
        # the browser logs each answer that is no success, which a page shows in words
        if message.type == "error" and "Failed to load resource" not in message.text:
            wrong.append(message.text)

    page = await context.new_page()
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", logged)
    page.set_default_timeout(10_000)
    yield page
    await page.close()
    assert wrong == []


@pytest_asyncio.fixture(loop_scope="module")
async def page(browser: Browser, site: Loop) -> AsyncIterator[Page]:
    context = await browser.new_context(base_url=site.url, viewport={"width": 1280, "height": 900})
    async with tab(context) as page:
        yield page
    await context.close()


Picture = Callable[[Page, str], Awaitable[None]]


@pytest.fixture
def picture(tmp_path: Path) -> Picture:
    """Keep a picture of a page, light and dark, for who looks at them: pytest's folder of the test has them."""

    async def keep(page: Page, name: str) -> None:
        for scheme in ("light", "dark"):
            await page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            await page.screenshot(path=tmp_path / f"{name}-{scheme}.png", full_page=True)

    return keep
