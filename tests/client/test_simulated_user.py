"""A simulated user: a model of its own that talks to the agent until the conversation ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import pytest
from guarded_tools import Production
from loops import RunLoop
from serving import serving, until

import slipstream_client as slipstream
from slipstream_client import webhooks
from slipstream_client.side_effects.recording import GuardedReplay
from slipstream_client.simulated_user import endpoint
from slipstream_client.simulated_user.user import SimulatedUser

NOT_SHADOWED: dict[str, Any] = {"selection": {"sampling": {"rate": 0.0}}}


def completion(text: Any, tokens: Any = 10, finish_reason: str = "stop") -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {"choices": [{"message": message, "finish_reason": finish_reason}], "usage": {"total_tokens": tokens}}


class UserModel:
    """The endpoint of the user's model: answers what it is told to, or else writes three messages and ends.

    Attributes:
        answers: text, a completion, a status, or None for a connection that is cut.
        requests: bodies, in their order.
        headers: of each request.
    """

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.url = ""
        self.status = 200
        self.hold: Callable[[], Any] | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body = b""
        while (part := await receive()).get("more_body") or part.get("body"):
            body += part.get("body", b"")
            if not part.get("more_body"):
                break
        self.requests.append(json.loads(body))
        self.headers.append({name.decode(): value.decode() for name, value in scope["headers"]})
        if self.hold is not None:
            await self.hold()
        answer = self.answers.pop(0) if self.answers else self._next(self.requests[-1])
        if answer is None:
            raise ConnectionResetError
        status = answer if isinstance(answer, int) else self.status
        content = {"error": {"message": f"status {status}"}} if isinstance(answer, int) else answer
        content = completion(content) if isinstance(content, str) else content
        raw = content if isinstance(content, bytes) else json.dumps(content).encode()
        await send(
            {"type": "http.response.start", "status": status, "headers": [(b"content-type", b"application/json")]}
        )
        await send({"type": "http.response.body", "body": raw})

    def _next(self, request: dict[str, Any]) -> str:
        said = sum(message["role"] == "assistant" for message in request["messages"])
        return f"message {said + 1}" if said < 3 else "Thanks. [END]"


@pytest.fixture
async def model(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[UserModel]:
    monkeypatch.setattr(endpoint, "PAUSES", (0.0, 0.0))
    monkeypatch.delenv(endpoint.KEY, raising=False)
    app = UserModel()
    async with serving(app) as url:
        app.url = f"{url}/v1"
        yield app


def user_of(model: UserModel, **options: Any) -> SimulatedUser:
    return SimulatedUser("small", "You want your money back.", model.url, **options)


async def test_a_conversation_goes_on_until_the_user_ends_it(model: UserModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(endpoint.KEY, "user-key")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-openai")
    user = user_of(model, seed=7, options={"temperature": 0.5})
    seen: list[list[str]] = []

    def respond(messages: list[dict[str, Any]]) -> str:
        seen.append([message["content"] for message in messages])
        messages.clear()  # its own copy
        return f"answer {len(seen)}"

    async def async_respond(messages: list[dict[str, Any]]) -> str:
        return respond(messages)

    for converse in (
        lambda: asyncio.to_thread(user.converse, respond, "message 1"),
        lambda: user.async_converse(async_respond, "message 1"),
    ):
        conversation = await converse()
        texts = [message["content"] for message in conversation.messages]
        assert texts == ["message 1", "answer 1", "message 2", "answer 2", "message 3", "answer 3"]
        assert (conversation.ended, conversation.closing, conversation.turns) == ("stop", "Thanks.", 3)
        assert (conversation.tokens, conversation.answers) == (30, ("answer 1", "answer 2", "answer 3"))
        assert seen == [texts[:1], texts[:3], texts[:5]]
        seen.clear()
    first, *_ = model.requests
    assert (first["model"], first["seed"], first["temperature"]) == ("small", 7, 0.5)
    system, opening, *rest = first["messages"]
    assert system["role"] == "system"
    assert system["content"].startswith("You want your money back.")
    assert "[END]" in system["content"]
    assert opening["role"] == "user"
    assert rest == [{"role": "assistant", "content": "message 1"}, {"role": "user", "content": "answer 1"}]
    assert {headers["authorization"] for headers in model.headers} == {"Bearer user-key"}


async def test_the_key_of_openai_goes_to_no_other_host(model: UserModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-openai")
    with slipstream.mark("gold", task_id="a", reference="42"):
        await asyncio.to_thread(user_of(model, max_turns=2).converse, lambda messages: "no", "hello")
    [headers] = model.headers
    assert "authorization" not in headers
    assert not any(name.startswith("x-slipstream") for name in headers)


async def test_own_loops_stop_functions_and_limits(model: UserModel) -> None:
    turns = user_of(model, max_turns=2, stop=None).turns("hello")
    async for message in turns:
        turns.reply({"content": f"you said {message}", "role": "assistant"})
    assert (turns.conversation.ended, turns.conversation.turns) == ("max_turns", 2)
    assert "[END]" not in model.requests[0]["messages"][0]["content"]

    def settled(messages: list[dict[str, Any]]) -> bool:
        return messages[-1]["content"] == "paid back"

    user = user_of(model, stop=settled)
    conversation = await user.async_converse(lambda messages: asyncio.sleep(0, "paid back"), "hello")
    assert (conversation.ended, conversation.turns, conversation.tokens) == ("stop", 1, 0)

    left = user.turns("hello")
    async for _ in left:
        with pytest.raises(TypeError, match="reply: expected the agent's text"):
            left.reply(None)
        left.reply("first")
        with pytest.raises(RuntimeError, match="has not written since"):
            left.reply("second")
        break
    assert left.conversation.ended is None
    with pytest.raises(RuntimeError, match="gone through once"):
        await anext(aiter(left))
    with pytest.raises(RuntimeError, match="has not answered the user's message"):
        async for _ in user.turns("hello"):
            pass


async def test_what_the_user_sees_of_tools_and_parts(model: UserModel) -> None:
    model.answers = ["[END]"]
    first = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": [{"type": "text", "text": "hello"}, {"type": "image_url", "image_url": {}}]},
    ]
    turn = [
        {"content": "let me see", "tool_calls": [{"id": "1"}]},
        {"role": "tool", "content": "secret stock", "tool_call_id": "1"},
        {"content": "two left"},
        {"content": ""},
    ]
    conversation = await user_of(model).async_converse(lambda messages: asyncio.sleep(0, turn), first)
    assert model.requests[0]["messages"][2:] == [
        {"role": "assistant", "content": "hello"},
        {"role": "user", "content": "two left\n\n(no answer)"},
    ]
    assert [message["role"] for message in conversation.messages[2:]] == ["assistant", "tool", "assistant", "assistant"]


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ([401], "401 status 401"),
        ([302], "302"),
        ([503, 429, 500], "500 status 500"),
        ([b"<html>"], "no chat completion"),
        ([b"[" * 100_000], "no chat completion"),
        ([{"choices": []}], "no chat completion"),
        ([{"choices": [7]}], "no chat completion"),
        ([completion(None)], "has no text"),
        ([completion("  \n")], "has no text"),
        ([completion(["text"])], "has no text"),
        ([completion("I want", finish_reason="length")], "not whole: finish_reason length"),
    ],
)
async def test_a_model_that_fails_is_an_error(model: UserModel, answers: list[Any], why: str) -> None:
    user = user_of(model)
    for converse in (
        lambda: asyncio.to_thread(user.converse, lambda messages: "no", "hello"),
        lambda: user.async_converse(lambda messages: asyncio.sleep(0, "no"), "hello"),
    ):
        model.answers = list(answers)
        with pytest.raises(slipstream.SimulatedUserError, match=why) as failed:
            await converse()
        assert failed.value.reason == "user_failed"


async def test_a_short_failure_is_tried_again_and_counts_in_the_budget(model: UserModel) -> None:
    model.answers = [503, None, "more"]
    user = user_of(model, max_turns=2, budget=slipstream.UserBudget(run_calls=3))
    assert (await user.async_converse(lambda messages: asyncio.sleep(0, "no"), "hello")).turns == 2
    model.answers = [503, 503]
    user = user_of(model, budget=slipstream.UserBudget(run_calls=2))
    with pytest.raises(slipstream.SimulatedUserError, match="spent 2 of 2 calls of this run"):
        await user.async_converse(lambda messages: asyncio.sleep(0, "no"), "hello")


async def test_functions_of_the_developer_that_fail_are_named(model: UserModel) -> None:
    for options, why in (({"stop": lambda messages: 1 / 0}, "stop: ZeroDivisionError"), ({}, "prompt: KeyError")):
        user = SimulatedUser("small", lambda context: context.metadata["goal"], model.url, **options)
        with pytest.raises(slipstream.SimulatedUserError, match=why):
            await user.async_converse(lambda messages: asyncio.sleep(0, "no"), "hello")
    user = SimulatedUser("small", lambda context: context.metadata["goal"], model.url, max_turns=2)
    with slipstream.mark(task_id="a", goal="You want a lamp."):
        await user.async_converse(lambda messages: asyncio.sleep(0, "no"), "hello")
    assert model.requests[0]["messages"][0]["content"].startswith("You want a lamp.")


async def test_tokens_that_are_not_counted_cannot_be_a_budget(model: UserModel) -> None:
    for tokens in (None, -5, "many", True):
        model.answers = [completion("more", tokens)]
        user = user_of(model, budget=slipstream.UserBudget(group_tokens=100))
        with pytest.raises(slipstream.SimulatedUserError, match="its model counts none"):
            await user.async_converse(lambda messages: asyncio.sleep(0, "no"), "hello")


async def test_the_sidecar_is_not_the_users_endpoint() -> None:
    slipstream.configure("http://127.0.0.1:8100")
    user = SimulatedUser("small", "You are in a hurry.", "http://localhost:8100/v1")
    with slipstream.replay("a", 0) as run, suppress(slipstream.SimulatedUserError):
        user.converse(lambda messages: "no", "hello")
    assert run.problem is not None
    assert "base_url is the sidecar's" in run.problem.why


def agent_of(client: Any) -> Callable[[list[dict[str, Any]]], Any]:
    async def respond(messages: list[dict[str, Any]]) -> str:
        answer = await client.chat.completions.create(model="prod", messages=messages)
        return str(answer.choices[0].message.content)

    return respond


async def test_an_agent_of_one_turn_is_run_again_as_whole_conversations(model: UserModel, run_loop: RunLoop) -> None:
    outputs: list[slipstream.Conversation] = []

    def reward(run: slipstream.RunResult) -> float:
        outputs.append(run.output)
        return 1.0 if run.output.ended == "stop" else 0.0

    async with run_loop(**NOT_SHADOWED) as loop:
        slipstream.configure(loop.url)
        runner = slipstream.TrainingRunner(slipstream.SamplingRate(1), reward, repeat_time=2)
        async with slipstream.async_openai() as client, runner:
            respond = runner.agent(user=user_of(model))(agent_of(client))
            with slipstream.mark(task_id="a"):
                answer = await respond([{"role": "user", "content": "message 1"}])
        group = (await loop.client.get("/runs/a")).json()
        task = await until(lambda: loop.task("a"))

    assert answer == "echo: message 1"
    assert runner.stats.finished == 2
    assert [len(run["msg_ids"]) for run in group["runs"]] == [3, 3]
    assert len(loop.explorer.chats) == 6, "the user's own calls are none of the policy's"
    assert len(task["calls"]) == 1, "nor captured as production's"
    assert len(model.requests) == 6
    assert not any(name.startswith("x-slipstream") for headers in model.headers for name in headers)
    for conversation in outputs:
        assert [text[:6] for text in conversation.answers] == ["policy"] * 3
        assert (conversation.ended, conversation.closing) == ("stop", "Thanks.")
    assert {one["reward"] for one in loop.explorer.trained} == {1.0}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("plain", [False, True])
async def test_a_run_whose_user_fails_in_the_middle_is_dropped_whatever_the_agent_does(
    model: UserModel, run_loop: RunLoop, plain: bool
) -> None:
    model.answers = ["message 2", 401]
    user = user_of(model)

    async with run_loop(**NOT_SHADOWED) as loop:
        slipstream.configure(loop.url)
        runner = slipstream.TrainingRunner(slipstream.SamplingRate(1), lambda run: 1.0, repeat_time=1)
        async with slipstream.async_openai() as client, runner:
            step = agent_of(client)

            @runner.agent
            async def agent() -> str:
                turns = user.turns("message 1")
                with suppress(slipstream.SlipstreamError):  # it makes the best of it
                    async for _ in turns:
                        turns.reply(await step(turns.messages))
                        if not slipstream.is_replay():
                            break
                return "done"

            def plain_agent() -> str:
                messages = [{"role": "user", "content": "message 1"}]
                with slipstream.openai() as sdk, suppress(slipstream.SlipstreamError):
                    user.converse(
                        lambda messages: (
                            str(
                                sdk.chat.completions.create(model="prod", messages=messages).choices[0].message.content  # type: ignore[arg-type]
                            )
                            if slipstream.is_replay()
                            else "hello"
                        ),
                        messages,
                    )
                return "done"

            if plain:
                model.answers = ["[END]", "message 2", 401]  # production's conversation is simulated as well
            with slipstream.mark(task_id="a"):
                assert await (asyncio.to_thread(runner.agent(plain_agent)) if plain else agent()) == "done"
        group = (await loop.client.get("/runs/a")).json()

    assert runner.stats.failed == {"user_failed": 1}
    [run] = group["runs"]
    assert run["state"] == "failed"
    assert "401 status 401" in run["error"]
    assert loop.explorer.trained == []


async def test_a_budget_is_of_a_run_and_of_its_group(model: UserModel) -> None:
    """A run needs three calls of ten tokens; each of two groups has two runs."""
    for budget, finished in (
        (slipstream.UserBudget(run_calls=3, group_calls=6, run_tokens=30, group_tokens=60), 4),
        (slipstream.UserBudget(run_calls=2), 0),
        (slipstream.UserBudget(run_tokens=20), 0),
        (slipstream.UserBudget(group_calls=5), 2),
        (slipstream.UserBudget(group_tokens=20), 0),
    ):
        user = user_of(model, budget=budget)
        problems = []
        for group in (Production("a"), Production("b")):
            for run_id in (0, 1):
                with group.replay(run_id) as run, suppress(slipstream.SimulatedUserError):
                    await user.async_converse(lambda messages: asyncio.sleep(0, "no"), "message 1")
                problems.append(run.problem.reason if run.problem is not None else None)
        assert problems.count(None) == finished, budget
        assert set(problems) <= {None, "user_budget"}


async def test_a_group_that_a_webhook_has_run_again_has_one_budget(
    model: UserModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run needs three calls. A run that comes a second time is the same one, of which the endpoint is told again."""
    monkeypatch.setattr(webhooks, "MOST_GROUPS", 2)
    user = user_of(model, budget=slipstream.UserBudget(group_calls=5))

    async def problem(task_id: str, run_id: int, group_id: str | None = None) -> str | None:
        with slipstream.replay(task_id, run_id, group_id=group_id) as run, suppress(slipstream.SimulatedUserError):
            await user.async_converse(lambda messages: asyncio.sleep(0, "no"), "message 1")
        return run.problem.reason if run.problem is not None else None

    assert [await problem("a", run_id, "a.replay") for run_id in (0, 1, 0)] == [None, "user_budget", "user_budget"]
    assert [await problem("a", run_id, "a.replay~1") for run_id in (2, 3)] == [None, "user_budget"]
    assert await problem("a", 0, "a.replay") == "user_budget"
    assert await problem("a", 0, "tenant=acme/a.replay") is None, "another tenant's task of this name"
    assert [await problem("b", run_id) for run_id in (0, 1, 0)] == [None, "user_budget", "user_budget"]
    assert [await problem(task_id, 1) for task_id in ("c", "d", "b")] == [None] * 3, "the oldest group is forgotten"


