"""The page Learning: the curve with what is missing in it, and two versions side by side."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from evaluated import ended, suite, write_cases
from filled_site import filled_site
from learned import learning_past
from loops import Loop
from playwright.async_api import Page, expect
from rollout_store import VERSION

from slipstream.evaluation.statistics import judged

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Loop]:
    """A sidecar whose versions answered tasks; the newest one was evaluated, beside production."""
    folder = tmp_path_factory.mktemp("learning")
    cases = write_cases(folder / "cases.jsonl", 6)
    sections: dict[str, Any] = {
        "evaluation": suite(cases, production="prod"),
        "rewards": {"calculators": ["exact_match"]},
    }
    async with filled_site(folder, more=lambda store: learning_past(store, VERSION), **sections) as loop:
        opened = await loop.client.post("/evaluations", json={"version": VERSION})
        await ended(loop, opened.json()["id"])
        yield loop


async def test_the_curve_has_each_source_and_says_what_makes_the_missing_one(page: Page, site: Loop) -> None:
    await page.goto("/#/learning")
    curve = page.locator("section", has=page.get_by_role("heading", name="Reward by version"))
    await expect(curve.get_by_role("img")).to_have_attribute(
        "aria-label",
        "Mean reward by version: training, held-out (fixed), production on fixed. The table below has the numbers.",
    )
    await expect(curve.locator("canvas")).to_be_visible()
    await expect(curve).to_contain_text("Live is missing")
    await expect(curve.get_by_role("link", name="A rollout")).to_have_attribute("href", "#/rollouts/new")
    await expect(curve.locator(".u-legend tr:visible")).to_have_count(4)  # the version, and three lines without limits
    await curve.get_by_text("The same in numbers").click()
    [newest] = [one for one in (await site.client.get("/learning")).json()["versions"] if one["version"] == VERSION]
    row = curve.get_by_role("row", name=f"version {VERSION}")
    await expect(row).to_contain_text(f"{newest['training']['mean']:.3f} ± {newest['training']['standard_error']:.3f}")
    await expect(row).to_contain_text(f"{newest['groups']['spread']:.3f}")
    await expect(row.get_by_role("link", name="fixed")).to_have_attribute("href", "#/evaluations/1")


async def test_each_figure_of_training_has_its_chart(page: Page) -> None:
    await page.goto("/#/learning")
    for name in (
        "Spread within groups",
        "Groups without a difference",
        "Length of answers",
        "KL",
        "Entropy",
        "Clip fraction",
    ):
        chart = page.locator("section.panel", has=page.get_by_role("heading", name=name))
        await expect(chart.locator("canvas")).to_be_visible()
    await expect(page.get_by_role("heading", name="Not known")).to_have_count(0)


async def test_two_versions_are_compared_down_to_the_tasks(page: Page, site: Loop) -> None:
    await page.goto("/#/learning")
    compared = page.locator("section", has=page.get_by_role("heading", name="Two versions compared"))
    await expect(compared.get_by_label("To (b)")).to_have_value("8")
    await compared.get_by_label("From (a)").select_option("0")
    await expect(page).to_have_url(f"{site.url}/#/learning?a=0&b=8")
    row = compared.get_by_role("row", name="training")
    await expect(row).to_contain_text("higher")
    found = (await site.client.get("/learning/compare?a=0&b=8")).json()
    await expect(row).to_contain_text(f"+{found['training']['difference']:.3f}")
    await expect(compared.get_by_role("heading", name="Tasks that both answered: 2")).to_be_visible()
    lowest = compared.locator("section", has=page.get_by_role("heading", name="What version 8 still fails"))
    first = found["lowest"][0]["task_id"]
    await expect(lowest.get_by_role("row").nth(1).get_by_role("link")).to_have_attribute("href", f"#/tasks/{first}")
    href = await lowest.get_by_role("link", name="All tasks with such rewards").get_attribute("href") or ""
    listed = (await site.client.get(f"/tasks?{href.partition('?')[2]}")).json()["tasks"]
    assert {one["task_id"] for one in found["lowest"][:5]} <= {one["task_id"] for one in listed}
    await expect(compared.get_by_role("row", name="shop").first).to_be_visible()
    await compared.get_by_role("button", name="Swap").click()
    await expect(page).to_have_url(f"{site.url}/#/learning?a=8&b=0")
    await expect(compared.get_by_role("row", name="training")).to_contain_text("lower")
    await page.goto("/#/learning?a=3&b=77")
    await expect(page.get_by_role("alert")).to_have_text("b: no version has the number 77Try again")


async def test_the_link_to_the_lowest_rewards_finds_those_that_are_alike_too(page: Page, site: Loop) -> None:
    found = (await site.client.get("/learning/compare?a=0&b=8")).json()
    await page.route("**/learning/compare?*", lambda route: route.fulfill(json=found))
    for mean, below in ((0.5, "0.51"), (0.29, "0.30"), (0.254, "0.26"), (0.0, "0.01")):
        found["lowest"] = [{**found["lowest"][0], "mean": mean}]
        await page.goto("/#/learning?a=0&b=8")
        await page.reload()
        link = page.get_by_role("link", name="All tasks with such rewards")
        await expect(link).to_have_attribute("href", f"#/tasks?version=8&reward_below={below}")


async def test_evaluations_that_cannot_be_compared_say_why(page: Page, site: Loop) -> None:
    compared = (await site.client.get("/learning/compare?a=0&b=8")).json()
    version = (await site.client.get("/versions/8")).json()
    reason = 'evaluation 1 has the parameters {}, and evaluation 2 {"max_tokens": 20}'
    nothing = {**judged([], 0, margin=0.05, level=0.05), "suite": "fixed", "reason": reason}
    suite = {**nothing, "evaluations": {"a": 1, "b": 2}, "a": None, "b": None, "gained": [], "lost": []}
    source = {**nothing, "source": "evaluation", "evaluation": 2, "against": "champion", "champion": 0}
    version["verdict"]["sources"] = [source]
    await page.route("**/learning/compare?*", lambda route: route.fulfill(json=compared | {"held_out": [suite]}))
    await page.route("**/versions/8", lambda route: route.fulfill(json=version))
    await page.goto("/#/learning?a=0&b=8")
    await expect(page.get_by_role("row", name="held-out: fixed")).to_contain_text(reason)
    await page.goto("/#/versions/8")
    await expect(page.get_by_role("row", name="evaluation 2 fixed")).to_contain_text(reason)


async def test_a_chart_of_nothing_but_zeros_has_an_axis_that_can_be_read(page: Page, site: Loop) -> None:
    found = (await site.client.get("/learning?limit=100")).json()
    for version in found["versions"]:
        version["metrics"] = version["metrics"] and version["metrics"] | {"clip_fraction": 0.0}
    await page.route("**/learning?*", lambda route: route.fulfill(json=found))
    await page.add_init_script("""
        window.written = [];
        const write = CanvasRenderingContext2D.prototype.fillText;
        CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
            window.written.push(String(text));
            return write.call(this, text, ...place);
        };
    """)
    await page.goto("/#/learning")
    clipped = page.locator("section.panel", has=page.get_by_role("heading", name="Clip fraction"))
    await expect(clipped.locator("canvas")).to_be_visible()
    shares = r"window.written.filter((text) => /[.]\d %$/.test(text))"  # no other chart has such
    await page.wait_for_function(f"{shares}.length > 1")
    written = await page.evaluate(shares)
    assert max(float(text.removesuffix("%")) for text in written) == 100


async def test_a_sidecar_without_versions_says_what_to_do(page: Page, site: Loop) -> None:
    await page.route("**/learning?*", lambda route: route.fulfill(json={"range": [0, 1], "versions": [], "next": None}))
    await page.goto("/#/learning")
    await expect(page.get_by_role("heading", name="No version yet")).to_be_visible()
    await expect(page.locator(".empty pre")).to_have_text("slipstream doctor")


async def test_an_evaluation_shows_its_cases(page: Page) -> None:
    await page.goto(f"/#/versions/{VERSION}")
    await page.get_by_role("link", name="evaluation 1").first.click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text(f"Evaluation 1 of version {VERSION} on fixed")
    await expect(page.get_by_role("row", name="c0")).to_contain_text("1.000")
