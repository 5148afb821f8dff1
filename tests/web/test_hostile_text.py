"""Conversations that attack the page: they stay text, and the page stays usable."""

from __future__ import annotations

from typing import Any

import pytest
from loops import Loop
from playwright.async_api import Page, expect

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

CORPUS = (
    "<script>hit()</script>",
    "<img src=x onerror=hit()>",
    "<svg/onload=hit()><style>*{display:none}</style>",
    '"><iframe srcdoc="<script>parent.hit()</script>"></iframe>',
    "<a href='javascript:hit()'>click</a> [click](javascript:hit()) ![x](http://127.0.0.1:9/leak.png)",
    "${hit()} {{hit()}} <%= hit() %> #{hit()}",
    "</textarea></title></script><script>hit()</script>",
    "&lt;script&gt;hit()&lt;/script&gt; &#x3c;script>hit()",
    "<base href=//127.0.0.1:9/><form action=//127.0.0.1:9/><button>Kill</button></form>",
    "\u202egnp.exe\u202c \u2066\u2067 \u200b\u200d\ufeff",
    "\u001b]8;;http://127.0.0.1:9/\u0007link\u001b]8;;\u0007 \u001b[2J\u001b[31mred\u0000\u0008",
    "Z" + "\u0301\u0316" * 500,
    "\U0001f600 \u0645\u0631\u062d\u0628\u0627 \u4f60\u597d",
    "__proto__ constructor toString " + "a" * 5000,
)


async def test_no_text_of_a_conversation_becomes_more_than_text(page: Page, site: Loop) -> None:
    hits: list[str] = []
    await page.expose_function("hit", lambda: hits.append("hit"))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    task = "attack <b>&amp; \u202e/../?#%2e\"'"
    headers = {"x-slipstream-session-id": "<i>session"}
    messages: list[dict[str, Any]] = []
    for text in CORPUS:
        messages += [{"role": "user", "content": text}, {"role": "assistant", "content": text}]
    called = {"name": "<b>tool", "arguments": '{"x": "<script>hit()</script>"}'}
    calls = [{"id": "<u>", "type": "function", "function": called}]
    messages.append({"role": "assistant", "content": None, "tool_calls": calls})
    messages += [{"role": "tool", "tool_call_id": "<u>", "content": CORPUS[0]}, {"role": "user", "content": CORPUS[1]}]
    await site.chat(messages, {**headers, "x-slipstream-task-id": "attack"})
    await site.client.post("/marks", json={"task_id": "attack", "labels": ["<script>hit()</script>", task[:60]]})
    await page.goto("/#/tasks/attack")
    shown = page.get_by_role("main")
    await expect(shown).to_contain_text("<img src=x onerror=hit()>")
    await expect(shown).to_contain_text("⟨U+202E⟩gnp.exe")
    await expect(shown).to_contain_text("⟨U+001B⟩[2J")
    await expect(shown.locator("script, iframe, img, base, style, svg[onload]")).to_have_count(0)
    await expect(page.get_by_role("navigation").get_by_role("link", name="Tasks")).to_be_visible()
    await page.goto("/#/tasks?session_id=%3Ci%3Esession")
    await expect(page.get_by_role("main")).to_contain_text("attack")
    assert hits == []
    assert [url for url in asked if not url.startswith(site.url)] == []


async def test_a_line_of_five_million_characters_does_not_hold_the_page_up(page: Page, site: Loop) -> None:
    await site.chat("x" * 5_000_000 + "the end", {"x-slipstream-task-id": "long", "x-slipstream-session-id": "long"})
    await page.goto("/#/tasks/long")
    more = page.get_by_role("button", name="Show more").first
    await expect(more).to_be_visible()
    assert len(await page.get_by_role("main").inner_text()) < 200_000
    await more.click()
    await page.get_by_role("navigation").get_by_role("link", name="Now").click()
    await expect(page.get_by_role("heading", name="Now", exact=True)).to_be_visible()
