"""The same conversation in each dialect is the same prompt, token by token."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from loops import RunLoop
from serving import serving, until
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from slipstream.dialects.form import Dialect, Held
from slipstream.dialects.translators import TRANSLATORS
from slipstream.embedded.chat import prompt_ids
from slipstream.embedded.completions import ChatRequest
from slipstream.embedded.config import EngineConfig
from slipstream.embedded.experiences import ExperienceStore
from slipstream.embedded.serving import create_app

Json = dict[str, Any]

SYSTEM = "Be short. Wärme in °C 🙂"
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
}
NAME, ABOUT = "get_weather", "The weather of a city."
CHAT_TOOL = {"type": "function", "function": {"name": NAME, "description": ABOUT, "parameters": SCHEMA}}
RESPONSES_TOOL = {"type": "function", "name": NAME, "description": ABOUT, "parameters": SCHEMA}
MESSAGES_TOOL = {"name": NAME, "description": ABOUT, "input_schema": SCHEMA}

KNOWS_TOOLS = (
    "{% for tool in tools or [] %}{{ tool | tojson }}\n{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""As Qwen's: tools and calls as JSON."""


@pytest.fixture(params=["SmolLM2's template", "a template that knows tools"])
def tokenizer(tokenizer_files: Path, request: pytest.FixtureRequest) -> PreTrainedTokenizerBase:
    found: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(tokenizer_files)
    if request.param != "SmolLM2's template":
        found.chat_template = KNOWS_TOOLS
    return found


def ids_of(
    tokenizer: PreTrainedTokenizerBase, dialect: Dialect, request: Json, earlier: Held | None = None
) -> list[int]:
    """The prompt that the embedded Explorer makes of a request."""
    chat = json.loads(json.dumps(TRANSLATORS[dialect].chat_request(request, earlier)))
    asked = ChatRequest.model_validate(chat)
    return prompt_ids(tokenizer, asked.messages, asked.wanted_tools)


def call(number: int, arguments: str, *, text: str | None = None) -> Json:
    """A message of a chat's assistant, as the openai SDK has it with all its fields."""
    function = {"name": NAME, "arguments": arguments}
    calls = [{"id": f"call_{number}", "type": "function", "function": function}]
    nothing = dict.fromkeys(("refusal", "annotations", "audio", "function_call"))
    return {"role": "assistant", "content": text, "tool_calls": calls, **nothing}


def result(number: int, text: str) -> Json:
    return {"role": "tool", "tool_call_id": f"call_{number}", "content": text}


USER = {"role": "user", "content": "How is it in Bergen?"}

CONVERSATIONS: dict[str, list[Json]] = {
    "no tools": [
        USER,
        {"role": "assistant", "content": " Rain.\n", "refusal": None},
        {"role": "user", "content": "And now?"},
    ],
    "a call": [USER, call(0, '{"city":"Bergen","days":1}'), result(0, "rain"), {"role": "user", "content": "Oslo?"}],
    "text before a call": [USER, call(0, '{ "city": "Bergen" }', text="Let me look."), result(0, "rain")],
    "a call with an escape": [USER, call(0, '{"city": "Troms\\u00f8", "days": 1e0}'), result(0, "snø 🙂")],
    "a call without arguments": [USER, call(0, ""), result(0, "where?")],
    "a call in which nothing is": [USER, call(0, "{}"), result(0, "")],
    "arguments that are no JSON": [USER, call(0, '{"city": "Ber'), result(0, "what?")],
    "arguments that are no object": [USER, call(0, '["Bergen"]'), result(0, "what?")],
    "two calls at once": [
        USER,
        call(0, '{"city":"Bergen"}') | {"tool_calls": [call(n, '{"city":"Bergen"}')["tool_calls"][0] for n in (0, 1)]},
        result(0, "rain"),
        result(1, "snow"),
    ],
    "call after call": [
        USER,
        call(0, '{"city":"A"}'),
        result(0, "a"),
        call(1, '{"city":"B"}', text="So?"),
        result(1, "b"),
    ],
    "parts of text": [
        {"role": "user", "content": [{"type": "text", "text": "A file."}, {"type": "text", "text": "What is it?"}]},
        call(0, "{}"),
        {"role": "tool", "tool_call_id": "call_0", "content": [{"type": "text", "text": t} for t in ("one", "two")]},
    ],
}


