"""The page Data: data sets with their cards, versions side by side on a suite, and the ways in and out."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from evaluated import EXACT, Knowing, evaluated, suite, write_cases
from filled_site import TAUGHT, filled_site
from loops import Loop
from made_datasets import HOSTILE, make_datasets
from playwright.async_api import Locator, Page, expect
from rollout_store import VERSION

from slipstream.datasets.folder import delete

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

CASES = 12


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(folder: Path) -> AsyncIterator[Loop]:
    """A sidecar with two data sets, and three versions that were evaluated on one suite, each better than the last."""
    cases = write_cases(folder / "cases.jsonl", CASES)
    explorer = Knowing(0, 1)
    sections: dict[str, Any] = {"evaluation": suite(cases, production="prod"), "rewards": EXACT}
    async with filled_site(folder, rollouts=False, explorer=explorer, **sections) as loop:
        for number, knows in enumerate((4, 8, 11)):
            explorer.knows = set(range(knows))
            await evaluated(loop, VERSION + number)
        yield loop


def panel(page: Page, heading: str) -> Locator:
    return page.locator("section.panel", has=page.get_by_role("heading", name=heading, exact=True))


async def test_the_list_says_what_there_is_and_leads_on(page: Page, site: Loop) -> None:
    await page.goto("/#/data")
    listed = panel(page, "Data sets")
    row = listed.get_by_role("row", name="support")
    [found] = [one for one in (await site.client.get("/datasets")).json()["datasets"] if one["name"] == "support"]
    counts = found["counts"]
    for shown in ("sft", "trl", f"production {counts['sources']['production']}", "near duplicate", "and 1 more"):
        await expect(row).to_contain_text(shown)
    await expect(row.get_by_role("cell", name=str(counts["rows"]["train"]), exact=True)).to_be_visible()
    await expect(row.get_by_role("img", name="24 of ")).to_be_visible()
    await expect(row.get_by_role("link", name=str(TAUGHT + 1), exact=True)).to_have_attribute(
        "href", f"#/versions/{TAUGHT + 1}"
    )
    await expect(listed.get_by_role("row", name="preferred")).to_contain_text("none")
    await row.get_by_role("link", name="support").click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("support")


async def test_a_data_set_shows_its_card(page: Page, site: Loop) -> None:
    hits: list[str] = []
    page.on("dialog", lambda dialog: hits.append(dialog.message))
    made = (await site.client.get("/datasets/support")).json()
    manifest = made["manifest"]
    await page.goto("/#/data/support")
    await expect(page.get_by_role("term").filter(has_text="Reward").locator("..")).to_contain_text(
        f"{manifest['counts']['rewards']['mean']:.3f}"
    )
    held_out = panel(page, "Held out")
    await expect(held_out).to_contain_text("20.0 % of the sessions")
    await expect(held_out).to_contain_text("Reinforcement learning was kept off them too")
    reward = panel(page, "Rewards and lengths").get_by_role("row", name="Reward", exact=False).first
    for value in manifest["counts"]["rewards"]["quantiles"]:
        await expect(reward).to_contain_text(f"{value:.4g}")
    await expect(reward.get_by_role("img")).to_have_attribute(
        "aria-label", f"Reward: half of the values are from {manifest['counts']['rewards']['quantiles'][1]:.4g} to "
        f"{manifest['counts']['rewards']['quantiles'][3]:.4g}, the median is "
        f"{manifest['counts']['rewards']['quantiles'][2]:.4g}",
    )  # fmt: skip
    origin = panel(page, "Where it came from")
    await expect(origin.get_by_role("link", name="version 4")).to_have_attribute("href", "#/versions/4")
    await expect(origin.get_by_role("link", name="refund")).to_have_attribute("href", "#/tasks?label=refund")
    await expect(origin).to_contain_text("<img src=x onerror=alert(6)>⟨U+202E⟩${alert(7)}")
    await expect(panel(page, "What was left out").get_by_role("row", name="no reward")).to_contain_text("11")
    await expect(panel(page, "Privacy")).to_contain_text("card_number")
    await expect(panel(page, "Privacy").get_by_role("listitem")).to_contain_text("3 rows of 3 tasks")
    await expect(panel(page, "Files")).to_contain_text(manifest["digest"])
    use = panel(page, "Use it")
    data_file = json.loads(await use.get_by_role("group", name="data.yaml").inner_text())
    assert data_file == {"dataset": manifest["dataset"], "train": {"overlays": ["overlays/sft.yaml"]}}
    await expect(use).to_contain_text(f"--held-out {made['directory']}/support --report report")
    python = await use.get_by_role("group", name="Python").inner_text()
    assert f'load_dataset("{made["directory"]}/support", split="train")' in python
    await page.get_by_text("The card, as README.md has it").click()
    card = page.get_by_role("region", name="README.md")
    await expect(card).to_contain_text("pretty_name: support")
    await expect(page.get_by_role("main").locator("img, script")).to_have_count(0)
    assert HOSTILE in manifest["counts"]["labels"]
    assert hits == []


async def test_the_other_kind_says_what_is_different(page: Page) -> None:
    await page.goto("/#/data/preferred")
    await expect(panel(page, "Held out")).to_contain_text("Reinforcement learning may have been trained on them")
    await expect(panel(page, "Rewards and lengths")).to_contain_text("Reward of the rejected answer")
    await expect(panel(page, "Privacy")).to_contain_text("By no rule")
    await expect(panel(page, "Use it")).to_contain_text("overlays/dpo.yaml")
    await expect(panel(page, "Use it")).not_to_contain_text("--held-out")  # there is no such row


async def test_versions_stand_side_by_side_on_a_suite(page: Page, site: Loop) -> None:
    await page.goto("/#/data")
    compared = panel(page, "Evaluations side by side")
    heads = compared.get_by_role("columnheader")
    versions = [f"version {VERSION + number}" for number in range(3)]
    await expect(heads).to_have_text(["Measure", *versions, f"production beside {versions[-1]}"])
    reward = compared.get_by_role("row", name="Reward", exact=False).first
    await expect(reward.get_by_role("cell").nth(0)).to_contain_text(f"{4 / CASES:.3f}")
    await expect(reward.get_by_role("img")).to_have_count(4)
    found = (await site.client.get(f"/learning/compare?a={VERSION}&b={VERSION + 2}")).json()["held_out"][0]
    against = compared.get_by_role("row", name=f"Against version {VERSION}").get_by_role("cell").nth(2)
    await expect(against).to_contain_text(f"+{found['difference']:.3f}, from")
    await expect(against).to_contain_text(found["verdict"].replace("_", " "))
    await expect(against.get_by_role("link", name="which cases")).to_have_attribute(
        "href", f"#/learning?a={VERSION}&b={VERSION + 2}"
    )
    await compared.get_by_role("checkbox", name=str(VERSION), exact=True).uncheck()
    await expect(page).to_have_url(f"{site.url}/#/data?suite=fixed&versions={VERSION + 1}%2C{VERSION + 2}")
    await expect(compared.get_by_role("row", name=f"Against version {VERSION + 1}")).to_be_visible()
    await compared.get_by_role("checkbox", name=str(VERSION + 1), exact=True).uncheck()
    await expect(compared).to_contain_text("Choose two versions or more.")


async def test_the_ways_in_and_out_are_commands_and_links(page: Page) -> None:
    await page.goto("/#/data")
    await expect(panel(page, "Export")).to_contain_text("slipstream dataset export --data data.yaml")
    imports = panel(page, "Import")
    await expect(imports).to_contain_text("slipstream dataset import training.jsonl --format openai-chat")
    await imports.get_by_role("link", name="Langfuse").click()
    await expect(page.get_by_label("Label")).to_have_value("imported:langfuse")
    await expect(page.get_by_role("heading", name="Tasks", level=1)).to_be_visible()


async def test_a_command_is_copied(page: Page, site: Loop) -> None:
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=site.url)
    await page.goto("/#/data/support")
    await panel(page, "Use it").get_by_role("button", name="Copy").first.click()
    await expect(page.get_by_role("status").filter(has_text="Copied.")).to_be_visible()
    copied = await page.evaluate("navigator.clipboard.readText()")
    assert copied == "slipstream train --config data.yaml --estimate\nslipstream train --config data.yaml"


async def test_what_is_made_and_what_cannot_be_read_is_told_at_once(page: Page, site: Loop, folder: Path) -> None:
    directory = folder / "datasets"
    await page.goto("/#/data")
    listed = panel(page, "Data sets")
    await expect(listed.get_by_role("row", name="preferred")).to_be_visible()
    (directory / "broken").mkdir()
    (directory / "broken" / "manifest.json").write_text("{}")
    delete(directory / "preferred")
    await expect(listed.get_by_role("row", name="preferred")).to_have_count(0)
    await expect(listed.locator(".failure")).to_contain_text("broken cannot be read:")
    await page.goto("/#/data/broken")
    await expect(page.get_by_role("alert")).to_contain_text("manifest.json")
    await page.goto("/#/data/none")
    await expect(page.get_by_role("alert")).to_contain_text("there is no data set none")
    await page.get_by_role("link", name="All data sets").click()
    shutil.rmtree(directory)
    await page.goto("/#/data")
    await page.reload()
    await expect(page.get_by_role("heading", name="No data set yet")).to_be_visible()
    await expect(listed.get_by_role("group", name="Command")).to_have_text("slipstream dataset export --data data.yaml")
    make_datasets(directory)
    await expect(listed.get_by_role("row", name="support")).to_be_visible()


async def test_a_key_of_one_tenant_and_a_sidecar_without_a_folder_are_told_why(page: Page) -> None:
    refusal = "a data set is made of all tenants that it names; this key is of the tenant acme"
    error = {"error": {"message": refusal, "code": "slipstream_tenant_forbidden", "param": None}}
    await page.route("**/datasets", lambda route: route.fulfill(status=403, json=error))
    await page.goto("/#/data")
    await expect(panel(page, "Data sets")).to_contain_text(f"Not with this key{refusal}")
    await page.unroute("**/datasets")
    none: dict[str, Any] = {"directory": None, "datasets": [], "unreadable": []}
    await page.route("**/datasets", lambda route: route.fulfill(json=none))
    await page.reload()
    await expect(panel(page, "Data sets")).to_contain_text("datasets.directory")
    await page.unroute("**/datasets")
    await page.route("**/datasets", lambda route: route.abort())
    await page.reload()
    await expect(page.get_by_role("alert")).to_contain_text("does not answer")
    await page.unroute("**/datasets")
    await page.get_by_role("button", name="Try again").click()
    await expect(panel(page, "Data sets").get_by_role("row", name="support")).to_be_visible()


async def test_a_version_names_the_data_set_that_it_was_trained_on(page: Page) -> None:
    await page.goto(f"/#/versions/{TAUGHT}")
    await expect(panel(page, "Origin").get_by_role("link", name="support")).to_have_attribute("href", "#/data/support")
    await page.goto("/#/versions")
    row = page.get_by_role("row", name=f"version {TAUGHT}", exact=False).first
    await expect(row.get_by_role("link", name="support")).to_have_attribute("href", "#/data/support")
