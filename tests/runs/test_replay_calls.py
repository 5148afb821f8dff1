"""Calls of an agent replay: what the Explorer is asked, and how its answer passes."""

from __future__ import annotations

import asyncio

import pytest
from loops import RunLoop
from replaying import BODY, ask, finish, open_runs, replay, sdk
from scripted import ScriptedExplorer
from serving import until
from starlette.requests import Request
from starlette.responses import Response


@pytest.mark.slow
async def test_the_explorer_is_asked_under_the_policys_name_and_hears_nothing_of_the_caller(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        [run] = (await open_runs(loop))["runs"]
        async with sdk(loop, run) as client:
            await ask(client, temperature=0.3, user="somebody", metadata={"of": "production"}, n=2)
            assert (await client.models.list()).data[0].id == "slipstream-policy"
        assert loop.explorer.chats == [
            {"messages": BODY["messages"], "temperature": 0.3, "n": 2, "model": "/models/policy"}
        ]
        assert "authorization" not in loop.explorer.headers[0]
        assert not [name for name in loop.explorer.headers[0] if name.startswith("x-stainless")]
        await finish(loop, reward=1)
        assert (await loop.commit())["experiences"] == 2, "the Explorer keeps an experience of each choice"


async def test_a_stream_passes_as_it_arrives_and_is_kept(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        [run] = (await open_runs(loop))["runs"]
        loop.explorer.pace.clear()
        async with sdk(loop, run) as client:
            stream = await client.chat.completions.create(
                model="gpt-4o", messages=BODY["messages"], stream=True, stream_options={"include_usage": True}
            )
            first = await anext(aiter(stream))
            loop.explorer.pace.set()
            text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])
        assert text == "policysays1"
        assert loop.explorer.chats[0]["stream_options"] == {"include_usage": True}
        assert (await finish(loop, reward=1))["msg_ids"] == [first.id]


async def test_calls_are_in_the_order_in_which_they_began(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        [run] = (await open_runs(loop))["runs"]
        loop.explorer.pace.clear()
        async with sdk(loop, run) as client:
            slow = await client.chat.completions.create(model="m", messages=BODY["messages"], stream=True)
            chunks = aiter(slow)
            first = await anext(chunks)
            second = await ask(client)
            loop.explorer.pace.set()
            async for _ in chunks:
                pass
        assert (await finish(loop, reward=1))["msg_ids"] == [first.id, second]


@pytest.mark.slow
async def test_a_reload_of_the_explorer_is_waited_for(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        [run] = (await open_runs(loop))["runs"]
        loop.explorer.faults["/v1/models"] = [503]
        loop.explorer.faults["/v1/chat/completions"] = [503, 500]
        async with sdk(loop, run, max_retries=0) as client:
            await ask(client)
        assert (await finish(loop, reward=1))["state"] == "scored"


async def test_a_model_of_another_name_is_found_again(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        [run] = (await open_runs(loop))["runs"]
        async with sdk(loop, run, max_retries=0) as client:
            await ask(client)
            loop.explorer.model = "/models/another"
            loop.explorer.faults["/v1/chat/completions"] = [404]
            await ask(client)
        assert loop.explorer.chats[-1]["model"] == "/models/another"


@pytest.mark.slow
async def test_a_call_under_the_old_name_is_asked_again_though_others_were_so_before_it(run_loop: RunLoop) -> None:
    class Restarted(ScriptedExplorer):
        slow = asyncio.Event()
        refused = 0

        async def _chat(self, request: Request) -> Response:
            body = await request.json()
            if body["model"] == self.model:
                return await super()._chat(request)
            self.refused += 1
            if body["messages"][0]["content"] == "slow":
                await self.slow.wait()
            return Response(status_code=404)

    explorer = Restarted()
    async with run_loop(explorer) as loop:
        [run] = (await open_runs(loop))["runs"]
        async with sdk(loop, run, max_retries=0) as client:
            await ask(client)
            explorer.model = "/models/another"
            slow = asyncio.create_task(ask(client, "slow"))
            await until(lambda: explorer.refused)
            await ask(client)
            explorer.slow.set()
            await slow
        assert len((await finish(loop, reward=1))["msg_ids"]) == 3


@pytest.mark.sampled(1)
@pytest.mark.parametrize("path", ["embeddings", "completions", "messages/count_tokens", "chat/other"])
async def test_what_the_policy_model_has_not_is_said_in_words(run_loop: RunLoop, path: str) -> None:
    async with run_loop() as loop:
        [run] = (await open_runs(loop))["runs"]
        response = await loop.client.post(f"{run['base_url']}/{path}", json=BODY)
        assert response.status_code == 404
        assert response.json()["error"]["message"].endswith(f"the policy model has no {path}")
        assert (await replay(loop))["runs"][0]["state"] == "open"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "chat/completions", "POST"),
        ("PUT", "chat/completions", "POST"),
        ("POST", "models", "GET"),
        ("DELETE", "models", "GET"),
    ],
)
async def test_another_method_on_what_a_run_answers_is_told_which_to_use(
    run_loop: RunLoop, method: str, path: str, allowed: str
) -> None:
    async with run_loop() as loop:
        [run] = (await open_runs(loop))["runs"]
        response = await loop.client.request(method, f"{run['base_url']}/{path}")
        assert (response.status_code, response.headers["allow"]) == (405, allowed)
        assert response.json()["error"]["code"] == "http_error"
        assert (await replay(loop))["runs"][0]["state"] == "open"
