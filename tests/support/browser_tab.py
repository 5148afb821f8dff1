"""A tab of a real browser, in which any error of a script fails the test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from debian import installed
from playwright.async_api import BrowserContext, ConsoleMessage, Page, expect

_PATIENCE = 30_000
"""Milliseconds that an event is waited for: a machine that runs all tests at once may stand still for some seconds."""


def browser_path() -> str:
    """The browser of this machine; Debian's, if there is none."""
    return installed(
        "chromium-headless-shell", "chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"
    )


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
    page.set_default_timeout(_PATIENCE)
    expect.set_options(timeout=_PATIENCE)
    yield page
    await page.close()
    assert wrong == []
