from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest
import torch
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import BaseModel
from serving import serving, until
from strict_java import strict_java
from tiny_model import tiny_llama
from transformers import AutoModelForCausalLM, AutoTokenizer

from slipstream.embedded import checkpoints
from slipstream.embedded.chat import Message, Tool, prompt_ids
from slipstream.embedded.config import EngineConfig
from slipstream.embedded.experiences import Experience, ExperienceStore
from slipstream.embedded.response_text import ResponseText
from slipstream.embedded.serving import create_app
from slipstream.trinity.checkpoint_files import VERSION_MARKER

HELLO: list[Any] = [{"role": "user", "content": "Hello"}]


@pytest.fixture
async def url(explorer_config: EngineConfig) -> AsyncIterator[str]:
    async with serving(create_app(explorer_config)) as url:
        yield url


@pytest.fixture
async def http(url: str) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        yield client


@pytest.fixture
async def policy(url: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0) as client:
        yield client


@pytest.fixture
def name(explorer_config: EngineConfig) -> str:
    return explorer_config.model.model_path


async def experiences(http: httpx.AsyncClient, config: EngineConfig, *msg_ids: str) -> list[Experience]:
    """What was recorded of these completions, as the Trainer gets it."""
    for run_id, msg_id in enumerate(msg_ids):
        body = {"msg_ids": [msg_id], "reward": 1.0, "task_id": "t", "run_id": run_id}
        assert (await http.post("/feedback", json=body)).json() == {"status": "success"}
    assert (await http.post("/commit")).json() == {"status": "success"}
    return _committed(config)


async def metrics(http: httpx.AsyncClient) -> dict[str, int]:
    return (await http.get("/metrics")).json()


def recomputed(model: Any, experience: Experience) -> list[float]:
    """The log-probabilities of a response by one forward pass over prompt and response."""
    ids = torch.tensor([[*experience.prompt_ids.tolist(), *experience.response_ids.tolist()]])
    with torch.inference_mode():
        logprobs = torch.log_softmax(model(ids).logits[0].float(), dim=-1)
    start = len(experience.prompt_ids) - 1
    return logprobs[start:-1].gather(-1, ids[0, start + 1 :, None])[:, 0].tolist()


async def test_an_answer_is_recorded_with_the_tokens_and_logprobs_it_was_sampled_with(
    policy: openai.AsyncOpenAI, http: httpx.AsyncClient, explorer_config: EngineConfig, name: str
) -> None:
    answer = await policy.chat.completions.create(
        model=name,
        messages=HELLO,
        max_tokens=20,
        logprobs=True,
        top_logprobs=3,
        extra_body={"return_token_ids": True},
    )

    [experience] = await experiences(http, explorer_config, answer.id)
    [choice] = answer.choices
    assert choice.finish_reason == "length"
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    assert [token.logprob for token in choice.logprobs.content] == pytest.approx(experience.logprobs.tolist())
    assert all(len(token.top_logprobs) == 3 for token in choice.logprobs.content)
    assert choice.model_extra == {"token_ids": experience.response_ids.tolist()}
    assert answer.model_extra is not None
    assert answer.model_extra["prompt_token_ids"] == experience.prompt_ids.tolist()
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (len(experience.prompt_ids), 20)
    tokenizer = AutoTokenizer.from_pretrained(name)
    assert choice.message.content == tokenizer.decode(experience.response_ids, skip_special_tokens=True)
    model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32)
    assert experience.logprobs.tolist() == pytest.approx(recomputed(model, experience), abs=1e-4)


