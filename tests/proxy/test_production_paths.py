"""`production.paths`: with a shared key nothing but the paths of models reaches production, however a path is spelt."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from peer import Peer
from wire import answer, dial, sidecar, upstream

from slipstream.errors import ConfigError
from slipstream.proxy.paths import AllowedPaths
from slipstream.settings.production import SHARED_KEY_PATHS
from slipstream.settings.source import load_settings

ALLOWED = AllowedPaths(SHARED_KEY_PATHS)

CALLS = [
    (b"POST", b"/v1/chat/completions"),
    (b"POST", b"/v1/completions"),
    (b"POST", b"/v1/embeddings"),
    (b"POST", b"/v1/responses"),
    (b"POST", b"/v1/messages"),
    (b"POST", b"/v1/messages/count_tokens"),
    (b"POST", b"/v1/moderations"),
    (b"POST", b"/v1/audio/transcriptions"),
    (b"POST", b"/v1/images/generations"),
    (b"GET", b"/v1/models"),
    (b"HEAD", b"/v1/models"),
    (b"GET", b"/v1/models/meta-llama/Llama-3.1"),
    (b"GET", b"/v1/models/meta-llama%2FLlama-3.1"),
    (b"GET", b"/v1/models/ft:gpt-4o:acme::A%3AB"),
    (b"GET", b"/v1//models"),
    (b"POST", b"/v1/v1/messages"),
    (b"POST", b"/openai/deployments/gpt-4o/chat/completions"),
    (b"POST", b"/openai/v1/chat/completions"),
]

FORBIDDEN = [
    (b"GET", b"/v1/files"),
    (b"POST", b"/v1/files"),
    (b"GET", b"/v1"),
    (b"GET", b"/v1/"),
    (b"GET", b"/v1/chat/completions"),  # lists what the account has stored
    (b"GET", b"/v1/responses/resp_1"),
    (b"DELETE", b"/v1/models/ft:gpt-4o:acme::A"),
    (b"POST", b"/v1/fine_tuning/jobs"),
    (b"POST", b"/v1/chat/completions/x"),
    (b"POST", b"/v1/chat/completionsx"),
    (b"POST", b"/v1/Chat/Completions"),
    (b"GET", b"/v1/modelsx"),
    (b"GET", b"/v1/organization/users"),
    (b"GET", b"/openai/deployments"),
    (b"GET", b"/openai/files"),
]

TRICKS = [
    b"/v1/models/../files",
    b"/v1/models/x/../../files",
    b"/v1/files/../models",
    b"/v1/../models",
    b"/v1/../v1/files",
    b"/v1/models/..",
    b"/v1/models/./../files",
    b"/v1/models//../files",
    b"/v1/models/..//files",
    b"/v1//models/..//files",
    b"/v1/models/%2e%2e/files",
    b"/v1/models/%2E%2e/files",
    b"/v1/models/.%2e/files",
    b"/v1/models/..%2ffiles",
    b"/v1/models/..%2Ffiles",
    b"/v1/models%2f..%2ffiles",
    b"/v1/models/%2e%2e%2ffiles",
    b"/v1/models/%252e%252e/files",
    b"/v1/models/%252e%252e%252ffiles",
    b"/v1/models/%25252e%25252e/files",
    b"/v1/models/%2525252e%2525252e/files",
    b"/v1/models/%252525252e%252525252e/files",
    b"/v1/models/..;/files",
    b"/v1/models/..;x=1/files",
    b"/v1/models/%2e%2e;/files",
    b"/v1/models/..%3b/files",
    b"/v1/models/..\\files",
    b"/v1/models\\..\\files",
    b"/v1/models/..%5cfiles",
    b"/v1/models/%5c..%5c..%5cfiles",
    b"/v1/models/%c0%ae%c0%ae/files",
    b"/v1/models/%c0%ae%c0%ae%c0%affiles",
    b"/v1/models/%e0%80%ae./files",
    b"/v1/models/%u002e%u002e/files",
    b"/v1/models/..%00/files",
    b"/v1/models/x%00",
    b"/v1/models/..%0d/files",
    b"/v1/models/..%09/files",
    b"/v1/models/..%20/files",
    b"/v1/models/..%23/../../files",
    b"/v1/models/x%3f/../../files",
    b"/v1/%6dodels/../files",
    b"/v1/%66iles",
    b"/%76%31/files",
    b"/v1/models/../../admin",
    b"/v1/models/../../../etc/passwd",
    b"/openai/deployments/../files",
    b"/openai/deployments/x/../../files",
    b"/openai/deployments/%2e%2e/files",
]


@pytest.mark.parametrize(("method", "path"), CALLS)
def test_calls_of_models_pass(method: bytes, path: bytes) -> None:
    assert ALLOWED.refusal(method, path) is None


@pytest.mark.parametrize(("method", "path"), FORBIDDEN)
def test_other_paths_do_not(method: bytes, path: bytes) -> None:
    refusal = ALLOWED.refusal(method, path)
    assert refusal is not None
    assert (refusal.status, refusal.code) == (403, "slipstream_path_forbidden")
    assert "production.paths" in refusal.message


@pytest.mark.parametrize("path", TRICKS)
def test_no_spelling_leads_out_of_them(path: bytes) -> None:
    assert ALLOWED.refusal(b"GET", path) is not None


def test_a_list_of_ones_own_and_everything() -> None:
    own = AllowedPaths(["files", "POST batches", "vector_stores/*"])
    assert own.refusal(b"DELETE", b"/v1/files") is None
    assert own.refusal(b"GET", b"/v1/files/f") is not None
    assert own.refusal(b"GET", b"/v1/batches") is not None
    assert own.refusal(b"GET", b"/v1/vector_stores/v/files") is None
    assert own.refusal(b"GET", b"/v1/vector_stores/") is not None
    assert AllowedPaths(["GET *"]).refusal(b"GET", b"/v1/anything") is None


def test_answers_for_long_paths_are_not_kept() -> None:
    paths = AllowedPaths(["models"])
    for number in range(50):
        assert paths.refusal(b"GET", b"/v1/" + b"x" * 4096 + b"%d" % number) is not None
    assert paths._remembered.cache_info().currsize == 0


@pytest.mark.parametrize(
    "path", ["/files", "v1/files", "files/", "../x", "files/../x", "get files", "", "files/**", "a b"]
)
def test_a_path_that_cannot_be_one_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match=r"production\.paths\.0: expected a path below /v1/"):
        load_settings(None, {"SLIPSTREAM_PRODUCTION__PATHS": f'["{path}"]'})


@pytest.mark.parametrize(
    ("production", "allowed"),
    [
        ({}, None),
        ({"api_key": "sk-shared"}, SHARED_KEY_PATHS),
        ({"api_key": "sk-shared", "paths": ["*"]}, None),
        ({"paths": ["models"]}, ("models",)),
    ],
)
def test_with_a_shared_key_there_is_a_list(production: dict[str, Any], allowed: tuple[str, ...] | None) -> None:
    values = {f"SLIPSTREAM_PRODUCTION__{name.upper()}": str(value) for name, value in production.items()}
    assert load_settings(None, values).production.allowed_paths == allowed


class Production:
    """A production model that answers everything, and notes what it is asked for."""

    def __init__(self) -> None:
        self.targets: list[bytes] = []

    async def script(self, peer: Peer) -> None:
        while True:
            request = await peer.request()
            self.targets.append(request.line.split(b" ")[1])
            await peer.send(answer(b'{"choices": []}', b"content-type: application/json"))


async def asked(port: int, path: bytes) -> bytes:
    """The status line that a GET of this path is answered with."""
    async with dial(port) as peer:
        await peer.send(b"GET %b HTTP/1.1\r\nhost: sidecar\r\nconnection: close\r\n\r\n" % path)
        return (await peer.reader.read()).partition(b"\r\n")[0]


async def test_production_hears_nothing_of_what_is_not_allowed() -> None:
    production = Production()
    async with upstream(production.script) as served, sidecar(served.port, api_key="sk-shared") as proxy:
        for path in (b"/v1/files", *TRICKS):
            await asked(proxy.port, path)
            assert production.targets == [], path
        assert b" 403 " in await asked(proxy.port, b"/v1/models/%2e%2e/files")
        async with openai.AsyncOpenAI(base_url=proxy.base_url, api_key="any", max_retries=0) as sdk:
            with pytest.raises(openai.PermissionDeniedError, match=r"production\.paths"):
                await sdk.files.list()
            await sdk.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
        assert production.targets == [b"/v1/chat/completions"]


async def test_callers_with_credentials_of_their_own_ask_for_everything() -> None:
    production, paths = Production(), [b"/v1/files", b"/v1/models/../files", b"/v1/models/%2e%2e/files"]
    async with upstream(production.script) as served, sidecar(served.port) as proxy:
        for path in paths:
            assert b" 200 " in await asked(proxy.port, path)
    assert production.targets == paths
