"""A report on models in a real browser: nothing in it runs or is fetched, and it follows light and dark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from browser_tab import tab
from commands import slipstream
from playwright.async_api import Browser
from serving import serving
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

HOSTILE = "<img src=http://127.0.0.1:1/x onerror=alert(1)><script>alert(2)</script>\"'><svg onload=alert(3)>"


async def chat(request: Request) -> Response:
    body = await request.json()
    said = "right" if body["model"].endswith("a") or "1" in body["messages"][0]["content"] else "wrong"
    message = {"role": "assistant", "content": said}
    return JSONResponse({"id": "x", "choices": [{"message": message}], "usage": {"completion_tokens": 2}})


async def test_a_report_runs_and_fetches_nothing(browser: Browser, tmp_path: Path) -> None:
    cases = tmp_path / "cases.jsonl"
    lines = [{"id": f"{HOSTILE}{number}", "prompt": f"{number}", "reference": "right"} for number in range(20)]
    cases.write_text("".join(json.dumps(line) + "\n" for line in lines))
    async with serving(Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])) as url:
        code, out, err = await slipstream(
            "evaluate", "--model", f"{url}/v1#{HOSTILE}a", "--model", f"{url}/v1#{HOSTILE}b", "--cases", str(cases),
            "--metrics", "end_to_end,tokens", "--report", str(tmp_path), "--fail-worse",
        )  # fmt: skip
    assert code == 1, out + err
    backgrounds = set()
    for scheme in ("light", "dark"):
        context = await browser.new_context(color_scheme="light" if scheme == "light" else "dark")
        async with tab(context) as page:
            asked: list[str] = []
            dialogs: list[str] = []
            page.on("request", lambda request, asked=asked: asked.append(request.url))
            page.on("dialog", lambda dialog, dialogs=dialogs: dialogs.append(dialog.message))
            await page.goto(f"file://{tmp_path}/report.html")
            await page.locator("summary").first.click()
            await page.get_by_text("onerror=alert(1)").first.wait_for()
            assert await page.locator("img, script").count() == 0
            assert await page.locator("svg.picture").count() == 2
            assert dialogs == []
            assert asked == [f"file://{tmp_path}/report.html"]
            backgrounds.add(await page.evaluate("getComputedStyle(document.body).backgroundColor"))
        await context.close()
    assert len(backgrounds) == 2