@pytest.mark.slow
async def test_a_user_that_the_agent_does_not_wait_for_drops_the_run(model: UserModel) -> None:
    asked = asyncio.Event()

    async def hang() -> None:
        asked.set()
        await asyncio.Event().wait()

    model.hold = hang
    with Production().replay() as run:
        talking = asyncio.create_task(user_of(model).async_converse(lambda messages: asyncio.sleep(0, "no"), "hello"))
        await asked.wait()
        talking.cancel()
        with suppress(asyncio.CancelledError):
            await talking
    assert run.problem is not None
    assert run.problem.reason == "user_failed"


async def test_hostile_text_and_keys_go_nowhere(model: UserModel, monkeypatch: pytest.MonkeyPatch) -> None:
    user = user_of(model, max_turns=2)
    conversation = await user.async_converse(lambda messages: asyncio.sleep(0, "a\ud800[END]"), "b\udfff")
    assert [message["content"] for message in model.requests[0]["messages"][2:]] == ["b?", "a?[END]"]
    assert conversation.turns == 2
    for key, answer in (("secret-key", {"error": {"message": "x" * 290 + "secret-key is wrong"}}), ("secret\nkey", "")):
        monkeypatch.setenv(endpoint.KEY, key)
        model.answers, model.status = [answer], 401
        with pytest.raises(slipstream.SimulatedUserError) as failed:
            await user.async_converse(lambda messages: asyncio.sleep(0, "no"), "hello")
        assert "secret" not in str(failed.value)


