"""A real browser in front of a sidecar that has something to show.

A test takes `page`, a tab of its own in which any error of a script, and any violation of the page's policy, fails the
test; and `site`, the sidecar, which the tests of a module share. Their module says:

    pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from browser_tab import browser_path, tab
from filled_site import filled_site, talk
from loops import Loop
from playwright.async_api import Browser, Page, async_playwright


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
