"""`slipstream show` against a running sidecar."""

from __future__ import annotations

import json
import re

import pytest
from commands import slipstream
from loops import Loop, RunLoop
from rich.cells import cell_len
from scripted import ScriptedExplorer
from serving import until
from shared_by_tenants import RunShared

HOSTILE = "\x1b]0;owned\x07\x1b[2J\u202e desserts \x9b31m [bold red]x[/bold red] \u2066\x00\x7f\r"
"""A title, an emptied screen, reversed text, a colour by one byte, and rich's own markup."""

RAW = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff]")
"""Characters that no terminal may get of others."""


async def hostile_task(loop: Loop, **headers: str) -> None:
    """A task with all of that in it, in Chinese, with a line of 200,000 letters and half of a surrogate pair."""
    messages = [
        {"role": "system", "content": f"half \ud800 {HOSTILE}"},
        {"role": "user", "content": [{"type": "text", "text": f"您好，世界 {HOSTILE}" + 200_000 * "x"}]},
        {"role": "user", "content": f"北京在哪里？ {HOSTILE}"},
    ]
    named = {"content-type": "application/json", **headers}
    body = json.dumps({"model": "prod", "messages": messages})
    response = await loop.client.post("/v1/chat/completions", content=body, headers=named)
    assert response.status_code == 200, response.text


async def test_a_task_is_shown_with_what_became_of_it(run_loop: RunLoop) -> None:
    explorer = ScriptedExplorer(answer=f"北京市海淀区中关村大街一号院二号楼 {HOSTILE} {{n}}")
    async with run_loop(explorer, runs={"repeat_time": 2}, capture={"redact": []}) as loop:
        await hostile_task(loop, **{"x-slipstream-task-id": "order-1", "x-slipstream-session-id": "chat-7"})
        await until(lambda: loop.ready(2), 60)
        await loop.commit()
        at = ("--url", loop.url)

        code, wide, err = await slipstream("show", "order-1", *at, columns=150)
        assert (code, err) == (0, "")
        assert re.search(r"^session +chat-7 of the tenant default *$", wide, re.M)
        assert re.search(r"^selected +yes: sampling *$", wide, re.M)
        assert "order-1.0  runs of one call, delivered in commit 1\n" in wide
        assert re.search(r"│ production +│ run 0 +│ run 1 +│", wide)
        assert re.search(r"│ reward     0\.500 █████ +│ reward     0\.500 █████ +│", wide)
        assert re.search(r"│   constant 0\.500 █████ +│   constant 0\.500 █████ +│", wide)
        assert re.search(r"^assistant  echo: 北京在哪里？", wide, re.M)

        _, narrow, _ = await slipstream("show", "order-1", *at, columns=60)
        assert {cell_len(line) for line in narrow.splitlines() if line.startswith(("┌", "│", "├", "└"))} == {60}
        assert len(re.findall(r"│ reward     0\.500 █████ ", narrow)) == 2

        for shown in (wide, narrow):
            assert not RAW.search(shown)
            assert "\\x1b]0;owned\\x07\\x1b[2J\\u202e desserts" in shown
            assert "half \\ud800" in shown
            assert "[bold red]x[/bold red]" in shown
            assert re.search(r"x…\s+\(198,0\d\d more characters\)", shown)
            assert 1900 < shown.count("x") < 2200
        run = (await loop.client.get("/tasks/order-1")).json()["groups"][0]["runs"][1]
        code, whole, _ = await slipstream("show", run["msg_id"], *at, "--full", columns=150)
        assert re.search(r"│ run 0 +│ run 1 ← the answer asked for +│", whole)
        assert 99_000 < whole.count("x") < 100_200
        assert not RAW.search(whole)

        _, text, _ = await slipstream("show", "order-1", *at, "--json")
        assert json.loads(text) == (await loop.client.get("/tasks/order-1")).json()
        assert text.isascii()
        assert not RAW.search(text)

        unknown = "slipstream: there is no task, and no answer of a task, with the id '\\x1b/..'\n"
        assert await slipstream("show", "\x1b/..", *at) == (2, "", unknown)
        assert (await slipstream("show", "", *at))[0] == 2


async def test_a_run_that_failed_and_a_task_without_runs_say_why(run_loop: RunLoop) -> None:
    explorer = ScriptedExplorer()
    async with run_loop(explorer, runs={"repeat_time": 1}) as loop:
        explorer.faults["/v1/chat/completions"] = [400] * 5
        await loop.chat("hello", {"x-slipstream-task-id": "order-1"})

        async def failed() -> bool:
            return bool((await loop.status())["runs"].get("failed"))

        await until(failed)
        _, out, _ = await slipstream("show", "order-1", "--url", loop.url)
        assert re.search(r"│ failed +│\n│.*│ refused: POST /v1/chat/completions: 400 {.* +│\n", out), out
        await loop.chat("use the tool", {"x-slipstream-task-id": "order-2"})
        await until(lambda: loop.task("order-2"))
        _, out, _ = await slipstream("show", "order-2", "--url", loop.url)
        assert re.search(r"^selected +not decided yet *$", out, re.M)
        assert re.search(r'^assistant  → look_up\({"q": \d}\) *$', out, re.M)
        assert "It has no runs of the policy.\n" in out


@pytest.mark.slow
async def test_what_was_said_is_for_admins_and_a_tenant_can_be_named(run_shared: RunShared) -> None:
    async with run_shared() as shared:
        for agent in ("agent-a", "agent-b"):
            await shared.chat(agent, "my secret is heron", task_id="order-1")
        await shared.stored(2)
        at = ("--url", shared.loop.url, "--key")

        code, out, _ = await slipstream("show", "order-1", *at, shared.keys["backend-a"])
        assert code == 0
        assert "What was said is not shown: it takes a key with the role admin.\n" in out
        assert "heron" not in out
        code, _, err = await slipstream("show", "order-1", *at, shared.keys["admin"])
        assert code == 2
        assert "several tenants have 'order-1' (acme, beta)" in err
        _, out, _ = await slipstream("show", "order-1", *at, shared.keys["admin"], "--tenant", "beta")
        assert "of the tenant beta" in out
        assert "heron" in out
        code, _, err = await slipstream("tasks", *at, shared.keys["admin-a"], "--tenant", "beta")
        assert (code, "this key is of the tenant acme" in err) == (2, True)
        _, out, _ = await slipstream("tasks", *at, shared.keys["admin"], "--tenant", "beta", "--json")
        assert [json.loads(line)["tenant"] for line in out.splitlines()] == ["beta"]
        assert (await slipstream("show", "order-1", *at, shared.keys["annotator-a"]))[0] == 2
