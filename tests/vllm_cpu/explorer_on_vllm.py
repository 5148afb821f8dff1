"""The embedded Explorer with vLLM as its engine: run in a network namespace, by `test_vllm.py`.

The weights are in float32, so that log probabilities can be compared with those of one forward pass of transformers.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest
import pytest_asyncio
import torch
from safetensors.torch import save_file
from serving import serving, until
from transformers import AutoModelForCausalLM

from slipstream.embedded import checkpoints
from slipstream.embedded.config import EngineConfig
from slipstream.embedded.engines.engine import EngineError, Sampling
from slipstream.embedded.engines.vllm_engine import VllmEngine
from slipstream.embedded.experiences import Experience, ExperienceStore
from slipstream.embedded.serving import create_app

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODEL = os.environ["SMOLLM2"]
HELLO: Any = [{"role": "user", "content": "Tell me about the sea."}]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> EngineConfig:
    return EngineConfig.model_validate(
        {
            "mode": "serve",
            "checkpoint_root_dir": str(tmp_path_factory.mktemp("job")),
            "model": {"model_path": MODEL, "max_model_len": 1024, "temperature": 0.8},
            "algorithm": {"algorithm_type": "grpo"},
            "explorer": {
                "service_status_check_interval": 0.1,
                "rollout_model": {
                    "dtype": "float32",
                    "enforce_eager": True,
                    "gpu_memory_utilization": 0.1,
                    "enable_auto_tool_choice": True,
                    "tool_call_parser": "hermes",
                },
            },
        }
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def app(config: EngineConfig) -> Any:
    return await asyncio.to_thread(create_app, config, vllm=Path(os.environ["VLLM_PYTHON"]))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def url(app: Any) -> AsyncIterator[str]:
    async with serving(app) as url:
        yield url


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def policy(url: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0) as client:
        yield client


@pytest.fixture
def engine(app: Any) -> VllmEngine:
    engine: VllmEngine = app.state.explorer.engine
    return engine


def recorded(config: EngineConfig, msg_id: str) -> list[Experience]:
    buffer = config.buffer.trainer_input.experience_buffer
    store = ExperienceStore(config.database_url, buffer.name)
    try:
        store.feedback([msg_id], 1.0, msg_id[-12:], 0)
        store.commit("ppo")
        return store.claim(1, 1)
    finally:
        store.close()


def recomputed(experience: Experience, temperature: float = 0.8) -> np.ndarray:
    model: Any = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    ids = torch.tensor([[*experience.prompt_ids.tolist(), *experience.response_ids.tolist()]])
    with torch.inference_mode():
        logprobs = torch.log_softmax(model(ids).logits[0] / temperature, dim=-1)
    start = len(experience.prompt_ids) - 1
    return logprobs[start:-1].gather(-1, ids[0, start + 1 :, None])[:, 0].numpy()


async def text(policy: openai.AsyncOpenAI, **fields: Any) -> str:
    answer = await policy.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=12, **fields)
    return answer.choices[0].message.content or ""


async def test_an_answer_is_recorded_with_the_tokens_and_logprobs_it_was_sampled_with(
    policy: openai.AsyncOpenAI, config: EngineConfig
) -> None:
    answer = await policy.chat.completions.create(
        model=MODEL,
        messages=HELLO,
        max_tokens=40,
        logprobs=True,
        top_logprobs=3,
        extra_body={"return_token_ids": True},
    )

    [experience] = await asyncio.to_thread(recorded, config, answer.id)
    [choice] = answer.choices
    assert choice.model_extra == {"token_ids": experience.response_ids.tolist()}
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    assert [token.logprob for token in choice.logprobs.content] == pytest.approx(experience.logprobs.tolist())
    assert all(len(token.top_logprobs) == 3 for token in choice.logprobs.content)
    assert experience.logprobs == pytest.approx(await asyncio.to_thread(recomputed, experience), abs=2e-3)


async def test_choices_streams_and_seeds(policy: openai.AsyncOpenAI) -> None:
    fields: Any = {"model": MODEL, "messages": HELLO, "max_tokens": 12, "seed": 7}
    two = await policy.chat.completions.create(n=2, **fields)
    streamed, reason = "", None
    async for chunk in await policy.chat.completions.create(stream=True, **fields):
        streamed += chunk.choices[0].delta.content or ""
        reason = chunk.choices[0].finish_reason

    assert streamed == two.choices[0].message.content != two.choices[1].message.content
    assert reason == "length"
    assert len({await text(policy) for _ in range(3)}) > 1, "without a seed, answers differ"


async def test_an_answer_ends_where_the_model_ends_it(policy: openai.AsyncOpenAI) -> None:
    question: Any = [{"role": "user", "content": "Say only the word yes."}]
    answers = await policy.chat.completions.create(model=MODEL, messages=question, max_tokens=200, n=4, seed=1)

    assert "stop" in [choice.finish_reason for choice in answers.choices]
    assert not any("<|im_end|>" in (choice.message.content or "") for choice in answers.choices)


async def test_a_new_version_is_served_between_two_answers(
    policy: openai.AsyncOpenAI, url: str, config: EngineConfig, engine: VllmEngine
) -> None:
    """A long answer that runs is of the old version to its end; what came meanwhile is of the new one."""
    before = await text(policy, seed=3)

    async def long(seed: int) -> list[tuple[int, bool]]:
        """Return the version of each token, and whether new answers could begin when it came."""
        sampling = Sampling(max_tokens=400, seed=seed)
        return [(step.model_version, engine._open.is_set()) async for step in engine.generate([5] * 20, sampling)]

    running = asyncio.gather(*(long(seed) for seed in range(8)))
    await until(lambda: engine._running == 8, 30)
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    with torch.no_grad():
        model.model.norm.weight.mul_(0.25)  # of a much flatter distribution
    await asyncio.to_thread(checkpoints.publish, config.job_dir, 1, model.save_pretrained)
    await until(lambda: not engine._open.is_set(), 60)
    waiting = asyncio.create_task(text(policy, seed=3))
    tokens = [token for answer in await running for token in answer]
    after = await waiting

    assert {version for version, _ in tokens} == {0}
    assert not all(opened for _, opened in tokens), "some answers went on while the new version waited"
    assert engine.version == 1
    assert after != before
    async with httpx.AsyncClient() as http:
        assert (await http.get(f"{url}/metrics")).json()["rollout/model_0/model_version"] == 1


async def test_weights_that_are_not_the_models_leave_the_version_in_service(
    policy: openai.AsyncOpenAI, engine: VllmEngine, tmp_path: Path
) -> None:
    before = engine.version, await text(policy, seed=3)
    for name, tensor in (("nonsense", torch.ones(2)), ("model.norm.weight", torch.full((576,), float("nan")))):
        directory = tmp_path / name
        directory.mkdir()
        save_file({name: tensor}, directory / "model.safetensors")
        with pytest.raises(EngineError):
            await engine.stage(9, directory)

    assert (engine.version, await text(policy, seed=3)) == before


async def test_many_at_once_and_one_that_leaves(policy: openai.AsyncOpenAI, engine: VllmEngine) -> None:
    leaving = asyncio.create_task(text(policy, max_completion_tokens=900))
    await until(lambda: engine._running == 1, 30)
    leaving.cancel()
    answers = await asyncio.gather(*(text(policy) for _ in range(24)))

    assert len(answers) == 24
    await until(lambda: engine._running == 0, 30)


async def test_a_server_that_dies_fails_its_requests_and_is_seen(
    policy: openai.AsyncOpenAI, url: str, engine: VllmEngine
) -> None:
    """The last test of this file."""
    asked = asyncio.create_task(text(policy, max_completion_tokens=900))
    await until(lambda: engine._running == 1, 30)
    os.kill(engine._process.pid, signal.SIGKILL)
    with pytest.raises(openai.InternalServerError) as failed:
        await asked

    assert failed.value.status_code == 503
    assert "vllm.log" in str(failed.value)
    async with httpx.AsyncClient() as http:
        assert (await http.get(f"{url}/health")).status_code == 503