def as_responses(messages: list[Json]) -> Json:
    """The request for `/v1/responses` of the same conversation, with items as the openai SDK has them."""
    items: list[Json] = []
    for number, message in enumerate(messages):
        role, content = message["role"], message["content"]
        if role == "user":
            texts = [content] if isinstance(content, str) else [part["text"] for part in content]
            items.append({"role": "user", "content": [{"type": "input_text", "text": text} for text in texts]})
        elif role == "tool":
            output = content
            if isinstance(content, list):
                output = [{"type": "input_text", "text": part["text"]} for part in content]
            items.append({"type": "function_call_output", "call_id": message["tool_call_id"], "output": output})
        else:
            if content is not None:
                part = {"type": "output_text", "text": content, "annotations": [], "logprobs": []}
                about = {"id": f"msg_{number}", "type": "message", "status": "completed", "role": "assistant"}
                items.append(about | {"content": [part]})
            for made in message.get("tool_calls", ()):
                about = {"id": f"fc_{made['id']}", "type": "function_call", "status": "completed"}
                items.append(about | {"call_id": made["id"], **made["function"]})
    return {"model": "m", "instructions": SYSTEM, "input": items, "tools": [RESPONSES_TOOL]}


def as_messages(messages: list[Json]) -> Json:
    """The request for `/v1/messages` of the same conversation; results of one turn are in one message."""
    said: list[Json] = []
    for message in messages:
        role, content = message["role"], message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) and content else content or []
        if role == "tool":
            block = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": blocks}
            role, blocks = "user", [block]
        for made in message.get("tool_calls", ()):
            try:
                given = json.loads(made["function"]["arguments"] or "{}")
            except ValueError:
                given = None
            if not isinstance(given, dict):
                given = {"INVALID_JSON": made["function"]["arguments"]}
            blocks = [*blocks, {"type": "tool_use", "id": made["id"], "name": NAME, "input": given}]
        if said and said[-1]["role"] == role == "user":
            said[-1]["content"] += blocks
        else:
            said.append({"role": role, "content": list(blocks)})
    return {"model": "m", "max_tokens": 9, "system": SYSTEM, "messages": said, "tools": [MESSAGES_TOOL]}


@pytest.mark.sampled
@pytest.mark.parametrize("messages", CONVERSATIONS.values(), ids=CONVERSATIONS.keys())
def test_the_same_conversation_is_the_same_prompt(tokenizer: PreTrainedTokenizerBase, messages: list[Json]) -> None:
    chat = {"model": "m", "messages": [{"role": "system", "content": SYSTEM}, *messages], "tools": [CHAT_TOOL]}
    expected = ids_of(tokenizer, Dialect.CHAT, chat)
    assert len(expected) > 50

    assert tokenizer.decode(ids_of(tokenizer, Dialect.RESPONSES, as_responses(messages))) == tokenizer.decode(expected)
    assert ids_of(tokenizer, Dialect.RESPONSES, as_responses(messages)) == expected
    assert tokenizer.decode(ids_of(tokenizer, Dialect.MESSAGES, as_messages(messages))) == tokenizer.decode(expected)
    assert ids_of(tokenizer, Dialect.MESSAGES, as_messages(messages)) == expected


POLICY_ANSWERS: dict[str, Json] = {
    "text": {"content": " Rain.\n"},
    "nothing": {"content": ""},
    "a call": {"content": None, "tool_calls": call(0, '{"city": "Tromsø", "days": 1}')["tool_calls"]},
    "text and a call": {"content": "So?", "tool_calls": call(0, '{"city": "A"}')["tool_calls"]},
    "a call without arguments": {"content": None, "tool_calls": call(0, "{}")["tool_calls"]},
    "arguments that are no JSON": {"content": None, "tool_calls": call(0, '{"city": "Ber')["tool_calls"]},
    "text with a thought": {"content": "Rain.", "reasoning_content": "It always rains in Bergen."},
}


