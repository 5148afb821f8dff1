"""What is written of an exchange before it is read: no secret of it, in whatever form it passed."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from captured_chats import MAX_BODY, assistant, completion, event_stream, exchange, user
from contexts import context
from prometheus_client import CollectorRegistry
from sqlalchemy import delete, select

from slipstream.capture.backlog import Backlog
from slipstream.capture.call_spans import CallSpans
from slipstream.capture.redacted import ExchangeRedactor, RedactedExchange, unpack_exchanges
from slipstream.capture.room import StoreRoom
from slipstream.capture.writer import CaptureWriter
from slipstream.metrics import Metrics
from slipstream.proxy.tap import Exchange
from slipstream.redaction.redactor import Redactor
from slipstream.redaction.rules import RedactRule
from slipstream.store.database import Database
from slipstream.store.tables.capture import CapturedRow

JSON = [(b"content-type", b"application/json")]
KINDS = ("api_key", "email", "phone", "credit_card", "ip", {"name": "order", "pattern": "ORD-[0-9]{4}"})
SECRETS = (
    "sk-abcdefghijklmnop1234",
    "Bearer abcdef.1234567890",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "AKIAIOSFODNN7EXAMPLE",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\n-----END RSA PRIVATE KEY-----",
    "ann.lee+x@example.org",
    "+49 151 23456789",
    "4111 1111 1111 1111",
    "203.0.113.77",
    "2001:db8::8a2e:370:7334",
)
HARMLESS = ("sk-learn-is-a-library", "ann at example dot org", "12 345 678", "1.2.3", "a::b", "0000 0000 0000 0000")

Body = Callable[[Any], bytes]


class Written:
    """An CaptureWriter over a store of its own."""

    def __init__(self, folder: Path, database: Database) -> None:
        self.folder = folder
        self.database = database
        self.metrics = Metrics(CollectorRegistry())

    async def take(self, *exchanges: Exchange, rules: tuple[Any, ...] = KINDS) -> list[RedactedExchange]:
        """What is written of them."""
        redactor = Redactor([RedactRule.model_validate(rule) for rule in rules])
        made, _ = context(self.database, self.metrics, capture={"queue_bytes": 2**30})
        room = StoreRoom(self.database, self.metrics, 2**40)
        writer = CaptureWriter(
            made,
            Backlog(2**30),
            ExchangeRedactor(redactor, MAX_BODY, made.parsing),
            room,
            CallSpans(made, redactor),
        )
        for went_by in exchanges:
            writer.record(went_by)
        while await writer.step():
            pass
        async with self.database.read() as session:
            return [kept for row in await session.scalars(select(CapturedRow)) for kept in unpack_exchanges(row.packed)]

    def holds(self, text: str) -> bool:
        files = b"".join(file.read_bytes() for file in self.folder.iterdir())
        return text.encode() in files or json.dumps(text)[1:-1].encode() in files


@pytest.fixture
async def written(tmp_path: Path) -> AsyncIterator[Written]:
    database = Database(f"sqlite+aiosqlite:///{tmp_path}/slipstream.db")
    await database.open()
    yield Written(tmp_path, database)
    await database.close()


def _escaped(body: Any) -> bytes:
    """Every sign of every text that is no backslash or quotation mark as an escape."""

    def escape(value: Any) -> str:
        if isinstance(value, dict):
            return "{" + ",".join(f"{escape(key)}:{escape(part)}" for key, part in value.items()) + "}"
        if isinstance(value, list):
            return "[" + ",".join(map(escape, value)) + "]"
        return (
            '"' + "".join(f"\\u{ord(sign):04x}" for sign in value) + '"'
            if isinstance(value, str)
            else json.dumps(value)
        )

    return escape(body).encode()


FORMS: dict[str, Body] = {
    "compact": lambda body: json.dumps(body, separators=(",", ":")).encode(),
    "pretty": lambda body: json.dumps(body, indent=2).encode() + b"\n",
    "escaped": _escaped,
    "utf-16": lambda body: json.dumps(body).encode("utf-16"),
    "utf-16-le": lambda body: json.dumps(body).encode("utf-16-le"),
    "utf-16-be": lambda body: json.dumps(body).encode("utf-16-be"),
    "utf-32-le": lambda body: json.dumps(body).encode("utf-32-le"),
    "byte order mark": lambda body: json.dumps(body).encode("utf-8-sig"),
}


@pytest.mark.sampled
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("zipped", [False, True])
async def test_no_secret_of_a_body_is_ever_in_the_file(written: Written, form: str, zipped: bool) -> None:
    def body(value: Any) -> bytes:
        return gzip.compress(FORMS[form](value)) if zipped else FORMS[form](value)

    encoding = [(b"Content-Encoding", b"gzip")] if zipped else []
    hidden = exchange(
        request_headers=encoding,
        request_body=body({"model": "m", "messages": [user(f"It is {secret}.") for secret in SECRETS]}),
        response_headers=[*JSON, *encoding],
        response_body=body(completion(assistant("; ".join(SECRETS)))),
    )
    [kept] = await written.take(hidden)
    assert [secret for secret in SECRETS if written.holds(secret)] == []
    assert kept.request.count(b"[redacted:") == len(SECRETS)
    assert kept.answer.count(b"[redacted:") == len(SECRETS)


@pytest.mark.sampled
@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("where", ["request", "answer"])
async def test_one_secret_in_either_body_is_enough(written: Written, secret: str, where: str) -> None:
    request = {"messages": [user(secret if where == "request" else "hi")]}
    await written.take(exchange(request, completion(assistant(secret if where == "answer" else "ho"))))
    assert not written.holds(secret)


async def test_a_secret_that_is_streamed_in_pieces_is_not_in_the_file_in_pieces_either(written: Written) -> None:
    secret = "sk-abcdefghijklmnop1234"
    pieces = [
        {"id": "c", "choices": [{"index": 0, "delta": {"content": secret[at : at + 4]}}]} for at in range(0, 24, 4)
    ]
    end = {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    stream = event_stream(*pieces, end)
    silent = exchange({"messages": [user("hi")], "stream": True}, response_body=stream, response_headers=[])
    for kept in await written.take(exchange(answer=stream), silent):
        assert b'"[redacted:api_key]"' in kept.answer
    assert not written.holds(secret[4:12])
    assert not written.holds('"' + secret[4:8] + '"')


async def test_no_secret_of_a_head_is_in_the_file(written: Written) -> None:
    secret = "a-key-of-no-known-form"
    basic = base64.b64encode(b"ann:" + secret.encode())
    headers = [
        (b"Authorization", b"Basic " + basic), (b"api-key", secret.encode()), (b"X-Api-Key", secret.encode()),
        (b"Cookie", b"session=" + secret.encode()), (b"x-goog-api-key", secret.encode()),
        (b"x-slipstream-mark", b"math, ann@example.org"),
        (b"x-slipstream-metadata", b'{"key": "sk-abcdefghijklmnop1234", "n": 1180591620717411303424}'),
        (b"x-slipstream-session-id", b"s"), (b"x-slipstream-task-id", b"t"),
    ]  # fmt: skip
    answered = [*JSON, (b"Set-Cookie", b"session=" + secret.encode())]
    path = "/v1/" + secret + "/chat/completions"
    [kept] = await written.take(exchange(path=path, request_headers=headers, response_headers=answered))
    for text in (secret, basic.decode(), "ann@example.org", "sk-abcdefghijklmnop1234"):
        assert not written.holds(text), text
    assert (kept.session_id, kept.task_id, kept.mark) == ("s", "t", ("math", "[redacted:email]"))
    assert json.loads(kept.metadata) == {"key": "[redacted:api_key]", "n": 2**70}


@pytest.mark.parametrize("form", ["compact", "escaped", "utf-16-le"])
async def test_what_the_caller_does_not_want_to_be_captured_is_not_written(written: Written, form: str) -> None:
    opted_out = FORMS[form]({"messages": [user("between us")], "store": False})
    assert await written.take(exchange(request_body=opted_out), rules=("api_key",)) == []
    assert not written.holds("between us")


async def test_what_holds_nothing_to_be_redacted_stays_as_it_is(written: Written) -> None:
    request = json.dumps({"messages": [user("hi")]}, indent=1).encode()
    answer = json.dumps(completion(assistant("grün")), indent=3).encode() + b"\n"
    for rules in (("api_key", "email"), ()):
        kept = (await written.take(exchange(request_body=request, response_body=answer), rules=rules))[0]
        assert (kept.request, kept.answer) == (request, answer)
        async with written.database.write() as session:
            await session.execute(delete(CapturedRow))
    nearly = {"messages": [user(text) for text in HARMLESS], "store": True}
    [kept] = await written.take(exchange(nearly))
    assert json.loads(kept.request) == nearly


async def test_two_users_are_told_apart_though_their_names_are_redacted(written: Written) -> None:
    def of(name: str) -> Exchange:
        return exchange({"messages": [user("hi")], "user": name})

    ann, bob, again = await written.take(of("ann@example.org"), of("bob@example.org"), of("ann@example.org"))
    assert b"example" not in ann.request
    assert ann.identity == again.identity != bob.identity


async def test_one_exchange_that_fails_takes_no_other_with_it(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = ExchangeRedactor.redact

    def fails_once(self: ExchangeRedactor, went_by: Exchange) -> Any:
        if went_by.started_at == 1.0:
            raise ZeroDivisionError
        return keep(self, went_by)

    monkeypatch.setattr(ExchangeRedactor, "redact", fails_once)
    assert len(await written.take(exchange(), exchange(started_at=1.0), exchange())) == 2
    reason = {"reason": "unreadable"}
    assert written.metrics.registry.get_sample_value("slipstream_calls_not_captured_total", reason) == 1


async def test_what_comes_soon_after_a_transaction_goes_with_what_follows_it(written: Written) -> None:
    made, _ = context(written.database, written.metrics)
    room = StoreRoom(written.database, written.metrics, 2**40)
    redactor = ExchangeRedactor(Redactor([]), MAX_BODY, made.parsing)
    writer = CaptureWriter(made, Backlog(2**30), redactor, room, CallSpans(made, Redactor([])))

    async def rows() -> list[int]:
        async with written.database.read() as session:
            return list(await session.scalars(select(CapturedRow.exchanges).order_by(CapturedRow.id)))

    writer.record(exchange())
    await writer.step()
    assert await rows() == [1]
    writer.record(exchange())
    writing = asyncio.create_task(writer.step())
    for _ in range(3):
        await asyncio.sleep(0.03)
        writer.record(exchange())
    await writing
    assert await rows() == [1, 4]
    for _ in range(1000):
        writer.record(exchange())
    await writer.step()
    assert await rows() == [1, 4, 250, 250, 250, 250], "a whole batch waits for nothing"
    assert writer.waiting == 0