async def test_a_stream_gives_what_is_recorded(
    policy: openai.AsyncOpenAI, http: httpx.AsyncClient, explorer_config: EngineConfig, name: str
) -> None:
    text, reasons, token_ids, usage = "", [], [], None
    stream = await policy.chat.completions.create(
        model=name,
        messages=HELLO,
        max_completion_tokens=20,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"return_token_ids": True},
    )
    async for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            reasons.append(choice.finish_reason)
            assert choice.model_extra is not None
            token_ids += choice.model_extra["token_ids"]

    [experience] = await experiences(http, explorer_config, chunk.id)
    assert reasons[-1] == "length"
    assert set(reasons[:-1]) == {None}
    assert token_ids == experience.response_ids.tolist()
    assert text == AutoTokenizer.from_pretrained(name).decode(token_ids, skip_special_tokens=True)
    assert usage is not None
    assert usage.completion_tokens == 20


@pytest.mark.slow
async def test_requests_together_and_several_choices_stay_apart(
    policy: openai.AsyncOpenAI, http: httpx.AsyncClient, explorer_config: EngineConfig, name: str
) -> None:
    """Answers of a full batch, of different prompts and lengths, each with its own exact record."""
    answers = await asyncio.gather(
        *(
            policy.chat.completions.create(
                model=name, messages=[{"role": "user", "content": "x " * index}], max_tokens=5 + index, n=2
            )
            for index in range(12)
        )
    )

    recorded = await experiences(http, explorer_config, *(answer.id for answer in answers))
    model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32)
    assert len(recorded) == 24
    for index, answer in enumerate(answers):
        own = [experience for experience in recorded if experience.msg_id == answer.id]
        assert [len(experience.response_ids) for experience in own] == [5 + index] * 2
        assert own[0].response_ids.tolist() != own[1].response_ids.tolist()
        assert {experience.run_id for experience in own} == {index}
        for experience in own:
            assert experience.logprobs.tolist() == pytest.approx(recomputed(model, experience), abs=1e-4)


async def test_a_seed_repeats_an_answer(policy: openai.AsyncOpenAI, name: str) -> None:
    async def text(seed: int) -> str | None:
        answer = await policy.chat.completions.create(model=name, messages=HELLO, max_tokens=10, seed=seed)
        return answer.choices[0].message.content

    assert await text(1) == await text(1) != await text(2)


async def test_the_temperature_is_the_configuration_s(
    policy: openai.AsyncOpenAI, http: httpx.AsyncClient, explorer_config: EngineConfig, name: str
) -> None:
    answer = await policy.chat.completions.create(model=name, messages=HELLO, max_tokens=10, temperature=0.0, seed=1)
    other = await policy.chat.completions.create(model=name, messages=HELLO, max_tokens=10, temperature=0.0, seed=2)

    first, second = await experiences(http, explorer_config, answer.id, other.id)
    assert first.response_ids.tolist() != second.response_ids.tolist()


async def test_a_request_narrows_the_sampling_and_not_the_recorded_logprobs(
    policy: openai.AsyncOpenAI, http: httpx.AsyncClient, explorer_config: EngineConfig, name: str
) -> None:
    """The likeliest token is all of so small a nucleus; what is recorded is its probability among all tokens."""
    answer = await policy.chat.completions.create(
        model=name, messages=HELLO, max_tokens=20, top_p=1e-6, logprobs=True, top_logprobs=1
    )

    [experience] = await experiences(http, explorer_config, answer.id)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert all(token.token == token.top_logprobs[0].token for token in logprobs.content)
    model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32)
    assert experience.logprobs.tolist() == pytest.approx(recomputed(model, experience), abs=1e-4)
    assert min(experience.logprobs) < -0.5


