"""The pages Versions, Rollouts and Experiments: what is known, what is missing, and each decision by hand."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from filled_site import filled_site
from loops import Loop
from playwright.async_api import Locator, Page, expect
from rollout_store import VERSION

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Loop]:
    """A sidecar with versions, an experiment that is decided, and a rollout that holds; nobody asks it anything."""
    async with filled_site(tmp_path_factory.mktemp("versions")) as loop:
        yield loop


async def rollout_of(site: Loop, number: int) -> dict[str, Any]:
    found: dict[str, Any] = (await site.client.get(f"/rollouts/{number}")).json()
    return found


async def confirm(page: Page, button: str, typed: str | None = None) -> None:
    """Press a button, and answer its question."""
    await page.get_by_role("main").get_by_role("button", name=button, exact=True).first.click()
    dialog = page.get_by_role("dialog")
    act = dialog.get_by_role("button", name=button, exact=True)
    if typed is not None:
        await expect(act).to_be_disabled()
        await dialog.get_by_label(f"Type {typed} to go on").fill(typed)
    await act.click()


def panel(page: Page, heading: str) -> Locator:
    return page.locator("section.panel", has=page.get_by_role("heading", name=heading))


async def test_the_register_leads_to_each_version(page: Page, site: Loop) -> None:
    await page.goto("/#/versions")
    row = panel(page, "Register").get_by_role("row", name=f"version {VERSION}", exact=False).first
    await expect(row).to_contain_text("candidate")
    await expect(row).to_contain_text("the Explorer")
    await expect(panel(page, "Rollouts").get_by_role("row", name="rollout 1")).to_contain_text("holding")
    await expect(panel(page, "Experiments").get_by_role("row", name="eight")).to_contain_text("decided")
    await row.get_by_role("link", name=f"version {VERSION}").click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text(f"Version {VERSION}")
    await expect(panel(page, "Verdict")).to_contain_text("rollout 1")
    await expect(panel(page, "Its training step")).to_contain_text("Entropy0.760")
    await expect(panel(page, "Origin")).to_contain_text("version 7")
    await expect(panel(page, "Evaluations")).to_contain_text("It was not evaluated yet")
    await page.goto("/#/versions/99")
    await expect(page.get_by_role("alert")).to_contain_text("no version has the number 99")


async def test_a_version_is_named_and_refusals_are_told(page: Page, site: Loop) -> None:
    await page.goto("/#/versions/7")
    await page.get_by_role("button", name="Name it").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Name", exact=True).fill("77")
    await dialog.get_by_role("button", name="Name it").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("name:")
    await dialog.get_by_label("Name", exact=True).fill("champion")
    await dialog.get_by_role("button", name="Name it").click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("champion")
    assert (await site.client.get("/aliases")).json()["aliases"][0]["version"] == 7
    await confirm(page, "Keep")
    await expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("expected serving.checkpoints")
    await page.get_by_role("button", name="Cancel").click()
    await confirm(page, "Evaluate")
    await expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("evaluation.suites")
    await page.get_by_role("button", name="Cancel").click()
    await page.goto("/#/versions")
    names = panel(page, "Names")
    await names.get_by_role("button", name="show").click()
    await expect(names.get_by_role("listitem")).to_contain_text("version 7")
    await confirm(page, "Remove")
    await expect(names).to_contain_text("No version has a name")


async def test_a_rollout_shows_what_is_proven_and_says_what_is_missing(page: Page, site: Loop) -> None:
    found = await rollout_of(site, 1)
    await page.goto("/#/rollouts/1")
    await expect(page.locator(".stepper [aria-current=step]")).to_contain_text("50 %")
    why = panel(page, "Why it is not promoted yet")
    await expect(why).to_contain_text(f"about {found['missing']['units']} more sessions")
    for reason in found["missing"]["reasons"]:
        await expect(why.get_by_role("listitem").filter(has_text=reason)).to_be_visible()
    better = found["evidence"]["objective"]["better"]
    await expect(why).to_contain_text(f"about {better['missing']} more sessions are missing")
    failure = panel(page, "Guardrails and objective").get_by_role("row", name="failure")
    await expect(failure).to_contain_text("margin 0.02")
    drawn = failure.locator("svg")
    await expect(drawn).to_have_attribute("aria-label", re.compile(r"^failure: .*a loss of 0.02 matters$"))
    harm = float(await drawn.locator("rect.harm").get_attribute("x") or "0")
    zero = float(await drawn.locator("line.zero").get_attribute("x1") or "0")
    assert harm > zero, "more failures are the loss"
    feedback = panel(page, "Guardrails and objective").get_by_role("row", name="feedback").first
    assert await feedback.locator("svg rect.harm").get_attribute("x") == "0", "less feedback is the loss"
    await expect(page.locator(".timeline li")).to_have_text(
        [re.compile("^hold"), re.compile("^begin"), re.compile("^open")]
    )


async def test_a_rollout_is_decided_by_hand_with_the_versions_number(page: Page, site: Loop) -> None:
    await page.goto("/#/rollouts/1")
    await confirm(page, "Pause")
    await expect(page.get_by_role("heading", level=1)).to_contain_text("paused")
    await confirm(page, "Resume")
    await expect(page.locator(".timeline li").filter(has_text="resume")).to_be_visible()
    await confirm(page, "Advance", str(VERSION))
    await expect(page.locator(".stepper [aria-current=step]")).to_contain_text("95 %")
    assert (await rollout_of(site, 1))["share"] == 0.95
    await confirm(page, "Promote", str(VERSION))
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_role("alert")).to_contain_text("expected the verdict better or equal")
    await dialog.get_by_label("by force").check()
    await dialog.get_by_role("button", name="Promote", exact=True).click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("promoted")
    await confirm(page, "Kill", str(VERSION))
    await expect(page.get_by_text("Killed: production answers everybody.")).to_be_visible()
    assert (await site.client.get("/serving")).json()["killed"] is True
    await site.client.post("/serving/revive")
    await confirm(page, "Roll back", str(VERSION))
    await expect(page.get_by_role("heading", level=1)).to_contain_text("aborted")
    await expect(page.get_by_role("main").get_by_role("button", name="Pause")).to_have_count(0)
    assert (await site.client.get("/serving")).json()["share"] == 0


async def test_a_rollout_is_opened_by_a_form_with_each_error_at_its_field(page: Page, site: Loop) -> None:
    await page.goto(f"/#/rollouts/new?version={VERSION}")
    steps = page.get_by_label("Steps")
    await steps.fill("50, 20")
    await page.get_by_role("button", name="Open the rollout").click()
    await expect(page.locator(".field.wrong")).to_contain_text("steps: expected shares that rise from step to step")
    await expect(steps).to_have_attribute("aria-invalid", "true")
    await steps.fill("10, 60")
    await page.get_by_label("Time of a step").fill("soon")
    await page.get_by_role("button", name="Open the rollout").click()
    await expect(page.locator(".field.wrong")).to_contain_text("min_time:")
    await page.get_by_label("Time of a step").fill("1h")
    await page.get_by_label("Sessions of each arm in a step").fill("1,000")  # as this page writes it; not 1
    await page.get_by_role("button", name="Open the rollout").click()
    await expect(page.locator(".field.wrong")).to_contain_text("min_units:")
    await page.get_by_label("Sessions of each arm in a step").fill("1000")
    await page.get_by_label("margin of failure").fill("0.1")
    await page.get_by_label("slower than").fill("4s")
    await page.get_by_label("Feedback", exact=True).uncheck()
    await page.get_by_label("Decides").select_option("by_hand")
    await page.get_by_role("button", name="Open the rollout").click()
    await expect(page).to_have_url(f"{site.url}/#/rollouts/2")
    plan = (await rollout_of(site, 2))["plan"]
    assert (plan["steps"], plan["min_time"], plan["approval"]) == ([0.1, 0.6], 3600.0, "by_hand")
    assert plan["min_units"] == 1000
    assert plan["guardrails"]["failure"] == {"margin": 0.1}
    assert plan["guardrails"]["latency"] == {"margin": 0.05, "bound": 4.0}
    assert plan["guardrails"]["feedback"] is None
    await page.goto(f"/#/rollouts/new?version={VERSION}")
    await page.get_by_role("button", name="Open the rollout").click()
    await expect(page.locator("form > .failure")).to_contain_text("one at a time: abort it first")
    await page.goto("/#/rollouts/2")
    await confirm(page, "Abort", str(VERSION))
    await expect(page.get_by_role("heading", level=1)).to_contain_text("aborted")


async def test_what_a_second_person_has_to_approve_is_shown_and_approved(page: Page, site: Loop) -> None:
    waiting = {**(await rollout_of(site, 1)), "state": "holding", "ended_at": None, "promoted_at": None}
    waiting["asked"] = {"action": "promote", "by": "ann", "at": 1795160052.1, "force": False}
    approved: list[Any] = []

    async def answer(route: Any) -> None:
        if route.request.method == "POST":
            approved.append(route.request.post_data_json)
        await route.fulfill(json=waiting)

    await page.route("**/rollouts/1", answer)
    await page.route("**/rollouts/1/approve", answer)
    await page.goto("/#/rollouts/1")
    await expect(page.locator(".asked")).to_contain_text("ann has asked to promote it")
    await confirm(page, "Approve: promote", str(VERSION))
    await expect(page.get_by_text("Approved.", exact=True)).to_be_visible()
    assert approved == [{"action": "promote", "force": False, "at": 1795160052.1}]
    waiting["asked"] = {"action": "promote", "by": "ann", "at": 1795160060.2, "force": True}
    await page.reload()
    await expect(page.locator(".asked")).to_contain_text("ann has asked to promote it by force")
    await page.get_by_role("button", name="Approve: promote by force", exact=True).click()
    dialog = page.get_by_role("dialog", name=f"Approve: promote version {VERSION} by force")
    await expect(dialog).to_contain_text("By force: whatever the version's verdict is.")
    await dialog.get_by_label(f"Type {VERSION} to go on").fill(str(VERSION))
    waiting["asked"]["at"] = 1795160070.3  # while the question is open, she asks again
    await expect(dialog).to_have_count(0)
    assert len(approved) == 1, "nothing that the reader has not seen is approved"


async def test_an_experiment_is_started_shown_and_stopped(page: Page, site: Loop) -> None:
    await page.goto("/#/experiments/1")
    await expect(page.get_by_role("heading", level=1)).to_contain_text("Experiment 1: eight")
    feedback = panel(page, "What was measured").get_by_role("row", name="feedback")
    await expect(feedback).to_contain_text("primary")
    await expect(feedback).to_contain_text("proven")
    await expect(page.get_by_role("main")).to_contain_text(f"version {VERSION} wins")
    await page.goto(f"/#/experiments/new?version={VERSION}")
    await page.get_by_label("Name").fill("<b>week</b>")
    await page.get_by_label("Metrics").fill("feedback, speed")
    await page.get_by_role("button", name="Start the experiment").click()
    await expect(page.locator(".field.wrong")).to_contain_text("metrics.1:")
    await page.get_by_label("Metrics").fill("failure, feedback")
    await page.get_by_label("Share of b").fill("20")
    await page.get_by_label("Sessions of each arm").fill("1,000")
    await page.get_by_role("button", name="Start the experiment").click()
    await expect(page.locator(".field.wrong")).to_contain_text("min_units:")
    await page.get_by_label("Sessions of each arm").fill("1000")
    await page.get_by_label("Ends").select_option("by_hand")
    await page.get_by_role("button", name="Start the experiment").click()
    await expect(page).to_have_url(f"{site.url}/#/experiments/2")
    await expect(page.get_by_role("heading", level=1)).to_contain_text("<b>week</b>")
    started = (await site.client.get("/experiments/2")).json()
    assert (started["plan"]["share"], started["plan"]["metrics"]) == (0.2, ["failure", "feedback"])
    assert started["plan"]["min_units"] == 1000
    await confirm(page, "Stop: production answers", str(VERSION))
    await expect(page.get_by_role("heading", level=1)).to_contain_text("stopped")


async def test_whoever_may_only_read_sees_no_button_that_decides(page: Page, site: Loop) -> None:
    session = {"signed_in": True, "keys_needed": True, "key": "vera", "roles": ["viewer"], "tenant": None}
    await page.unroute("**/session")
    await page.route("**/session", lambda route: route.fulfill(json={**session, "content": False, "expires_at": None}))
    for place in ("versions", f"versions/{VERSION}", "rollouts/1", "experiments/1"):
        await page.goto(f"/#/{place}")
        await expect(page.get_by_role("heading", level=1)).to_be_visible()
        for button in (
            "Promote",
            "Kill",
            "Abort",
            "Keep",
            "Name it",
            "Evaluate",
            "Give b the traffic",
            "Open a rollout",
        ):
            await expect(page.get_by_role("main").get_by_text(button, exact=True)).to_have_count(0)
    await page.goto("/#/rollouts/new")
    await expect(page.get_by_role("main")).to_contain_text("It takes a key with the role operator.")


async def test_without_any_rollout_or_experiment_it_says_how_one_is_begun(page: Page) -> None:
    await page.route("**/rollouts?*", lambda route: route.fulfill(json={"rollouts": [], "next": None}))
    await page.route("**/experiments?*", lambda route: route.fulfill(json={"experiments": [], "next": None}))
    await page.goto("/#/rollouts")
    await expect(page.locator(".empty pre")).to_have_text("slipstream rollout start 8")
    await page.goto("/#/experiments")
    await expect(page.locator(".empty pre")).to_have_text("slipstream experiment start eight version:8")
