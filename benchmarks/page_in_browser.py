"""The page in a real browser: how fast it paints, pictures of each part of it, and a walk from a call to a promotion.

    PYTHONPATH=tests/support python benchmarks/page_in_browser.py paint
    PYTHONPATH=tests/support python benchmarks/page_in_browser.py walk docs/images/page-walk.gif
    PYTHONPATH=tests/support python benchmarks/page_in_browser.py pictures docs/images --url http://127.0.0.1:8100

`paint` and `walk` start a sidecar over scripted models; `pictures` looks at one that runs, such as that of
`make demo-page`. Needs a Chromium, and tests/support for what starts the sidecar.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import statistics
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from browser_tab import browser_path
from filled_site import filled_site, talk
from loops import Loop
from PIL import Image
from playwright.async_api import Browser, Page, async_playwright, expect

SIZE = {"width": 1280, "height": 860}

LOADS = 20
"""Loads that are measured: each by a browser that has kept nothing."""

_WHOLE = ("learning", "data", "dataset")
"""Pages that are kept to their end."""

COLOURS = 128
"""Colours of a picture: it is text on plain ground, and a third as large so."""


@asynccontextmanager
async def _browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=browser_path(), args=["--no-sandbox"])
        yield browser
        await browser.close()


@asynccontextmanager
async def _site() -> AsyncIterator[Loop]:
    with tempfile.TemporaryDirectory() as folder:
        async with filled_site(Path(folder)) as loop:
            await talk(loop)
            await loop.commit()
            yield loop


async def paint() -> None:
    """Print the median and the worst time to the first paint with content, and what was transferred."""
    times, shown, sizes = [], [], []
    async with _site() as loop, _browser() as browser:
        for _ in range(LOADS):
            context = await browser.new_context(viewport=SIZE)  # type: ignore[arg-type]
            page = await context.new_page()
            await page.goto(loop.url)
            await page.get_by_role("heading", name="Who answers users").wait_for()
            found = await page.evaluate("""() => ({
                shown: performance.now(),
                paint: performance.getEntriesByName("first-contentful-paint")[0].startTime,
                bytes: performance.getEntries().reduce((sum, one) => sum + (one.transferSize || 0), 0),
            })""")
            times.append(found["paint"])
            shown.append(found["shown"])
            sizes.append(found["bytes"])
            await context.close()
    print(f"first contentful paint: median {statistics.median(times):.0f} ms, worst {max(times):.0f} ms of {LOADS}")
    print(f"figures are shown: median {statistics.median(shown):.0f} ms, worst {max(shown):.0f} ms")
    print(f"transferred: {statistics.median(sizes) / 1000:.0f} kB")


async def _keep(page: Page, path: Path, *, whole: bool = False) -> None:
    picture = Image.open(io.BytesIO(await page.screenshot(full_page=whole)))
    picture.convert("RGB").quantize(COLOURS).save(path, optimize=True)
    print(path)


async def pictures(folder: Path, url: str) -> None:
    """Keep a picture of each page, light and dark, of a sidecar that runs."""
    async with _browser() as browser:
        for scheme in ("light", "dark"):
            context = await browser.new_context(base_url=url, viewport=SIZE, color_scheme=scheme)  # type: ignore[arg-type]
            page = await context.new_page()
            versions = (await (await context.request.get("versions?limit=1")).json())["versions"]
            newest = versions[0]["version"] if versions else 0
            tasks = (await (await context.request.get("tasks?selected=true&limit=1")).json())["tasks"]
            task = tasks[0]["task_id"] if tasks else ""
            datasets = (await (await context.request.get("datasets")).json())["datasets"]
            dataset = {"dataset": f"data/{datasets[-1]['name']}"} if datasets else {}
            places = {
                "now": "now", "tasks": "tasks", "task": f"tasks/{task}", "learning": "learning", "versions": "versions",
                "version": f"versions/{newest}", "prefer": "prefer",
                "data": "data", **dataset, "audit": "audit", "settings": "settings",
            }  # fmt: skip
            for name, place in places.items():
                await page.goto(f"/#/{place}")
                await page.get_by_role("main").get_by_role("heading").first.wait_for()
                await page.wait_for_timeout(1500)  # charts, and what is read after the first list
                # what is read when closed details are opened waits for that
                await expect(page.locator(".loading:visible")).to_have_count(0, timeout=30_000)
                await _keep(page, folder / f"page-{name}-{scheme}.png", whole=name in _WHOLE)
            await context.close()


async def walk(path: Path) -> None:
    """Keep the way from a captured call to a promoted version as one picture that moves."""
    frames: list[Image.Image] = []

    async def frame(page: Page) -> None:
        await page.wait_for_timeout(700)
        frames.append(Image.open(io.BytesIO(await page.screenshot())).convert("RGB").quantize(COLOURS))

    async with _site() as loop, _browser() as browser:
        context = await browser.new_context(base_url=loop.url, viewport=SIZE)  # type: ignore[arg-type]
        page = await context.new_page()
        tasks = (await loop.client.get("/tasks?selected=true&limit=1")).json()["tasks"]
        for place in (
            "now",
            "tasks",
            f"tasks/{tasks[0]['task_id']}",
            "learning",
            "versions",
            "versions/8",
            "rollouts/1",
        ):
            await page.goto(f"/#/{place}")
            await page.get_by_role("main").get_by_role("heading").first.wait_for()
            await frame(page)
        await page.get_by_role("button", name="Promote", exact=True).first.click()
        dialog = page.get_by_role("dialog")
        await frame(page)
        for box in await dialog.get_by_role("checkbox").all():
            await box.check()
        await dialog.get_by_role("textbox").last.fill("8")
        await frame(page)
        await dialog.get_by_role("button", name="Promote").click()
        await page.get_by_role("dialog").wait_for(state="detached")
        await frame(page)
        await page.goto("/#/now")
        await frame(page)
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=1800, loop=0, optimize=True)
    print(path)


def main() -> None:
    """Do what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_subparsers(dest="what", required=True)
    what.add_parser("paint")
    what.add_parser("walk").add_argument("path", type=Path)
    looked_at = what.add_parser("pictures")
    looked_at.add_argument("folder", type=Path)
    looked_at.add_argument("--url", default="http://127.0.0.1:8100")
    arguments = parser.parse_args()
    if arguments.what == "paint":
        asyncio.run(paint())
    elif arguments.what == "walk":
        asyncio.run(walk(arguments.path))
    else:
        asyncio.run(pictures(arguments.folder, arguments.url))


if __name__ == "__main__":
    main()