@pytest.mark.slow
async def test_what_a_request_tells_the_chat_template_reaches_it(explorer_config: EngineConfig, tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(explorer_config.model.model_path)
    tokenizer.chat_template = "{{ messages[0].content }}{% if enable_thinking is false %}<think></think>{% endif %}"
    directory = tmp_path / "thinks"
    tiny_llama(seed=0).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    model = explorer_config.model.model_copy(update={"model_path": str(directory)})
    async with (
        serving(create_app(explorer_config.model_copy(update={"model": model}))) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0) as policy,
    ):
        prompts = []
        for variables in ({"enable_thinking": False}, {"enable_thinking": True}, None):
            extra = {"chat_template_kwargs": variables, "return_token_ids": True}
            answer = await policy.chat.completions.create(
                model=str(directory), messages=HELLO, max_tokens=1, extra_body=extra
            )
            assert answer.model_extra is not None
            prompts.append(tokenizer.decode(answer.model_extra["prompt_token_ids"]))

    assert prompts == ["Hello<think></think>", "Hello", "Hello"]


@pytest.mark.slow
async def test_an_answer_that_calls_a_tool(explorer_config: EngineConfig, tmp_path: Path) -> None:
    """A model taught one answer, at temperature 0: what it writes becomes tool_calls, streamed or not."""
    tool: Any = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
    taught = 'Let me look.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
    directory = tmp_path / "taught"
    teach(explorer_config, directory, HELLO, tool, taught)
    model = explorer_config.model.model_copy(update={"model_path": str(directory), "temperature": 0.0})
    app = create_app(explorer_config.model_copy(update={"model": model}))
    async with (
        serving(app) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0) as policy,
    ):
        answer = await policy.chat.completions.create(model=str(directory), messages=HELLO, tools=[tool])
        calls, text = [], ""
        async for chunk in await policy.chat.completions.create(
            model=str(directory), messages=HELLO, tools=[tool], stream=True
        ):
            calls += chunk.choices[0].delta.tool_calls or []
            text += chunk.choices[0].delta.content or ""

    [choice] = answer.choices
    assert choice.finish_reason == chunk.choices[0].finish_reason == "tool_calls"
    assert choice.message.tool_calls is not None
    [call], [streamed] = choice.message.tool_calls, calls
    assert (call.function.name, call.function.arguments) == ("get_weather", '{"city": "Oslo"}')
    assert (streamed.function.name, streamed.function.arguments) == ("get_weather", '{"city": "Oslo"}')
    assert choice.message.content == text.strip() == "Let me look."


def teach(config: EngineConfig, directory: Path, messages: list[Any], tool: Any, answer: str) -> None:
    """Trains the tiny model until it gives this answer."""
    tokenizer = AutoTokenizer.from_pretrained(config.model.model_path)
    prompt = prompt_ids(tokenizer, [Message(**message) for message in messages], [Tool(**tool)])
    taught = tokenizer.encode(f"{answer}<|im_end|>")
    ids = torch.tensor([prompt + taught])
    model = tiny_llama(seed=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loss = torch.tensor(math.inf)
    while loss > 0.05:
        logits = model(input_ids=ids, logits_to_keep=len(taught) + 1).logits[0, :-1]
        loss = torch.nn.functional.cross_entropy(logits, torch.tensor(taught))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)


async def test_new_weights_are_taken_without_failing_a_request(
    policy: openai.AsyncOpenAI, http: httpx.AsyncClient, explorer_config: EngineConfig, name: str
) -> None:
    """A request in flight ends on the weights it began with; each record carries its version. The prompt is long enough
    to be kept for the next request, which it must not be beyond its weights."""
    asked: list[Any] = [{"role": "user", "content": "Hello " * 50}]
    newer = tiny_llama(seed=1)
    stream = await policy.chat.completions.create(model=name, messages=asked, max_tokens=200, stream=True)
    await anext(stream)
    checkpoints.publish(explorer_config.job_dir, 3, newer.save_pretrained)
    asked_meanwhile = [
        asyncio.create_task(policy.chat.completions.create(model=name, messages=asked, max_tokens=20)) for _ in range(4)
    ]
    async for chunk in stream:
        last = chunk
    await asyncio.gather(*asked_meanwhile)
    await until(lambda: is_version(http, 3))
    after = await policy.chat.completions.create(model=name, messages=asked, max_tokens=20)

    recorded = await experiences(
        http, explorer_config, last.id, *(task.result().id for task in asked_meanwhile), after.id
    )
    models = {0: AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32), 3: newer.eval()}
    assert len(recorded) == 6
    assert (recorded[0].model_version, recorded[-1].model_version) == (0, 3)
    for experience in recorded:
        expected = recomputed(models[experience.model_version], experience)
        assert experience.logprobs.tolist() == pytest.approx(expected, abs=1e-3)


