"""Bad and odd requests, all against one Explorer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from serving import serving

from slipstream.embedded.config import EngineConfig
from slipstream.embedded.serving import create_app

pytestmark = pytest.mark.asyncio(loop_scope="module")

HELLO: list[Any] = [{"role": "user", "content": "Hello"}]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def http(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[httpx.AsyncClient]:
    config = EngineConfig.model_validate(
        {
            "mode": "serve",
            "checkpoint_root_dir": str(tmp_path_factory.mktemp("job")),
            "model": {"model_path": str(tiny_model), "max_model_len": 1024},
            "explorer": {"rollout_model": {"enable_auto_tool_choice": True, "tool_call_parser": "hermes"}},
        }
    )
    async with (
        serving(create_app(config)) as url,
        httpx.AsyncClient(base_url=url, timeout=60) as client,
    ):
        yield client


@pytest.fixture
def name(tiny_model: Path) -> str:
    return str(tiny_model)


async def test_no_path_is_redirected_to_what_a_host_header_says(http: httpx.AsyncClient) -> None:
    for path in ("/health/", "/metrics/", "/v1/models/"):
        response = await http.get(path, headers={"host": "elsewhere.example"})
        assert (response.status_code, response.headers.get("location")) == (404, None)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ('{"msg_ids": ["a"], "reward": NaN}', "reward"),
        ('{"msg_ids": ["a"], "reward": 1e999}', "reward"),
        ('{"msg_ids": ["a"], "reward": true}', "reward"),
        ('{"msg_ids": ["a"], "reward": "1"}', "reward"),
        ('{"msg_ids": ["a"]}', "reward"),
        ('{"msg_ids": "a", "reward": 1}', "msg_ids"),
        ('{"msg_ids": [1], "reward": 1}', "msg_ids.0"),
        ('{"reward": 1}', "msg_ids"),
        ('{"msg_ids": ["a"], "reward": 1, "run_id": true}', "run_id"),
        ('{"msg_ids": ["a"], "reward": 1, "run_id": "x"}', "run_id"),
        ('{"msg_ids": ["a"], "reward": 1, "run_id": ""}', "run_id"),
        ('{"msg_ids": ["a"], "reward": 1, "run_id": "-1"}', "run_id"),
        ('{"msg_ids": ["a"], "reward": 1, "run_id": "2147483648"}', "run_id"),
        (f'{{"msg_ids": ["a"], "reward": 1, "run_id": "{"9" * 5000}"}}', "run_id"),
        (f'{{"msg_ids": ["a"], "reward": 1, "task_id": "{"t" * 65}"}}', "task_id"),
        ("[]", None),
        ("{not json", None),
    ],
)
async def test_bad_feedback_is_refused_with_its_field(http: httpx.AsyncClient, body: str, param: str | None) -> None:
    response = await http.post("/feedback", content=body)

    assert response.status_code == 400
    assert response.json()["error"]["param"] == param
    assert response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"messages": []}, 400, "messages"),
        ({"messages": [{"role": "king", "content": "x"}]}, 400, "messages.0.role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "messages.0.content.0.type"),
        ({"max_tokens": 0}, 400, "max_tokens"),
        ({"n": 0}, 400, "n"),
        ({"top_p": 0}, 400, "top_p"),
        ({"stop": ""}, 400, "stop.0"),
        ({"logprobs": True, "top_logprobs": 21}, 400, "top_logprobs"),
        ({"tools": [{"type": "function", "function": {}}]}, 400, "tools.0.function.name"),
        ({"chat_template_kwargs": {"enable_thinking": False, "chat_template": "{{ 1 }}"}}, 400, "chat_template_kwargs"),
        ({"chat_template_kwargs": "none"}, 400, "chat_template_kwargs"),
        ({"model": "another"}, 404, "model"),
        ({"messages": [{"role": "user", "content": "word " * 1500}]}, 400, "messages"),
    ],
)
async def test_a_bad_chat_request_is_refused_with_its_field(
    http: httpx.AsyncClient, name: str, fields: dict[str, Any], status: int, param: str
) -> None:
    response = await http.post("/v1/chat/completions", json={"model": name, "messages": HELLO, **fields})

    assert (response.status_code, response.json()["error"]["param"]) == (status, param)


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": [{"role": "user", "content": "half of a character: \ud83d"}]},
        {"tools": [{"type": "function", "function": {"name": "f", "description": "\ud83d"}}]},
    ],
)
async def test_what_the_tokenizer_cannot_read_is_a_bad_request(
    http: httpx.AsyncClient, name: str, fields: dict[str, Any]
) -> None:
    body = json.dumps({"model": name, "messages": HELLO, "max_tokens": 1, **fields})
    response = await http.post("/v1/chat/completions", content=body)

    assert (response.status_code, response.json()["error"]["param"]) == (400, "messages"), response.text


async def test_a_body_nested_too_deep_is_refused(http: httpx.AsyncClient) -> None:
    response = await http.post("/feedback", content="[" * 5000)

    assert (response.status_code, response.json()["error"]["message"][:5]) == (400, "body:")


async def test_a_prompt_too_long_says_how_long_and_how_long_it_may_be(http: httpx.AsyncClient, name: str) -> None:
    messages = [{"role": "user", "content": "word " * 1500}]

    error = (await http.post("/v1/chat/completions", json={"model": name, "messages": messages})).json()["error"]

    assert error["code"] == "context_length_exceeded"
    assert "15" in error["message"]
    assert "of at most 1023 for a prompt, by model.max_model_len, which is --max-model-len of" in error["message"]


async def test_null_fields_are_as_good_as_absent(http: httpx.AsyncClient, name: str) -> None:
    body = {"model": name, "messages": HELLO, "max_tokens": 2}
    absent = ("stream", "n", "stop", "tools", "tool_choice", "seed", "top_p", "logprobs", "stream_options", "user")

    response = await http.post("/v1/chat/completions", json={**body, **dict.fromkeys(absent)})

    assert response.status_code == 200


async def test_a_response_ends_where_the_context_does(http: httpx.AsyncClient, name: str) -> None:
    body = {"model": name, "messages": [{"role": "user", "content": "word " * 990}], "max_tokens": 10_000}

    usage = (await http.post("/v1/chat/completions", json=body)).json()["usage"]

    assert usage["total_tokens"] <= 1024


async def test_an_unknown_path_is_refused_in_openai_s_format(http: httpx.AsyncClient) -> None:
    response = await http.post("/v1/embeddings", json={})

    assert (response.status_code, response.json()["error"]["message"]) == (404, "Not Found")