@pytest.mark.sampled
@pytest.mark.parametrize("said", POLICY_ANSWERS.values(), ids=POLICY_ANSWERS.keys())
def test_an_answer_of_the_policy_comes_back_as_it_would_in_a_chat(
    tokenizer: PreTrainedTokenizerBase, said: Json
) -> None:
    """In a replay the agent sends back what the policy has answered; as items or blocks, or by the answer's id."""
    message: Json = {"role": "assistant", **said}
    reason = "tool_calls" if "tool_calls" in said else "stop"
    choice = {"index": 0, "message": message, "finish_reason": reason}
    completion = {"id": "c-1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    follows = [result(0, "rain")] if "tool_calls" in said else [{"role": "user", "content": "And now?"}]

    # an agent of the chat API sends no thoughts back
    echoed = {name: value for name, value in message.items() if name != "reasoning_content"}
    system = {"role": "system", "content": SYSTEM}
    chat = {"model": "m", "messages": [system, USER, echoed, *follows], "tools": [CHAT_TOOL]}
    expected = ids_of(tokenizer, Dialect.CHAT, chat)

    asked = as_responses([USER])
    response = json.loads(json.dumps(TRANSLATORS[Dialect.RESPONSES].answer(completion, asked)))
    more = as_responses(follows)["input"]
    whole = asked | {"input": [*asked["input"], *response["output"], *more]}
    assert ids_of(tokenizer, Dialect.RESPONSES, whole) == expected
    by_id = asked | {"input": more, "previous_response_id": "c-1"}
    assert ids_of(tokenizer, Dialect.RESPONSES, by_id, earlier=Held([USER, echoed])) == expected

    asked = as_messages([USER])
    answer = json.loads(json.dumps(TRANSLATORS[Dialect.MESSAGES].answer(completion, asked)))
    turn = {"role": "assistant", "content": answer["content"]}
    whole = asked | {"messages": [*asked["messages"], turn, *as_messages(follows)["messages"]]}
    assert ids_of(tokenizer, Dialect.MESSAGES, whole) == expected


class Weather:
    """A scripted production model that gives the same answers in all three dialects: a call of two tools with text
    before them, then what came of it, then an answer to one more question."""

    def app(self) -> Starlette:
        routes = {"/v1/chat/completions": self._chat, "/v1/responses": self._response, "/v1/messages": self._message}
        return Starlette(routes=[Route(path, endpoint, methods=["POST"]) for path, endpoint in routes.items()])

    def __init__(self) -> None:
        self._count = 0

    def _turn(self, last: Json) -> tuple[str, str, list[Json]]:
        """The answer's id, its text, and the input of each call."""
        self._count += 1
        text = json.dumps(last)
        if "Bergen" in text:
            return f"answer-{self._count}", "Let me look.", [{"city": "Tromsø", "days": 1}, {"city": "Oslo"}]
        return f"answer-{self._count}", "Rain and snow." if "snow" in text else "Sun.", []

    async def _chat(self, request: Request) -> Response:
        name, text, calls = self._turn((await request.json())["messages"][-1])
        message: Json = {"role": "assistant", "content": text, "refusal": None, "annotations": []}
        if calls:
            message["tool_calls"] = [
                {"id": f"call_{n}", "type": "function", "function": {"name": NAME, "arguments": json.dumps(given)}}
                for n, given in enumerate(calls)
            ]
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
        return JSONResponse(
            {"id": name, "object": "chat.completion", "created": 1, "model": "prod", "choices": [choice]}
        )

    async def _response(self, request: Request) -> Response:
        body = await request.json()
        name, text, calls = self._turn(body["input"][-1])
        part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        output: list[Json] = [
            {"id": f"rs_{name}", "type": "reasoning", "summary": [], "encrypted_content": "secret"},
            {"id": f"msg_{name}", "type": "message", "role": "assistant", "status": "completed", "content": [part]},
        ]
        output += [
            {"id": f"fc_{name}_{n}", "type": "function_call", "status": "completed", "call_id": f"call_{n}",
             "name": NAME, "arguments": json.dumps(given, separators=(",", ":"))}
            for n, given in enumerate(calls)
        ]  # fmt: skip
        about: Json = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": body["tools"], "error": None}
        head: Json = {"id": name, "object": "response", "created_at": 1, "model": "prod", "status": "completed"}
        return JSONResponse({**about, **head, "output": output})

    async def _message(self, request: Request) -> Response:
        name, text, calls = self._turn((await request.json())["messages"][-1])
        content: list[Json] = [
            {"type": "thinking", "thinking": "Where is that?", "signature": "signed"},
            {"type": "text", "text": text},
        ]
        content += [{"type": "tool_use", "id": f"call_{n}", "name": NAME, "input": c} for n, c in enumerate(calls)]
        about = {"type": "message", "role": "assistant", "model": "prod", "stop_sequence": None}
        reason = "tool_use" if calls else "end_turn"
        usage = {"input_tokens": 3, "output_tokens": 2}
        return JSONResponse({"id": name, **about, "content": content, "stop_reason": reason, "usage": usage})


RESULTS = {"call_0": "rain 🙂", "call_1": "snow"}
QUESTION, NEXT = "How is it in Bergen and Oslo?", "And tomorrow?"


async def chat_agent(url: str) -> list[str]:
    """One conversation of three calls; returns the ids of the answers."""
    said: list[Any] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]
    tools: Any = [CHAT_TOOL]
    ids: list[str] = []
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
        while True:
            answer = await client.chat.completions.create(model="prod", messages=said, tools=tools, max_tokens=4)
            ids.append(answer.id)
            if len(ids) == 3:
                return ids
            message = answer.choices[0].message
            said.append(message.model_dump())
            said += [{"role": "tool", "tool_call_id": made.id, "content": RESULTS[made.id]}
                     for made in message.tool_calls or []]  # fmt: skip
            if not message.tool_calls:
                said.append({"role": "user", "content": NEXT})