async def is_version(http: httpx.AsyncClient, version: int) -> bool:
    return (await metrics(http))["rollout/model_0/model_version"] == version


@pytest.mark.slow
async def test_a_broken_checkpoint_is_left_out_and_a_later_one_taken(
    policy: openai.AsyncOpenAI, http: httpx.AsyncClient, explorer_config: EngineConfig, name: str
) -> None:
    def not_finite(path: Path) -> None:
        model = tiny_llama(seed=1)
        with torch.no_grad():
            model.model.norm.weight[0] = float("nan")
        model.save_pretrained(path)

    def cut_off(path: Path) -> None:
        tiny_llama(seed=1).save_pretrained(path)
        weights = path / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:1000])

    for version, broken in enumerate([not_finite, cut_off], start=1):
        checkpoints.publish(explorer_config.job_dir, version, broken)
        for _ in range(5):
            await policy.chat.completions.create(model=name, messages=HELLO, max_tokens=5)
        assert await is_version(http, 0)
    checkpoints.publish(explorer_config.job_dir, 3, tiny_llama(seed=1).save_pretrained)

    await until(lambda: is_version(http, 3))
    assert (await http.get("/health")).status_code == 200


@pytest.mark.slow
async def test_a_restart_serves_the_newest_version_and_keeps_what_was_fed_back(explorer_config: EngineConfig) -> None:
    async with (
        serving(create_app(explorer_config)) as url,
        httpx.AsyncClient(base_url=url, timeout=60) as http,
    ):
        body = {"model": explorer_config.model.model_path, "messages": HELLO, "max_tokens": 3}
        answer = (await http.post("/v1/chat/completions", json=body)).json()
        await http.post("/feedback", json={"msg_ids": [answer["id"]], "reward": 0.5, "task_id": "t"})
        before = await metrics(http)
    checkpoints.publish(explorer_config.job_dir, 7, tiny_llama(seed=1).save_pretrained)

    async with (
        serving(create_app(explorer_config)) as url,
        httpx.AsyncClient(base_url=url, timeout=60) as http,
    ):
        await until(lambda: is_version(http, 7))
        after = await metrics(http)
        [experience] = await experiences(http, explorer_config)

    assert after["rollout/total_experience_count"] == before["rollout/total_experience_count"] == 1
    assert after["rollout/ready_experience_count"] == before["rollout/ready_experience_count"] == 1
    assert (experience.msg_id, experience.reward, experience.model_version) == (answer["id"], 0.5, 0)


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_goes_away_leaves_no_record_and_frees_its_place(
    http: httpx.AsyncClient, explorer_config: EngineConfig, name: str, url: str, stream: bool
) -> None:
    body = {"model": name, "messages": HELLO, "max_tokens": 4000, "stream": stream}
    async with httpx.AsyncClient(base_url=url) as leaving:
        if stream:
            async with leaving.stream("POST", "/v1/chat/completions", json=body) as response:
                await anext(response.aiter_lines())
        else:
            with pytest.raises(httpx.ReadTimeout):
                await leaving.post("/v1/chat/completions", json=body, timeout=0.3)
    # new weights wait for every running response: they come at once only if the place was freed
    checkpoints.publish(explorer_config.job_dir, 1, tiny_llama(seed=1).save_pretrained)

    await until(lambda: is_version(http, 1), seconds=8)
    assert (await metrics(http))["rollout/total_experience_count"] == 0


