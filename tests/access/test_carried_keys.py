"""However a key of ours comes, it opens the sidecar and goes no further; production's own key goes to production."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable

import openai
import pytest
from guarded import Guarded, RunGuarded, answer_to

SDK = {"model": "prod", "messages": [{"role": "user", "content": "hello"}]}


async def raw(guarded: Guarded, *fields: bytes, target: bytes = b"/v1/models") -> tuple[int, bytes]:
    """The status and the answer to a GET with these lines in its head, as they stand."""
    lines = (b"GET %b HTTP/1.1" % target, b"host: x", b"connection: close", *fields, b"", b"")
    answer = await answer_to(guarded.loop.url, b"\r\n".join(lines))
    return int(answer.split(b" ", 2)[1]), answer


def basic(password: bytes) -> bytes:
    return base64.b64encode(b"agent:" + password)


ALONE: dict[str, Callable[[bytes], list[bytes]]] = {
    "its own header": lambda key: [b"x-slipstream-key: " + key],
    "mixed case": lambda key: [b"X-SlipStream-KEY: " + key],
    "spaces": lambda key: [b"x-slipstream-key:  \t " + key + b" \t"],
    "twice the same": lambda key: [b"x-slipstream-key: " + key, b"X-Slipstream-Key: " + key],
    "bearer": lambda key: [b"Authorization: Bearer " + key],
    "bearer in lower case": lambda key: [b"authorization: bearer   " + key],
    "the whole authorization": lambda key: [b"AUTHORIZATION: " + key],
    "basic": lambda key: [b"authorization: Basic " + basic(key)],
    "basic in lower case": lambda key: [b"Authorization: basic  " + basic(key)],
    "basic in the other alphabet": lambda key: [
        b"authorization: Basic " + base64.urlsafe_b64encode(b"\xff\xfe>?:" + key).rstrip(b"=")
    ],
    "basic as the user": lambda key: [b"authorization: Basic " + base64.b64encode(key + b":")],
    "basic alone": lambda key: [b"authorization: Basic " + base64.b64encode(key)],
    "api-key": lambda key: [b"Api-Key: " + key],
    "x-api-key": lambda key: [b"x-api-key: " + key],
    "x-goog-api-key": lambda key: [b"x-goog-api-key: " + key],
    "in several places": lambda key: [b"x-slipstream-key: " + key, b"authorization: Bearer " + key, b"api-key: " + key],
    "in a cookie as well": lambda key: [b"x-slipstream-key: " + key, b"cookie: a=b; key=" + key],
    "in a header of another name as well": lambda key: [b"x-slipstream-key: " + key, b"x-team: say " + key + b"!"],
}


async def test_a_key_opens_and_stops_here(run_guarded: RunGuarded) -> None:
    async with run_guarded(production={"api_key": "sk-production"}) as guarded:
        key = guarded.keys["proxy"].encode()
        for number, (spelling, fields) in enumerate(ALONE.items(), 1):
            status, answer = await raw(guarded, *fields(key), b"x-other: stays")
            assert status == 200, (spelling, answer)
            assert len(guarded.production.heads) == number, spelling
            sent = guarded.production.heads[-1]
            assert not any(key in value or basic(key) in value for _, value in sent), spelling
            assert not any(name.startswith(b"x-slipstream") for name, _ in sent), spelling
            assert guarded.production.values(b"authorization") == [b"Bearer sk-production"], spelling
            assert guarded.production.values(b"x-other") == [b"stays"], spelling


DIFFERENT: dict[str, Callable[[bytes, bytes], list[bytes]]] = {
    "twice": lambda one, two: [b"x-slipstream-key: " + one, b"x-slipstream-key: " + two],
    "and bearer": lambda one, two: [b"x-slipstream-key: " + one, b"authorization: Bearer " + two],
    "two bearers": lambda one, two: [b"authorization: Bearer " + one, b"authorization: Bearer " + two],
    "bearer and api-key": lambda one, two: [b"authorization: Bearer " + one, b"api-key: " + two],
    "one empty": lambda one, two: [b"x-slipstream-key: " + one, b"x-slipstream-key:"],
    "a list": lambda one, two: [b"x-slipstream-key: " + one, b"x-slipstream-key: " + one + b", " + two],
    "and basic": lambda one, two: [b"x-slipstream-key: " + one, b"authorization: Basic " + basic(two)],
    "and a user": lambda one, two: [
        b"x-slipstream-key: " + one, b"authorization: Basic " + base64.b64encode(two + b":"),
    ],
}  # fmt: skip


async def test_two_different_keys_are_refused(run_guarded: RunGuarded) -> None:
    """Which of them counts would depend on who reads the request."""
    async with run_guarded(production={"api_key": "sk-production"}) as guarded:
        one, two = guarded.keys["proxy"].encode(), guarded.keys["admin"].encode()
        for name, fields in DIFFERENT.items():
            status, answer = await raw(guarded, *fields(one, two))
            assert status == 401, name
            assert b"slipstream_keys_differ" in answer, name
            assert guarded.production.heads == [], name


async def test_a_key_in_the_address_is_refused(run_guarded: RunGuarded) -> None:
    async with run_guarded() as guarded:
        key = guarded.keys["proxy"].encode()
        for spelled in (key, b"%73lp_" + key.removeprefix(b"slp_")):
            status, answer = await raw(guarded, b"x-slipstream-key: " + key, target=b"/v1/models?key=" + spelled)
            assert (status, b"slipstream_key_in_address" in answer) == (401, True)
        assert guarded.production.heads == []


@pytest.mark.parametrize("carrier", ["authorization: Bearer ", "api-key: "])
async def test_a_key_in_the_place_of_productions_needs_one_for_production(
    run_guarded: RunGuarded, carrier: str
) -> None:
    async with run_guarded() as guarded:
        key = guarded.keys["proxy"].encode()
        status, answer = await raw(guarded, carrier.encode() + key)
        assert (status, b"production.api_key" in answer) == (401, True)
        assert guarded.production.heads == []
        status, _ = await raw(guarded, carrier.encode() + key, b"x-api-key: productions")
        assert status == 200, "there is a key of production's beside it"
        assert guarded.production.values(b"x-api-key") == [b"productions"]


async def test_the_callers_own_authorization_goes_to_production_as_it_is(run_guarded: RunGuarded) -> None:
    async with run_guarded() as guarded:
        for own in (b"Bearer sk-mine", b"Basic " + basic(b"mine"), b"Digest a=b", b"Basic !", b"Bearer sk-slp_short"):
            key = guarded.keys["proxy"].encode()
            status, _ = await raw(guarded, b"X-Slipstream-Key: " + key, b"Authorization: " + own)
            assert status == 200
            assert guarded.production.values(b"authorization") == [own]


async def test_the_openai_sdk_with_our_key_in_a_header(run_guarded: RunGuarded) -> None:
    async with run_guarded() as guarded:
        headers = {"x-slipstream-key": guarded.keys["proxy"]}
        url = f"{guarded.loop.url}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key="sk-mine", default_headers=headers) as client:
            assert (await client.chat.completions.create(**SDK)).choices[0].message.content == "echo: hello"
            assert guarded.production.values(b"authorization") == [b"Bearer sk-mine"]
            stream = await client.chat.completions.create(**SDK, stream=True)
            assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == "echo:hello"
        async with openai.AsyncOpenAI(base_url=url, api_key="sk-mine") as client:
            with pytest.raises(openai.AuthenticationError, match="x-slipstream-key"):
                await client.chat.completions.create(**SDK)
        async with openai.AsyncOpenAI(base_url=url, api_key=guarded.keys["metrics"]) as client:
            with pytest.raises(openai.PermissionDeniedError, match="role proxy"):
                await client.chat.completions.create(**SDK)


async def test_the_openai_sdk_with_our_key_alone(run_guarded: RunGuarded) -> None:
    async with run_guarded(production={"api_key": "sk-production"}) as guarded:
        url, key = f"{guarded.loop.url}/v1", guarded.keys["proxy"]
        async with openai.AsyncOpenAI(base_url=url, api_key=key) as client:
            assert (await client.chat.completions.create(**SDK)).choices[0].message.content == "echo: hello"
            assert guarded.production.values(b"authorization") == [b"Bearer sk-production"]


async def test_a_refused_body_is_not_waited_for(run_guarded: RunGuarded) -> None:
    async with run_guarded() as guarded:
        host, port = guarded.loop.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"POST /v1/files HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\nexpect: 100-continue\r\n\r\n")
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 15)
        writer.close()
        assert head.startswith(b"HTTP/1.1 401 ")


async def test_each_request_of_a_connection_shows_its_key(run_guarded: RunGuarded) -> None:
    async with run_guarded() as guarded:
        key = guarded.keys["metrics"].encode()
        with_key = b"GET /status HTTP/1.1\r\nhost: x\r\nx-slipstream-key: " + key + b"\r\n\r\n"
        without = b"GET /status HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
        answers = await answer_to(guarded.loop.url, with_key + without)
        assert answers.count(b"HTTP/1.1 200 ") == 1
        assert answers.count(b"HTTP/1.1 401 ") == 1