async def responses_agent(url: str, *, held: bool = False) -> list[str]:
    """The same; with `held` each request names the answer before it, and leaves out what was said."""
    said: list[Any] = [{"role": "user", "content": QUESTION}]
    asked: Json = {"model": "prod", "instructions": SYSTEM, "tools": [RESPONSES_TOOL], "max_output_tokens": 16}
    ids: list[str] = []
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
        while True:
            answer = await client.responses.create(input=said, **asked)
            ids.append(answer.id)
            if len(ids) == 3:
                return ids
            calls = [item for item in answer.output if item.type == "function_call"]
            more: list[Any] = [
                {"type": "function_call_output", "call_id": made.call_id, "output": RESULTS[made.call_id]}
                for made in calls
            ]
            more = more or [{"role": "user", "content": NEXT}]
            if held:
                asked["previous_response_id"], said = answer.id, more
            else:
                said += [*answer.output, *more]


async def responses_agent_held(url: str) -> list[str]:
    return await responses_agent(url, held=True)


async def messages_agent(url: str) -> list[str]:
    said: list[Any] = [{"role": "user", "content": QUESTION}]
    asked: Json = {"model": "prod", "system": SYSTEM, "tools": [MESSAGES_TOOL], "max_tokens": 4}
    ids: list[str] = []
    async with anthropic.AsyncAnthropic(base_url=url, api_key="k", max_retries=0) as client:
        while True:
            answer = await client.messages.create(messages=said, **asked)
            ids.append(answer.id)
            if len(ids) == 3:
                return ids
            results = [
                {"type": "tool_result", "tool_use_id": block.id, "content": RESULTS[block.id]}
                for block in answer.content
                if block.type == "tool_use"
            ]
            said += [
                {"role": "assistant", "content": answer.content},
                {"role": "user", "content": results or NEXT},
            ]


Agent = Callable[[str], Any]
AGENTS: dict[str, Agent] = {
    "chat": chat_agent,
    "responses": responses_agent,
    "responses by id": responses_agent_held,
    "messages": messages_agent,
}


@pytest.mark.slow
async def test_the_policy_reads_the_same_tokens_whatever_the_agent_speaks(
    run_loop: RunLoop, explorer_config: EngineConfig
) -> None:
    """From real SDKs through capture and the policy's runs to what the embedded Explorer has recorded for training."""
    prompts: dict[str, list[list[int]]] = {}
    async with (
        serving(Weather().app()) as production_url,
        serving(create_app(explorer_config)) as explorer_url,
        run_loop(
            production={"base_url": f"{production_url}/v1"},
            explorer={"base_url": explorer_url},
            runs={"repeat_time": 2},
            rewards={"calculators": [{"length": {"max": 100}}]},
            capture={"redact": []},
        ) as loop,
    ):
        for name, agent in AGENTS.items():
            ids = await agent(loop.url)

            async def answers(ids: list[str] = ids) -> Any:
                calls = [await loop.client.get(f"/calls/{msg_id}") for msg_id in ids]
                if not all(call.status_code == 200 for call in calls):
                    return None
                tasks = [await loop.task(name) for name in dict.fromkeys(call.json()["task_id"] for call in calls)]
                groups = [group for task in tasks if task for group in task["groups"]]
                return groups if len(groups) == 3 and {group["state"] for group in groups} == {"ready"} else None

            groups = await until(answers, 60)
            await loop.commit()
            recorded = await asyncio.to_thread(_committed, explorer_config, len(prompts) + 1)
            by_answer = {run["msg_id"]: place for place, group in enumerate(groups) for run in group["runs"]}
            assert len(recorded) == 6
            prompts[name] = [[] for _ in groups]
            for msg_id, prompt in recorded:
                place = by_answer[msg_id]
                assert prompts[name][place] in ([], prompt)
                prompts[name][place] = prompt

    expected = prompts.pop("chat")
    assert 50 < len(expected[0]) < len(expected[1]) < len(expected[2])
    assert prompts == dict.fromkeys(prompts, expected)


def _committed(config: EngineConfig, step: int) -> list[tuple[str, list[int]]]:
    """The policy's answers that were committed since the last step, with the tokens of their prompts."""
    store = ExperienceStore(config.database_url, config.buffer.trainer_input.experience_buffer.name)
    found = [(row.msg_id, row.prompt_ids.tolist()) for row in store.claim(step, 6)]
    store.close()
    return found
