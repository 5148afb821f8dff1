"""Secrets that look like anything else, or that are hidden in how a text is written: gone, and ordinary text stays."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import quote

import pytest
from contexts import parse_memory

from slipstream.capture.redacted import ExchangeRedactor, RedactedExchange
from slipstream.proxy.tap import Exchange
from slipstream.redaction.redactor import Redactor
from slipstream.redaction.rules import RedactRule
from slipstream.redaction.suspects import Suspects

REDACTOR = Redactor([RedactRule(name="api_key"), RedactRule(name="password")])
HEX = "0f9a8b7c6d5e4f3a2b1c0d9e8f7a6b5c"
AWS = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
OPENAI = "sk-proj-Ab_cd-1234567890"
AZURE = "A1b2" * 13 + "JQQJ99" + "CbACYeBjFXJ3w3AAABACOGab12"


def redacted(value: Any) -> str:
    """What is left, by each of the ways in which a value is redacted; they agree."""
    written = json.dumps(value).encode()
    ways = [
        REDACTOR.redact_json(value, written)[0],
        REDACTOR.redact_json(value, json.dumps(value, ensure_ascii=False).encode())[0],
        REDACTOR.redact_json(value)[0],
        REDACTOR.redact(value),
    ]
    assert all(way == ways[0] for way in ways)
    assert REDACTOR.redact(ways[0]) == ways[0], "a second time changes nothing"
    return json.dumps(ways[0], ensure_ascii=False)


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f"api-key: {HEX}", HEX),
        (f"Ocp-Apim-Subscription-Key: {HEX}", HEX),
        (f'curl -H "api-key: {HEX}" https://x.openai.azure.com', HEX),
        (f"AZURE_OPENAI_API_KEY={HEX}\nNEXT=1", HEX),
        (f"OPENAI_KEY = '{HEX.upper()}'", HEX.upper()),
        (f"my azure api key is {HEX}, thanks", HEX),
        (f"az login --api-key {HEX}", HEX),
        ("AccountName=x;AccountKey=" + "aB1+/" * 17 + "a==;EndpointSuffix=core", "aB1+/aB1"),
        (f"use {AZURE} for it", AZURE),
        (f"aws_access_key_id = AKIAIOSFODNN7EXAMPLE\naws_secret_access_key = {AWS}", AWS),
        (f"AKIAIOSFODNN7EXAMPLE,{AWS}", AWS),
        (f"{AWS} goes with AKIAIOSFODNN7EXAMPLE", AWS),
        ("Authorization: Basic dXNlcjpodW50ZXIy", "dXNlcjpodW50ZXIy"),
        ("authorization:\tBASIC  dXNlcjpodW50ZXIy", "dXNlcjpodW50ZXIy"),
        ("authorization: BEARER abcdef.1234567890", "abcdef.1234567890"),
        ("Authorization: bearer\tabcdef.1234567890", "abcdef.1234567890"),
        ("bEaReR \t abcdef.1234567890", "abcdef.1234567890"),
        ("postgresql://shop:hunter2@db.example/shop", "hunter2"),
        ("https://example.com/login?user=ada&password=hunter2&next=/", "hunter2"),
        ("export PGPASSWORD=hunter2; psql", "hunter2"),
        ("Server=db;User Id=sa;Pwd=hunter2;Encrypt=yes", "hunter2"),
        ('{"user": "ada", "passwd": "hunter2, or so"}', "hunter2, or so"),
        ("db:\n  password: hunter2\n  port: 5432", "hunter2"),
        ("password = 'hun\\'ter2'", "ter2"),
        ("my password is Hunter2!", "Hunter2"),
    ],
)
def test_a_secret_that_its_surroundings_tell_is_redacted(text: str, secret: str) -> None:
    assert secret in text
    for value in (
        {"content": text},
        {"arguments": json.dumps({"text": text})},
        {"arguments": json.dumps({"inner": json.dumps({"deeper": json.dumps({"text": text})})})},
        {"arguments": json.dumps({"inner": json.dumps({"text": text})}).replace("e", "\\u0065")},
    ):
        left = redacted(value)
        assert secret not in left
        assert secret[-6:] not in left
        if "arguments" in value:
            inner = json.loads(json.loads(left)["arguments"])
            assert isinstance(json.loads(inner["inner"]) if "inner" in inner else inner, dict), "JSON stays JSON"


@pytest.mark.parametrize(
    "value",
    [
        {"headers": {"api-key": HEX}},
        {"headers": {"Ocp-Apim-Subscription-Key": [HEX]}},
        {"headers": [{"name": "api-key", "value": HEX}]},
        {"SecretAccessKey": AWS},
        {"login": {"password": "correct horse battery staple"}},
        {"fields": [{"name": "password", "value": "correct horse battery staple"}]},
    ],
)
def test_a_value_is_redacted_by_the_name_of_its_field(value: dict[str, Any]) -> None:
    for given in (value, {"arguments": json.dumps(value)}, {"arguments": json.dumps([json.dumps(value)])}):
        left = redacted(given)
        assert not any(secret in left for secret in (HEX, AWS, "horse"))


@pytest.mark.parametrize(
    "text",
    [
        f"md5 {HEX}, etag: {HEX}, trace {HEX}, commit 3f786850e387550fdab836ed7e6dc881de23001b",
        "id 5d41402a-bc4b-2a76-b971-9d911017c592 and Idempotency-Key: 5d41402abc4b2a76b9719d911017c592",
        "call_AbCdEfGhIjKlMnOpQrStUvWx, chatcmpl-9aBcDeFgHiJkLmNoPqRsT, toolu_01AbCdEfGh",
        "sha1 2fd4e1c67a2d28fced849ee1bb76e7391b93eb12 of /usr/lib/python3/dist-packages/sklearn/base1.py",
        "a basic understanding, Basic authentication, basic arithmetic2",
        "the bearer of the message, Bearer authentication",
        "def login(user: str, password: str) -> None: pass",
        "login(password=password, passwd=None, pwd=settings.db_password, password=getpass())",
        "PASSWORD=$DB_PASSWORD password=${DB_PASSWORD} password={{ password }} password: <secret>",
        "Password: required\nIs your password correct? The password must have 12 characters.",
        'if password == "": raise ValueError("password: expected text, found none")',
        "PWD=/home/ada pwd: /srv/app",
        "https://example.com:8443/a@b and http://user@example.com/",
        "the api key of the map, your access token and the secret key of success",
        '{"api_key": {"type": "string"}, "password": {"type": "string"}, "required": ["api_key", "password"]}',
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    value = {"content": text, "arguments": json.dumps({"text": text})}
    assert REDACTOR.redact(value) is value
    assert REDACTOR.redact_json(value, json.dumps(value).encode())[0] is value


def test_a_tool_schema_stays() -> None:
    schema = {
        "properties": {
            "password": {"type": "string", "description": "The user's password, of 8 to 64 characters."},
            "api_key": {"type": "string", "description": "Key of the API."},
        },
        "required": ["password", "api_key"],
    }
    assert REDACTOR.redact({"tools": [{"parameters": schema}]}) == {"tools": [{"parameters": schema}]}


@pytest.mark.parametrize("cut", [2, 5, len(OPENAI) - 1])
def test_a_key_in_two_parts_of_a_message_is_redacted(cut: int) -> None:
    content: list[dict[str, Any]] = [
        {"type": "text", "text": f"use {OPENAI[:cut]}"},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        {"type": "text", "text": f"{OPENAI[cut:]} for it"},
    ]
    for parts in (content, [content[0], content[2]]):
        value = {"messages": [{"role": "user", "content": parts}]}
        left = json.loads(redacted(value))["messages"][0]["content"]
        assert [part.get("text") for part in left if part["type"] == "text"] == ["use [redacted:api_key]", " for it"]
        assert json.loads(REDACTOR.redact_json(value, json.dumps(value, indent=2).encode())[1])["messages"]


def test_a_key_in_three_parts_is_redacted_and_parts_without_one_stay() -> None:
    pieces = [OPENAI[:6], OPENAI[6:12], OPENAI[12:] + "\nbye"]
    parts = [{"type": "text", "text": piece} for piece in pieces]
    left = json.loads(redacted({"content": parts}))["content"]
    assert [part["text"] for part in left] == ["[redacted:api_key]", "", "\nbye"]
    plain = {"content": [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]}
    assert REDACTOR.redact_json(plain, json.dumps(plain).encode())[0] is plain


@pytest.mark.parametrize(
    "fields",
    [
        {"annotations": []},
        {"annotations": [{"type": "url_citation", "title": 'of {"a" and ]', "url": "https://example.com"}]},
        {"logprobs": [{"token": "a", "bytes": [97], "top_logprobs": [{"token": "a", "bytes": [97]}]}]},
        {"of_a_tool": [[[[[[[[[[[{"deep": "er"}]]]]]]]]]]]},
    ],
)
def test_a_key_in_two_parts_is_redacted_wherever_other_fields_stand_before_their_texts(fields: dict[str, Any]) -> None:
    parts = [{"type": "output_text", **fields, "text": piece} for piece in (OPENAI[:9], OPENAI[9:])]
    for between in ([], [7], [[]]):
        value = {"output": [{"type": "message", "content": [parts[0], *between, parts[1]]}]}
        for text in (None, json.dumps(value).encode(), json.dumps(value, indent=2).encode()):
            left = json.loads(REDACTOR.redact_json(value, text)[1])["output"][0]["content"]
            assert [left[0]["text"], left[-1]["text"]] == ["[redacted:api_key]", ""]


def test_messages_with_one_text_each_are_not_read_for_a_key_in_several_parts() -> None:
    tool = {"type": "function", "parameters": {"properties": {"a": {"items": {"properties": {"b": {"enum": ["c"]}}}}}}}
    said = [{"role": "user", "content": [{"type": "text", "annotations": [{}], "text": "hello"}]} for _ in range(9)]
    signs = REDACTOR.signs
    assert signs is not None
    assert Suspects(signs).within(json.dumps({"tools": [tool] * 9, "messages": said}).encode()) == set()


def test_secrets_as_keys_are_redacted_and_stay_apart() -> None:
    other = OPENAI[:-1] + "9"
    left = json.loads(redacted({"seen": {OPENAI: 1, other: 2, "plain": 3}}))["seen"]
    assert left == {"[redacted:api_key]": 1, "[redacted:api_key] 2": 2, "plain": 3}


@pytest.mark.parametrize("media", ["text/plain", "application/json;charset=utf-8", "image/png", ""])
@pytest.mark.parametrize("alphabet", ["standard", "urlsafe"])
def test_a_text_in_base64_is_redacted_in_its_data_url(media: str, alphabet: str) -> None:
    text = f"some notes, long enough to be told from a picture: {OPENAI} ÿ>>?"
    encode = base64.b64encode if alphabet == "standard" else base64.urlsafe_b64encode
    url = f"data:{media};base64,{encode(text.encode()).decode()}"
    left = json.loads(redacted({"file": {"file_data": url}, "also": f"see ![notes]({url})!"}))
    assert left["also"] == f"see ![notes]({left['file']['file_data']})!"
    again = base64.b64decode(left["file"]["file_data"].partition("base64,")[2]).decode()
    assert again == text.replace(OPENAI, "[redacted:api_key]")


def test_a_percent_encoded_text_is_redacted_in_its_data_url() -> None:
    hidden = "".join(f"%{ord(sign):02x}" for sign in OPENAI)
    left = redacted({"url": f"data:text/plain,{quote('the key: ')}{hidden}{quote(', use it')}"})
    assert json.loads(left)["url"] == "data:text/plain,the%20key%3A%20[redacted:api_key]%2C%20use%20it"


def test_a_data_url_within_a_data_url_is_looked_into() -> None:
    inner = f"data:text/plain;base64,{base64.b64encode(f'notes: {OPENAI}'.encode()).decode()}"
    outer = f"data:text/html;base64,{base64.b64encode(inner.encode()).decode()}"
    left = json.loads(redacted({"url": outer}))["url"]
    inside = base64.b64decode(left.partition("base64,")[2]).decode()
    assert base64.b64decode(inside.partition("base64,")[2]) == b"notes: [redacted:api_key]"


def token_by_token(text: str) -> dict[str, Any]:
    tokens = [text[at : at + 4] for at in range(0, len(text), 4)]
    return {
        "content": [
            {"token": token, "bytes": list(token.encode()), "logprob": -0.1, "top_logprobs": []} for token in tokens
        ]
    }


def answer(content: str) -> dict[str, Any]:
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": content},
        "logprobs": token_by_token(content),
        "token_ids": [1, 2, 3],
        "finish_reason": "stop",
    }
    return {"id": "chatcmpl-1", "object": "chat.completion", "choices": [choice], "prompt_token_ids": [4, 5]}


def exchange(request: dict[str, Any], answer: bytes, headers: list[tuple[bytes, bytes]], streamed: bool) -> Exchange:
    return Exchange(
        method="POST",
        path="/v1/chat/completions",
        request_headers=headers,
        request_body=json.dumps(request).encode(),
        status=200,
        response_headers=[(b"content-type", b"text/event-stream" if streamed else b"application/json")],
        response_body=answer,
        started_at=1.0,
        first_byte_after=0.1,
        duration=0.2,
        error=None,
    )


def kept(
    content: str, *, asked: str = "hello", headers: list[tuple[bytes, bytes]] | None = None, streamed: bool = False
) -> RedactedExchange:
    """What is kept of a call with this answer."""
    request = {"model": "m", "messages": [{"role": "user", "content": asked}], "stream": streamed}
    body = json.dumps(answer(content)).encode()
    if streamed:
        [choice] = answer(content)["choices"]
        delta = {**choice, "delta": choice["message"]}
        chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [delta]}
        body = b"data: %b\n\ndata: [DONE]\n\n" % json.dumps(chunk).encode()
    found = ExchangeRedactor(REDACTOR, 2**20, parse_memory()).redact(exchange(request, body, headers or [], streamed))
    assert isinstance(found, RedactedExchange)
    return found


@pytest.mark.parametrize("streamed", [False, True])
def test_logprobs_of_a_redacted_answer_are_dropped(streamed: bool) -> None:
    found = kept(f"your key is {OPENAI}", streamed=streamed)
    [choice] = json.loads(found.answer)["choices"]
    assert choice["message"]["content"] == "your key is [redacted:api_key]"
    assert (choice["logprobs"], choice["token_ids"]) == (None, None)
    assert OPENAI[4:8].encode() not in found.answer

    [choice] = json.loads(kept("no key here", streamed=streamed).answer)["choices"]
    assert choice["logprobs"]["content"][0]["token"] == "no k", "others keep theirs"


@pytest.mark.parametrize("streamed", [False, True])
def test_logprobs_of_a_redacted_response_are_dropped(streamed: bool) -> None:
    def kept_parts(text: str) -> list[dict[str, Any]]:
        part = {"type": "output_text", "annotations": [], "text": text, "logprobs": token_by_token(text)["content"]}
        item = {"type": "message", "id": "msg_1", "role": "assistant", "content": [part]}
        given = {"id": "resp_1", "object": "response", "status": "completed", "output": [item]}
        body = json.dumps(given).encode()
        if streamed:
            body = b"data: %b\n\n" % json.dumps({"type": "response.completed", "response": given}).encode()
        call = exchange({"model": "m", "input": "hello", "stream": streamed}, body, [], streamed)
        call.path = "/v1/responses"
        found = ExchangeRedactor(REDACTOR, 2**20, parse_memory()).redact(call)
        assert isinstance(found, RedactedExchange)
        parts: list[dict[str, Any]] = json.loads(found.answer)["output"][0]["content"]
        return parts

    part = kept_parts(f"your key is {OPENAI}")[0]
    assert (part["text"], part["logprobs"]) == ("your key is [redacted:api_key]", None)
    assert kept_parts("no key here")[0]["logprobs"][0]["token"] == "no k", "others keep theirs"


def test_prompt_tokens_of_a_redacted_request_are_dropped() -> None:
    left = json.loads(kept("fine", asked=f"my key is {OPENAI}").answer)
    assert left["prompt_token_ids"] is None
    assert left["choices"][0]["logprobs"] is not None


def test_a_policy_answer_is_redacted_with_its_logprobs() -> None:
    given = answer(f"your key is {OPENAI}")
    [choice] = REDACTOR.redact_answer(given)["choices"]
    assert choice["logprobs"] is None
    assert given["choices"][0]["logprobs"] is not None, "what the agent gets is not touched"


def test_session_and_task_ids_with_a_secret_are_replaced_by_one_name_each() -> None:
    headers = [
        (b"x-slipstream-session-id", f"chat of {OPENAI}".encode()),
        (b"x-slipstream-task-id", b"order-1042"),
    ]
    found = kept("fine", headers=headers)
    assert found.session_id is not None
    assert found.session_id.startswith("redacted-")
    assert found.session_id == REDACTOR.redact_id(f"chat of {OPENAI}") == REDACTOR.redact_id(found.session_id)
    assert found.session_id != REDACTOR.redact_id(f"chat of {OPENAI}9")
    assert found.task_id == "order-1042"


@pytest.mark.parametrize(
    "piece",
    [
        *("password=", "password: ", 'password="', "pwd is 1", "://a:", "://a:b@", "api_key: ", "api_key=a1", "basic "),
        *("Bearer\t", "AKIAIOSFODNN7EXAMPLE ", "JQQJ99", "data:,", "data:text/plain;base64,", "data:a;a=a", "%25"),
        *("\\\\", "\\u005c", '\\"'),
    ],
)
def test_many_unlucky_characters_are_read_in_one_pass(piece: str) -> None:
    # With a pattern of quadratic time one of these would take minutes.
    text = (piece * 200_000)[:200_000]
    assert isinstance(REDACTOR.redact(text), str)
