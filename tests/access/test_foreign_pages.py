"""Pages of other sites: what their scripts and forms have a browser send is not done, by a session or without keys.

The fields are those that browsers send. Chromium, Firefox and Safari since 16.4 add `Sec-Fetch-*` to requests for
loopback and for https; others, and those for other addresses over http, have `Origin` alone.
"""

from __future__ import annotations

import base64

import pytest
from guarded import Kept, RunGuarded
from loops import RunLoop
from scripted import production_app
from serving import serving
from signing_in import browser, code_of

from slipstream.access.foreign_pages import Sender

EVIL = {"origin": "https://evil.example"}
NO_CORS = {
    **EVIL, "sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "empty",
    "content-type": "text/plain;charset=UTF-8", "referer": "https://evil.example/",
}  # fmt: skip
"""Of `fetch('http://127.0.0.1:8100/serving/kill', {method: 'POST', mode: 'no-cors'})`."""

HERE = "http://127.0.0.1:8100"
CASES: list[tuple[str, dict[str, str], bool, bool]] = [
    # from, fields, refused, refused under /v1
    ("a program", {}, False, False),
    ("the page itself", {"origin": HERE, "sec-fetch-site": "same-origin"}, False, False),
    ("the page in an older browser", {"origin": HERE}, False, False),
    ("its user, by a bookmark", {"sec-fetch-site": "none"}, False, False),
    ("a script of another site", NO_CORS, True, True),
    ("the same in an older browser", EVIL, True, True),
    ("a form of another site", {**EVIL, "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, True, True),
    ("a form without a referrer", {"origin": "null", "sec-fetch-site": "cross-site"}, True, True),
    ("a sandboxed frame in an older browser", {"origin": "null"}, True, True),
    ("a site that names itself like us", {"origin": "http://127.0.0.1.evil.example:8100"}, True, True),
    ("a site on our port", {"origin": "http://evil.example:8100"}, True, True),
    ("another port of this machine", {"origin": "http://127.0.0.1:3000", "sec-fetch-site": "same-site"}, True, False),
    ("the same in an older browser", {"origin": "http://localhost:3000"}, True, False),
    ("this machine by another name", {"origin": "http://localhost:8100", "sec-fetch-site": "cross-site"}, True, False),
    ("this machine's IPv6", {"origin": "http://[::1]:3000"}, True, False),
    ("another machine's page", {"origin": "http://192.168.1.7:3000", "sec-fetch-site": "same-site"}, True, True),
    ("what is no origin", {"origin": "http://[", "sec-fetch-site": ""}, True, True),
    ("a script of which nothing more is said", {"sec-fetch-site": "cross-site"}, True, True),
    ("an unknown relation", {"sec-fetch-site": "new-kind"}, True, False),
]


async def test_a_sidecar_without_keys_does_nothing_for_a_page_of_another_site(run_loop: RunLoop) -> None:
    production = Kept()
    async with (
        serving(production.wrap(production_app())) as production_url,
        run_loop(production={"base_url": f"{production_url}/v1"}) as loop,
    ):
        client, wrong, passed = loop.client, [], 0
        for method, path in (("POST", "/serving/kill"), ("DELETE", "/data?session_id=s"), ("PUT", "/aliases/champion")):
            answer = await client.request(method, path, headers=NO_CORS)
            assert (answer.status_code, code_of(answer)) == (403, "slipstream_origin_foreign"), path
            assert "https://evil.example" in answer.json()["error"]["message"]
        assert (await client.get("/serving", headers=NO_CORS)).json()["killed"] is False, "what is only read is no harm"
        assert (await client.post("/serving/kill")).json()["killed"] is True
        chat = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
        for who, fields, refused, refused_v1 in CASES:
            headers = {**fields, "host": "127.0.0.1:8100"}
            answer = await client.post("/serving/revive", headers=headers)
            if (code_of(answer) == "slipstream_origin_foreign") is not refused:
                wrong.append(f"{who}: {answer.status_code}")
            answer = await client.post("/v1/chat/completions", json=chat, headers=headers)
            if (code_of(answer) == "slipstream_origin_foreign") is not refused_v1:
                wrong.append(f"/v1 of {who}: {answer.status_code}")
            passed += not refused_v1
        assert wrong == []
        assert len(production.heads) == passed, "production hears of no other"


@pytest.mark.slow
async def test_neither_does_a_session(run_guarded: RunGuarded) -> None:
    async with (
        run_guarded(access={"trusted_proxies": ["127.0.0.1"]}) as guarded,
        browser(guarded.loop.url, guarded.keys["admin"]) as page,
    ):
        del page.headers["sec-fetch-site"], page.headers["origin"]
        wrong = []
        for who, fields, refused, _ in CASES:
            headers = {**fields, "x-forwarded-host": "127.0.0.1:8100"}
            answer = await page.post("/serving/revive", headers=headers)
            if (code_of(answer) == "slipstream_origin_foreign") is not refused:
                wrong.append(f"{who}: {answer.status_code}")
            by_key = await guarded.loop.client.post("/serving/revive", headers={**headers, **guarded.key("admin")})
            assert by_key.status_code == 200, "who has a key in a header means it"
        assert wrong == []
        assert (await page.delete("/session", headers=NO_CORS)).status_code == 403
        assert (await page.get("/session")).json()["signed_in"] is True


async def test_nor_a_password_that_the_browser_has_kept(run_guarded: RunGuarded) -> None:
    """Browsers send what was typed in at a challenge of `Basic` with requests of other sites' pages as well."""
    async with run_guarded(production={"api_key": "own"}) as guarded:
        client = guarded.loop.client
        password = base64.b64encode(f"me:{guarded.keys['admin']}".encode()).decode()
        kept = {"authorization": f"Basic {password}"}
        for path in ("/serving/kill", "/v1/chat/completions", "/session"):
            assert code_of(await client.post(path, headers={**NO_CORS, **kept})) == "slipstream_origin_foreign", path
        assert (await client.post("/serving/kill", headers=kept)).status_code == 200
        signed_in = await client.post("/session", headers={**NO_CORS, **guarded.key("viewer")})
        assert code_of(signed_in) == "slipstream_origin_foreign", "nobody is signed in by another site"


async def test_a_challenge_does_not_make_a_browser_ask_for_a_password_over_the_page(run_guarded: RunGuarded) -> None:
    async with run_guarded() as guarded:

        async def challenge(**headers: str) -> str:
            answer = await guarded.loop.client.get("/status", headers=headers)
            assert answer.status_code == 401
            return answer.headers["www-authenticate"]

        assert await challenge() == 'Bearer, Basic realm="slipstream"'
        assert await challenge(**{"sec-fetch-mode": "navigate"}) == 'Bearer, Basic realm="slipstream"'
        assert await challenge(**{"sec-fetch-mode": "cors"}) == "Bearer"


@pytest.mark.parametrize(
    ("origin", "host", "forwarded", "own"),
    [
        ("http://sidecar:80", "sidecar", None, True),
        ("https://sidecar", "sidecar:443", None, True),
        ("https://sidecar", "sidecar:80", None, False),
        ("http://Sidecar:8100", "sidecar:8100", None, True),
        ("http://[::1]:8100", "[::1]:8100", None, True),
        ("https://page.example", "127.0.0.1:8100", "page.example", True),
        ("https://page.example", "127.0.0.1:8100", "first.example, page.example", True),
        ("https://page.example", "127.0.0.1:8100", "other.example", False),
        ("file://", "", None, False),
        ("chrome-extension://abc", "abc", None, False),
        ("http://sidecar", "[", None, False),
    ],
)
def test_an_origin_is_ours_if_its_host_and_port_are(origin: str, host: str, forwarded: str | None, own: bool) -> None:
    headers = [(b"Host", host.encode()), (b"Origin", origin.encode())]
    headers += [] if forwarded is None else [(b"X-Forwarded-Host", forwarded.encode())]
    assert (Sender(headers, proxied=True).is_foreign() is None) is own
    if forwarded is not None:
        assert Sender(headers, proxied=False).is_foreign() is not None, "nobody is trusted to say so"