@pytest.mark.slow
async def test_a_broken_marker_does_not_end_the_following_of_versions(
    http: httpx.AsyncClient, explorer_config: EngineConfig
) -> None:
    explorer_config.job_dir.mkdir(parents=True, exist_ok=True)
    marker = explorer_config.job_dir / VERSION_MARKER
    marker.write_bytes(b"\xff")
    with pytest.raises(checkpoints.CheckpointError, match="step number"):
        checkpoints.latest_version(explorer_config.job_dir)
    await asyncio.sleep(5 * explorer_config.explorer.service_status_check_interval)
    marker.unlink()
    checkpoints.publish(explorer_config.job_dir, 1, tiny_llama(seed=1).save_pretrained)

    await until(lambda: is_version(http, 1))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_cannot_be_read_fails_and_does_not_hang(
    http: httpx.AsyncClient, name: str, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    """The library that turns tokens into text can raise what it likes."""

    def broken(*_: Any) -> str:
        raise RuntimeError("no such bytes")

    monkeypatch.setattr(ResponseText, "add", broken)
    body = {"model": name, "messages": HELLO, "max_tokens": 5, "stream": stream}
    response = await http.post("/v1/chat/completions", json=body, timeout=10)

    assert response.status_code == (200 if stream else 500)
    assert "no such bytes" in response.text
    assert (await metrics(http))["rollout/total_experience_count"] == 0


@pytest.mark.slow
async def test_models_health_and_metrics(http: httpx.AsyncClient, name: str) -> None:
    assert [model["id"] for model in (await http.get("/v1/models")).json()["data"]] == [name]
    assert (await http.get("/health")).status_code == 200
    assert await metrics(http) == {
        "rollout/model_0/total_request_count": 0,
        "rollout/model_0/model_version": 0,
        "rollout/total_experience_count": 0,
        "rollout/ready_experience_count": 0,
        "explore_step_num": 0,
    }


@pytest.mark.slow
async def test_a_strict_java_client_reads_every_answer(
    url: str, http: httpx.AsyncClient, explorer_config: EngineConfig, name: str
) -> None:
    body = {"model": name, "messages": HELLO, "max_tokens": 2}
    ids = [(await http.post("/v1/chat/completions", json=body)).json()["id"] for _ in range(2)]
    runs = [
        {"msg_ids": [msg_id], "reward": run_id, "task_id": "t", "run_id": str(run_id)}
        for run_id, msg_id in enumerate(ids)
    ]
    assert await strict_java(url, *runs) == [{"status": "success", "message": None}] * 3
    assert [row.run_id for row in _committed(explorer_config)] == [0, 1]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("run_id", "stored"), [("0", 0), ("7", 7), (7, 7), (None, 0)])
async def test_a_run_may_be_named_in_text(
    http: httpx.AsyncClient, explorer_config: EngineConfig, name: str, run_id: Any, stored: int
) -> None:
    body = {"model": name, "messages": HELLO, "max_tokens": 2}
    msg_id = (await http.post("/v1/chat/completions", json=body)).json()["id"]
    given = {"msg_ids": [msg_id], "reward": 1.0, "task_id": "t", "run_id": run_id}
    assert (await http.post("/feedback", json=given)).json() == {"status": "success"}
    await http.post("/commit")
    assert [row.run_id for row in _committed(explorer_config)] == [stored]


async def test_answers_have_no_field_that_the_openai_sdk_does_not_know(http: httpx.AsyncClient, name: str) -> None:
    """But those that Trinity's engine has too: a client with strict classes reads both."""
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    body = {"model": name, "messages": HELLO, "max_tokens": 4, "logprobs": True, "n": 2, "tools": [tool]}
    plain = ChatCompletion.model_validate((await http.post("/v1/chat/completions", json=body)).json())
    assert _unknown(plain) == set()
    text = (await http.post("/v1/chat/completions", json={**body, "stream": True})).text
    chunks = [line.removeprefix("data: ") for line in text.split("\n\n") if line.startswith("data: {")]
    assert chunks
    assert set().union(*(_unknown(ChatCompletionChunk.model_validate_json(chunk)) for chunk in chunks)) == set()
    [model] = (await http.get("/v1/models")).json()["data"]
    assert _unknown(openai.types.Model.model_validate(model)) == {"max_model_len"}, "which is vLLM's"