def test_a_conversation_that_a_replay_left_behind_does_not_go_on() -> None:
    slipstream.configure("http://127.0.0.1:9")
    user = SimulatedUser("small", "You are in a hurry.", "http://127.0.0.1:8/v1")
    with slipstream.replay("a", 0) as run:
        iterator = iter(turns := user.turns("hello"))
        next(iterator)
        turns.reply("no")
    from slipstream_client.context import Context, Replay, entered

    left = Context(replay=Replay("a", 0), ended=True)
    with entered(left), pytest.raises(slipstream.SimulatedUserError, match="has ended"):
        next(iterator)
    assert isinstance(run, GuardedReplay)
    assert run.problem is None


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"model": ""}, TypeError, "model: expected the name"),
        ({"prompt": None}, TypeError, "prompt: expected text or a function"),
        ({"base_url": "example.com"}, ValueError, "base_url: expected an address"),
        ({"base_url": "http://me:pw@example.com"}, ValueError, "base_url: expected an address without user"),
        ({"max_turns": 0}, ValueError, "max_turns: expected a whole number"),
        ({"stop": " "}, TypeError, "stop: expected a phrase"),
        ({"budget": 5}, TypeError, "budget: expected a UserBudget"),
        ({"seed": 0.5}, TypeError, "seed: expected a whole number"),
        ({"options": {"stream": True}}, ValueError, "options: stream is not among them"),
    ],
)
def test_arguments_that_cannot_be_used_are_named(
    arguments: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=f"^{message}"):
        SimulatedUser(**{"model": "small", "prompt": "You are in a hurry.", **arguments})


def test_what_a_simulated_user_cannot_talk_to_is_refused() -> None:
    runner = slipstream.TrainingRunner(slipstream.SamplingRate(1))
    user = SimulatedUser("small", "You are in a hurry.")

    def generator(messages: list[Any]) -> Any:
        yield ""

    for given, agent, why in (
        (user, lambda question: "", "user: expected an agent with a parameter `messages`"),
        (user, generator, "user: expected an agent that returns its answer"),
        ("me", lambda messages: "", "user: expected a SimulatedUser, found 'me'"),
    ):
        with pytest.raises(TypeError, match=f"^{why}"):
            runner.agent(user=given)(agent)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^budget\.run_calls: expected a whole number"):
        slipstream.UserBudget(run_calls=0)
    for first, kind in ((5, TypeError), ([], ValueError), ([{"role": "assistant", "content": "hi"}], ValueError)):
        with pytest.raises(kind, match=r"^first: expected"):
            user.turns(first)  # type: ignore[arg-type]
