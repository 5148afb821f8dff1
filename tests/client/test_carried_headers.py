"""What the hooks do to a request: to the sidecar's, and to nobody else's."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import ModuleType
from typing import Any

import httpx
import httpx2
import pytest

import slipstream_client as slipstream
from slipstream_client import http
from slipstream_client.context import Context, Replay, entered

MARKED = Context("order-17", "customer-7", ("grün", "b"), {"reference": "4é 🙂"})
SIDECAR = "http://127.0.0.1:8100"

Request = Callable[..., Any]


@pytest.fixture(params=[httpx, httpx2], ids=["httpx", "httpx2"])
def library(request: pytest.FixtureRequest) -> ModuleType:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(params=["sync", "async"])
def send(request: pytest.FixtureRequest, library: Any) -> Request:
    """Send a request through hooks of the library, and return what arrived of it, hop by hop."""

    async def through(url: str, answers: Callable[[Any], Any] | None = None, **options: Any) -> list[Any]:
        arrived = []

        def handler(request: Any) -> Any:
            arrived.append(request)
            return (answers and answers(request)) or library.Response(200)

        transport = library.MockTransport(handler)
        if request.param == "sync":
            hooks = {"request": [http.before_request], "response": []}
            with library.Client(transport=transport, event_hooks=hooks, follow_redirects=True) as client:
                client.get(url, **options)
        else:
            hooks = {"request": [http.before_async_request], "response": []}
            async with library.AsyncClient(transport=transport, event_hooks=hooks, follow_redirects=True) as client:
                await client.get(url, **options)
        return arrived

    return through


def ours(request: Any) -> dict[str, bytes]:
    """The Slipstream headers of a request, as they go over the wire."""
    raw = {name.lower().decode(): value for name, value in request.headers.raw}
    return {name.removeprefix("x-slipstream-"): value for name, value in raw.items() if name.startswith("x-slipstream")}


async def test_a_call_to_the_sidecar_carries_the_context(send: Request) -> None:
    with entered(MARKED):
        [request] = await send(f"{SIDECAR}/v1/chat/completions?a=b%20c", headers={"x-own": "stays"})

    assert str(request.url) == f"{SIDECAR}/v1/chat/completions?a=b%20c"
    assert request.headers["x-own"] == "stays"
    headers = ours(request)
    assert headers["metadata"].isascii()
    assert json.loads(headers.pop("metadata")) == {"reference": "4é 🙂"}
    assert headers == {"task-id": b"order-17", "session-id": b"customer-7", "mark": "grün,b".encode()}


async def test_the_context_goes_before_what_a_request_says_itself(send: Request) -> None:
    with entered(Context(task_id="order-17")):
        [request] = await send(f"{SIDECAR}/v1/models", headers={"X-Slipstream-Task-Id": "a", "x-slipstream-mark": "b"})
    assert ours(request) == {"task-id": b"order-17", "mark": b"b"}


async def test_without_a_context_nothing_is_added(send: Request) -> None:
    [request] = await send(f"{SIDECAR}/v1/models")
    assert ours(request) == {}


async def test_calls_in_a_never_block_ask_not_to_be_captured(send: Request) -> None:
    with slipstream.never():
        [request] = await send(f"{SIDECAR}/v1/models")
    assert ours(request) == {"select": b"never"}


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8101/v1/chat/completions",
        "https://127.0.0.1:8100/v1/chat/completions",
        "http://api.openai.com:8100/v1/chat/completions",
    ],
)
@pytest.mark.parametrize("context", [MARKED, Context(replay=Replay("order-17", 0))], ids=["mark", "replay"])
async def test_other_addresses_see_nothing_of_it(send: Request, url: str, context: Context) -> None:
    with entered(context):
        [request] = await send(url)
    assert str(request.url) == url
    assert ours(request) == {}


@pytest.mark.parametrize(
    "path", ["feedback", "v10/models", "openai2/models", "runs/order-17/1/v1/models", "runs/order-17/03/v1/models"]
)
async def test_other_paths_of_the_sidecar_see_nothing_of_a_mark_and_nothing_of_a_replay(
    send: Request, path: str
) -> None:
    with entered(MARKED):
        [request] = await send(f"{SIDECAR}/{path}")
    assert str(request.url) == f"{SIDECAR}/{path}"
    assert ours(request) == {}
    with entered(Context(replay=Replay("order-17", 0))), pytest.raises(slipstream.SlipstreamError, match=f"/{path}"):
        await send(f"{SIDECAR}/{path}")


async def test_a_runs_own_address_stays_as_it_is(send: Request) -> None:
    replay = Replay("a/b é?", 3)
    with entered(Context(replay=replay)):
        [request] = await send(f"{SIDECAR}{replay.path}/chat/completions")
    assert request.url.raw_path == f"{replay.path}/chat/completions".encode()
    assert ours(request) == {}


AZURE = ["/openai", "/openai/v1", "/openai/deployments/gpt-4o"]


@pytest.mark.parametrize("root", AZURE)
async def test_calls_at_azures_paths_carry_the_context_and_go_to_their_run(send: Request, root: str) -> None:
    address = f"{SIDECAR}{root}/chat/completions?api-version=2024-10-21"
    with entered(MARKED):
        [marked] = await send(address)
    with slipstream.never():
        [private] = await send(address)
    with entered(Context(replay=Replay("order-17", 3))):
        [replayed] = await send(address)
        [looked_up] = await send(f"{SIDECAR}{root}/embeddings")
    assert (str(marked.url), ours(marked)["task-id"]) == (address, b"order-17")
    assert (str(private.url), ours(private)) == (address, {"select": b"never"})
    assert str(replayed.url) == f"{SIDECAR}/runs/order-17/3/v1/chat/completions?api-version=2024-10-21"
    assert str(looked_up.url) == f"{SIDECAR}{root}/embeddings"
    assert ours(replayed) == ours(looked_up) == {}


async def test_a_redirect_to_another_host_takes_no_header_along(send: Request, library: Any) -> None:
    def answers(request: Any) -> Any:
        if request.url.host == "127.0.0.1":
            return library.Response(307, headers={"location": "http://elsewhere/v1/models"})
        return None

    with entered(MARKED):
        sidecar, elsewhere = await send(f"{SIDECAR}/v1/models", answers)
    assert len(ours(sidecar)) == 4
    assert ours(elsewhere) == {}


@pytest.mark.parametrize("url", ["http://localhost:8100/v1/models", f"{SIDECAR}/v1", "http://127.0.0.1:8100/v1/models"])
async def test_the_names_of_this_machine_are_one(send: Request, url: str) -> None:
    with entered(MARKED):
        [request] = await send(url)
    assert ours(request)["task-id"] == b"order-17"


async def test_a_sidecar_may_have_a_path_of_its_own(send: Request) -> None:
    slipstream.configure("https://gateway/team/slipstream")
    with entered(MARKED):
        [beside] = await send("https://gateway/v1/models")
        [there] = await send("https://gateway:443/team/slipstream/v1/models")
    with entered(Context(replay=Replay("order-17", 3))):
        [replayed] = await send("https://gateway/team/slipstream/v1/models")
    assert (len(ours(beside)), len(ours(there))) == (0, 4)
    assert str(replayed.url) == "https://gateway/team/slipstream/runs/order-17/3/v1/models"


async def test_a_call_in_a_replay_goes_to_its_run_and_carries_nothing(send: Request) -> None:
    with entered(Context("order-17", labels=("a",), replay=Replay("a/b é?", 3))):
        [request] = await send(f"{SIDECAR}/v1/chat/completions?x=1%202", headers={"x-slipstream-mark": "own"})
    assert request.url.raw_path == b"/runs/a%2Fb%20%C3%A9%3F/3/v1/chat/completions?x=1%202"
    assert ours(request) == {}


@pytest.mark.parametrize("path", ["embeddings", "messages/count_tokens", "responses/input_tokens"])
async def test_in_a_replay_lookups_stay_with_production_and_carry_nothing(send: Request, path: str) -> None:
    with entered(Context("order-17", labels=("a",), replay=Replay("order-17", 3))):
        [looked_up] = await send(f"{SIDECAR}/v1/{path}", headers={"x-slipstream-mark": "own"})
        [other] = await send(f"{SIDECAR}/v1/responses")
    assert str(looked_up.url) == f"{SIDECAR}/v1/{path}"
    assert ours(looked_up) == {}
    assert str(other.url) == f"{SIDECAR}/runs/order-17/3/v1/responses"


async def test_what_is_too_long_for_a_header_stays_out_of_it(send: Request) -> None:
    with entered(Context("order-17", metadata={"reference": "4" * http.MAX_HEADER})):
        [request] = await send(f"{SIDECAR}/v1/models")
    assert ours(request) == {"task-id": b"order-17"}


async def test_a_hook_that_fails_lets_the_request_go_as_it_was(send: Request, caplog: pytest.LogCaptureFixture) -> None:
    with entered(Context("order-17", metadata={"reference": object()})):
        for _ in range(3):
            [request] = await send(f"{SIDECAR}/v1/models", headers={"x-own": "stays"})
    assert ours(request) == {}
    assert request.headers["x-own"] == "stays"
    assert [record.getMessage() for record in caplog.records if record.name == "slipstream_client"] == [
        "a call goes without its marks (said once)"
    ]


async def test_a_hook_that_fails_in_a_replay_ends_it_instead_of_calling_production(
    send: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Replay, "path", property(lambda self: 1 / 0))
    with entered(Context(replay=Replay("order-17", 0))), pytest.raises(ZeroDivisionError):
        await send(f"{SIDECAR}/v1/models")


async def test_hooks_and_options_of_ones_own_are_kept() -> None:
    seen = []

    def own(request: httpx.Request) -> None:
        seen.append(ours(request))

    transport = httpx.MockTransport(lambda request: httpx.Response(200))
    with slipstream.http_client(transport=transport, event_hooks={"request": [own]}, timeout=7) as client:
        with entered(MARKED):
            client.get(f"{SIDECAR}/v1/models")
        assert client.timeout.read == 7
    assert seen[0]["task-id"] == b"order-17"


def test_clients_wait_for_a_model_as_the_openai_sdk_does() -> None:
    import openai

    with slipstream.http_client() as client, slipstream.openai() as sdk, openai.OpenAI(api_key="k") as plain:
        assert client.timeout.as_dict() == {**sdk._client.timeout.as_dict()}
        assert sdk.timeout == plain.timeout