def _unknown(value: Any) -> set[str]:
    """Fields that the class of an object, or of one within it, does not have."""
    if isinstance(value, list):
        return set().union(*map(_unknown, value))
    if not isinstance(value, BaseModel):
        return set()
    inner = [getattr(value, field) for field in type(value).model_fields]
    return set(value.model_extra or ()) | set().union(*map(_unknown, inner))


def _committed(config: EngineConfig) -> list[Experience]:
    store = ExperienceStore(config.database_url, config.buffer.trainer_input.experience_buffer.name)
    claimed = store.claim(1, 1)
    store.close()
    return sorted(claimed, key=lambda row: row.run_id)


@pytest.mark.slow
async def test_unknown_ids_and_empty_commits_are_a_success_without_effect(http: httpx.AsyncClient) -> None:
    for body in ({"msg_ids": ["unknown"], "reward": 1}, {"msg_ids": [], "reward": 0.5, "task_id": None}):
        assert (await http.post("/feedback", json=body)).json() == {"status": "success"}
    assert (await http.post("/commit", content=b"ignored")).json() == {"status": "success"}

    counts = await metrics(http)
    assert (counts["rollout/ready_experience_count"], counts["explore_step_num"]) == (0, 1)


async def test_tools_need_a_parser(explorer_config: EngineConfig) -> None:
    explorer = explorer_config.explorer
    rollout = explorer.rollout_model.model_copy(update={"enable_auto_tool_choice": False})
    config = explorer_config.model_copy(update={"explorer": explorer.model_copy(update={"rollout_model": rollout})})
    tool = {"type": "function", "function": {"name": "f"}}
    async with (
        serving(create_app(config)) as url,
        httpx.AsyncClient(base_url=url, timeout=60) as http,
    ):
        body = {"model": config.model.model_path, "messages": HELLO, "max_tokens": 2, "tools": [tool]}
        refused = await http.post("/v1/chat/completions", json=body)
        without = await http.post("/v1/chat/completions", json={**body, "tool_choice": "none"})

    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "tools")
    assert without.status_code == 200


@pytest.mark.embedded
@pytest.mark.slow
async def test_the_real_model_in_bfloat16(smollm2: Path, explorer_config: EngineConfig) -> None:
    """Sampled in a batch in bfloat16, a response has the log-probabilities of one pass but for bfloat16's rounding."""
    model = explorer_config.model.model_copy(update={"model_path": str(smollm2)})
    explorer = explorer_config.explorer
    rollout = explorer.rollout_model.model_copy(update={"dtype": "bfloat16"})
    config = explorer_config.model_copy(
        update={"model": model, "explorer": explorer.model_copy(update={"rollout_model": rollout})}
    )
    async with (
        serving(create_app(config)) as url,
        httpx.AsyncClient(base_url=url, timeout=60) as http,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0) as policy,
    ):
        answers = await asyncio.gather(
            *(
                policy.chat.completions.create(
                    model=str(smollm2),
                    messages=[{"role": "user", "content": f"Count from {index} to ten."}],
                    max_tokens=24,
                )
                for index in range(4)
            )
        )
        recorded = await experiences(http, config, *(answer.id for answer in answers))

    reference = AutoModelForCausalLM.from_pretrained(smollm2, dtype=torch.bfloat16)
    differences = [np.abs(np.array(recomputed(reference, experience)) - experience.logprobs) for experience in recorded]
    assert len(recorded) == 4
    assert float(np.mean(np.concatenate(differences))) < 0.1
