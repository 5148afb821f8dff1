"""Each page by axe-core's rules of accessibility (WCAG 2.1 A and AA), light and dark, wide and narrow."""

from __future__ import annotations

import pytest
from axe_playwright_python.async_playwright import Axe
from loops import Loop
from playwright.async_api import Page, expect

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

PLACES = (
    "now", "tasks", "tasks/order-1040", "learning", "versions", "versions/8", "rollouts/1", "experiments/1", "prefer",
    "data", "data/support", "audit", "settings", "nowhere",
)  # fmt: skip

RULES = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}}


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_no_rule_of_accessibility_is_broken(page: Page, site: Loop, scheme: str) -> None:
    await page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    wrong = []
    for place in PLACES:
        await page.goto(f"/#/{place}")
        await expect(page.get_by_role("main").get_by_role("heading").first).to_be_visible()
        await page.wait_for_load_state("networkidle")
        found = await Axe().run(page, options=RULES)
        for broken in found.response["violations"]:
            where = broken["nodes"][0]["html"][:200]
            wrong.append(f"{place}: {broken['id']}: {broken['help']}: {where}")
    assert wrong == []


async def test_nothing_is_cut_on_a_narrow_screen(page: Page) -> None:
    """The page itself does not scroll sideways; wide tables do, in their panel."""
    await page.set_viewport_size({"width": 360, "height": 740})
    wide = []
    for place in PLACES:
        await page.goto(f"/#/{place}")
        await expect(page.get_by_role("main").get_by_role("heading").first).to_be_visible()
        await page.wait_for_load_state("networkidle")
        width = await page.evaluate("document.documentElement.scrollWidth")
        if width > 360:
            wide.append(f"{place}: {width} px")
    assert wide == []
