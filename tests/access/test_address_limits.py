"""Requests and failed authentications of one address: bounded before a key is looked at, in bounded memory."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from guarded import RunGuarded
from signing_in import PAGE, browser

from slipstream.access.page_session import cookie_name, new_token
from slipstream.proxy import addresses
from slipstream.proxy.addresses import AddressLimits

UNKNOWN = {"x-slipstream-key": "slp_" + "x" * 43}


async def metric(guarded: Any, limit: str) -> float:
    text = (
        await guarded.loop.client.get("/metrics", headers={**guarded.key("admin"), "x-forwarded-for": "9.9.9.9"})
    ).text
    row = f'slipstream_proxy_refused_total{{limit="{limit}"}} '
    return float(next(line for line in text.splitlines() if line.startswith(row)).removeprefix(row))


async def test_an_address_that_fails_too_often_is_told_to_wait_and_a_valid_key_still_passes(
    run_guarded: RunGuarded,
) -> None:
    async with run_guarded(limits={"address_failures": 3}) as guarded:
        client = guarded.loop.client
        answers = [await client.get("/v1/models", headers=UNKNOWN) for _ in range(9)]
        limited = [answer for answer in answers if answer.status_code == 429]
        assert {answer.status_code for answer in answers} == {401, 429}
        assert 3 <= len(limited) <= 6, "the clock's minute may have changed between them"
        assert limited[0].json()["error"]["code"] == "slipstream_address_limit"
        assert "127.0.0.1 (limits.address_failures)" in limited[0].json()["error"]["message"]
        assert 1 <= int(limited[0].headers["retry-after"]) <= 60
        assert (await client.get("/v1/models", headers=guarded.key("proxy"))).status_code == 200
        assert len(guarded.production.heads) == 1
        assert await metric(guarded, "address_failures") == len(limited)


async def test_a_made_up_session_fails_as_a_key_does_and_one_that_holds_still_passes(run_guarded: RunGuarded) -> None:
    async with run_guarded(limits={"address_failures": 3}) as guarded:
        url = guarded.loop.url
        async with browser(url, guarded.keys["viewer"]) as signed_in, browser(url) as another:
            assert (await signed_in.get("/status")).status_code == 200
            cookie = cookie_name(url.removeprefix("http://").encode()).decode()
            made_up = [{**PAGE, "cookie": f"{cookie}={new_token().decode()}"} for _ in range(9)]
            answers = [await another.get("/status", headers=each) for each in made_up]
            assert {answer.status_code for answer in answers} == {401, 429}
            limited = [answer for answer in answers if answer.status_code == 429]
            assert 3 <= len(limited) <= 6, "the clock's minute may have changed between them"
            assert limited[0].json()["error"]["code"] == "slipstream_address_limit"
            assert await metric(guarded, "address_failures") == len(limited)
            admin = {**guarded.key("admin"), "x-forwarded-for": "9.9.9.9"}
            unauthorized = 'slipstream_key_requests_total{key="(none)",outcome="unauthorized"} '
            told = (await guarded.loop.client.get("/metrics", headers=admin)).text
            assert f"{unauthorized}{9 - len(limited)}.0" in told
            assert (await signed_in.get("/status")).status_code == 200
            asked = await another.get("/session", headers=made_up[0])
            assert (asked.status_code, asked.json()["signed_in"]) == (200, False), "so that it can sign in"


async def test_behind_a_trusted_proxy_the_forwarded_address_counts(run_guarded: RunGuarded) -> None:
    access = {"trusted_proxies": ["127.0.0.1"]}
    async with run_guarded(access=access, limits={"address_requests": 4}) as guarded:

        async def asked(caller: str, path: str = "/v1/models", key: str = "proxy") -> httpx.Response:
            headers = {**guarded.key(key), "x-forwarded-for": f"8.8.8.8, {caller}"}
            return await guarded.loop.client.get(path, headers=headers)

        statuses = [(await asked("10.0.0.1")).status_code for _ in range(12)]
        assert set(statuses) == {200, 429}
        assert statuses.count(429) >= 4
        assert (await asked("10.0.0.2")).status_code == 200, "another address has its own"
        assert {(await asked("10.0.0.1", "/healthz")).status_code for _ in range(6)} == {200}, (
            "probes are always answered"
        )
        assert await metric(guarded, "address_requests") == statuses.count(429)


async def test_a_caller_cannot_name_another_address(run_guarded: RunGuarded) -> None:
    async with run_guarded(limits={"address_requests": 4}) as guarded:
        forged = [{**guarded.key("proxy"), "x-forwarded-for": f"10.0.0.{number}"} for number in range(12)]
        statuses = {(await guarded.loop.client.get("/v1/models", headers=each)).status_code for each in forged}
        assert 429 in statuses


def test_a_minute_has_its_own_counts_and_workers_share_them() -> None:
    now = [30.0]
    limits = AddressLimits(4, 1, 2, lambda: now[0])
    assert [limits.request("10.0.0.1") for _ in range(3)] == [None, None, 30.0]
    assert [limits.failure("10.0.0.1") for _ in range(2)] == [None, 30.0]
    now[0] = 61.0
    assert limits.request("10.0.0.1") is None
    assert limits.failure("10.0.0.1") is None


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("2001:db8::1", "2001:db8::2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("unknown", "_hidden", True),
    ],
)
def test_addresses_of_one_caller_count_together(first: str, second: str, same: bool) -> None:
    limits = AddressLimits(1, 1, 1, lambda: 0.0)
    assert limits.request(first) is None
    assert (limits.request(second) is not None) is same


def test_many_addresses_take_bounded_memory_and_those_that_were_there_keep_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(addresses, "_MOST", 100)
    limits = AddressLimits(2, 1, 1, lambda: 0.0)
    assert limits.request("10.9.9.9") is None
    for number in range(10_000):
        limits.request(f"10.0.{number // 250}.{number % 250}")
    assert len(limits._requests) <= 101
    assert limits.request("10.9.9.9") is None
    assert limits.request("10.8.8.8") is not None, "it is one of the many"
