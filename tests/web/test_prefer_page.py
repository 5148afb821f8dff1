"""The page Prefer: pairs are compared blind and by keyboard, and no verdict is lost."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from filled_site import filled_site, talk
from loops import Loop
from playwright.async_api import Page, Request, Route, expect
from serving import until

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Loop]:
    async with filled_site(tmp_path_factory.mktemp("site"), rollouts=False) as loop:
        await talk(loop)
        await loop.commit()
        await talk(loop, 3)
        yield loop


HELD = 8_000
"""Milliseconds that a verdict can be undone."""


def verdicts(page: Page) -> list[dict[str, Any]]:
    """What the page sends, as it sends it."""
    sent: list[dict[str, Any]] = []

    def see(request: Request) -> None:
        if request.method == "POST" and request.url.endswith("/preferences"):
            sent.append(json.loads(request.post_data or ""))

    page.on("request", see)
    return sent


async def begin(page: Page, name: str) -> None:
    await page.goto("/#/prefer")
    await page.get_by_label("Name").fill(name)
    await page.get_by_role("button", name="Go on").click()
    await expect(page.get_by_role("article", name="Answer 1")).to_be_visible()


async def pair_of(site: Loop, name: str, **query: str) -> dict[str, Any]:
    found = await site.client.get("/preferences/next", params={"annotator": name, **query})
    pair: dict[str, Any] = found.json()["pair"]
    return pair


async def judged(site: Loop, name: str) -> int:
    figures = (await site.client.get("/preferences")).json()
    return sum(one["judgements"] for one in figures["annotators"] if one["annotator"] == name)


async def test_a_pair_is_shown_in_the_apis_order_and_nothing_tells_whose_it_is(page: Page, site: Loop) -> None:
    await begin(page, "ann")
    pair = await pair_of(site, "ann")
    await expect(page.get_by_role("article", name="Answer 1")).to_contain_text(pair["a"]["content"])
    await expect(page.get_by_role("article", name="Answer 2")).to_contain_text(pair["b"]["content"])
    await expect(page.get_by_role("region", name="Conversation")).to_contain_text(pair["messages"][-1]["content"])
    await page.keyboard.press("d")
    for side in ("a", "b"):
        card = page.get_by_role("article", name=f"Answer {'ab'.index(side) + 1}")
        await expect(card).to_contain_text(pair[side]["content"])
        await expect(card.locator("ins, del")).to_have_count(0)
    first, second = [await page.get_by_role("article").nth(side).evaluate("x => x.className") for side in (0, 1)]
    assert first == second
    markup = await page.locator(".pair").evaluate("x => x.outerHTML")
    assert not [word for word in ("production", "policy", "version", "prod-", "run") if word in markup]


async def test_verdicts_are_typed_held_back_and_undone(page: Page, site: Loop) -> None:
    await page.clock.install()
    sent = verdicts(page)
    await begin(page, "bob")
    first = await pair_of(site, "bob")
    await page.keyboard.press("1")
    await expect(page.get_by_text("You said: answer 1 is better.")).to_be_visible()
    second = await pair_of(site, "bob", after=first["pair_id"])
    await expect(page.get_by_role("article", name="Answer 1")).to_contain_text(second["a"]["content"])
    await page.keyboard.press("u")
    await expect(page.get_by_role("region", name="Conversation")).to_contain_text(first["messages"][-1]["content"])
    await page.clock.fast_forward(2 * HELD)
    assert sent == []
    await page.get_by_label("Why, in words").fill("it says when: 1 2 t b s u")
    await page.keyboard.press("Enter")
    await page.keyboard.press("2")
    await expect(page.get_by_text("You said: answer 2 is better.")).to_be_visible()
    assert sent == []
    await page.clock.fast_forward(HELD + 100)
    await expect(page.get_by_text("You said")).to_have_count(0)
    await until(lambda: judged_at(site, "bob", 1))
    reason = "it says when: 1 2 t b s u"
    assert sent == [{"pair_id": first["pair_id"], "choice": "b", "annotator": "bob", "reason": reason}]
    await expect(page.get_by_text("1 judged today in this browser")).to_be_visible()


async def judged_at(site: Loop, name: str, number: int) -> bool:
    return await judged(site, name) == number


async def test_the_next_verdict_sends_the_last_one(page: Page, site: Loop) -> None:
    sent = verdicts(page)
    await begin(page, "cleo")
    for number, (key, choice) in enumerate((("t", "tie"), ("b", "both_bad"), ("s", "skip"))):
        before = await page.locator(".request").inner_text()
        await page.keyboard.press(key)
        await until(lambda: len(sent) == number)  # noqa: B023 - called within this turn
        await expect(page.locator(".request")).not_to_have_text(before)
        assert [one["choice"] for one in sent] == ["tie", "both_bad", "skip"][:number], choice


async def test_a_key_that_is_held_down_judges_one_pair(page: Page, site: Loop) -> None:
    sent = verdicts(page)
    await begin(page, "hans")
    first = await pair_of(site, "hans")
    second = await pair_of(site, "hans", after=first["pair_id"])
    await page.keyboard.down("1")
    await expect(page.get_by_text("You said: answer 1 is better.")).to_be_visible()
    await expect(page.get_by_role("article", name="Answer 1")).to_contain_text(second["a"]["content"])
    await page.keyboard.down("1")  # which the browser tells of as a repetition
    await page.keyboard.up("1")
    await page.keyboard.press("2")
    await expect(page.get_by_text("You said: answer 2 is better.")).to_be_visible()
    await expect(page.get_by_role("article", name="Answer 1")).to_be_visible()
    await page.keyboard.press("s")  # which sends the one before
    await until(lambda: len(sent) == 2)
    assert [(one["pair_id"], one["choice"]) for one in sent] == [(first["pair_id"], "a"), (second["pair_id"], "b")]


async def test_a_verdict_is_not_lost_when_the_page_goes_away(page: Page, site: Loop) -> None:
    await begin(page, "dora")
    await page.keyboard.press("1")
    await expect(page.get_by_text("You said")).to_be_visible()
    assert await judged(site, "dora") == 0
    await page.goto("about:blank")
    await until(lambda: judged_at(site, "dora", 1))
    await page.goto("/#/prefer")
    await page.get_by_role("button", name="another name").click()
    await page.get_by_label("Name").fill("erik")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("article", name="Answer 1")).to_be_visible()
    await page.get_by_role("button", name="Tie").click()
    await expect(page.get_by_text("You said")).to_be_visible()
    await page.get_by_role("link", name="Tasks").click()
    await until(lambda: judged_at(site, "erik", 1))


async def test_a_verdict_that_does_not_arrive_is_told_and_sent_again(page: Page, site: Loop) -> None:
    await begin(page, "fred")

    async def lost(route: Route) -> None:
        await (route.abort() if route.request.method == "POST" else route.continue_())

    await page.route("**/preferences", lost)
    await page.keyboard.press("1")
    await expect(page.get_by_text("You said")).to_be_visible()
    await expect(page.get_by_role("article", name="Answer 1")).to_be_visible()
    await page.keyboard.press("2")
    await expect(page.get_by_role("alert")).to_contain_text("does not answer")
    await page.unroute("**/preferences")
    await page.get_by_role("button", name="Try again").click()
    await expect(page.get_by_role("article", name="Answer 1")).to_be_visible()
    await until(lambda: judged_at(site, "fred", 1))


async def test_a_verdict_that_is_refused_is_told_and_the_next_pair_comes(page: Page, site: Loop) -> None:
    await begin(page, "gina")
    pair = await pair_of(site, "gina")
    given = {"pair_id": pair["pair_id"], "choice": "a", "annotator": "gina"}
    assert (await site.client.post("/preferences", json=given)).status_code == 200
    await page.keyboard.press("2")
    await expect(page.get_by_text("You said")).to_be_visible()
    await expect(page.get_by_role("article", name="Answer 1")).to_be_visible()
    await page.keyboard.press("s")
    await expect(page.get_by_text("Not counted. choice: gina has judged this pair already")).to_be_visible()
    await expect(page.get_by_role("article", name="Answer 1")).to_be_visible()


async def test_figures_are_for_who_may_read_them_and_no_pair_says_why(page: Page, site: Loop) -> None:
    await page.route("**/preferences/next*", lambda route: route.fulfill(json={"pair": None}))
    await page.goto("/#/prefer")
    await page.get_by_label("Name").fill("two words")
    await page.get_by_role("button", name="Go on").click()
    await expect(page.get_by_label("Name")).to_be_visible()
    await page.get_by_label("Name").fill("bob")
    await page.get_by_role("button", name="Go on").click()
    await expect(page.get_by_role("heading", name="There is no pair for you now")).to_be_visible()
    await expect(page.get_by_text("preferences.judgements")).to_be_visible()
    await page.get_by_text("Figures of all judgements").click()
    await expect(page.get_by_role("row", name="bob")).to_contain_text("1")
    await expect(page.get_by_role("row", name=re.compile("^production"))).to_be_visible()
    await page.unroute("**/preferences/next*")
    await page.get_by_role("button", name="Look again").click()
    await expect(page.get_by_role("article", name="Answer 1")).to_be_visible()
