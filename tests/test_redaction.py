import json
import random

import pytest
from pydantic import ValidationError
from structlog.testing import capture_logs

from slipstream.redaction.redactor import Redactor
from slipstream.redaction.rules import RedactionFailed, RedactRule

BUILT_IN = ("api_key", "password", "email", "phone", "credit_card", "ip")


def redactor(*rules):
    return Redactor([RedactRule.model_validate(rule) for rule in rules])


PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\n-----END RSA PRIVATE KEY-----"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"


@pytest.mark.parametrize(
    "secret",
    [
        "sk-abcdefghijklmnop1234",
        "sk-proj-Ab_cd-1234567890",
        "sk-ant-api03-Ab_cd-1234567890",
        "sk_live_abcdefgh12345678",
        "gsk_abcdefghijklmnopqrst1234",
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "github_pat_11ABCDEFG0abcdefghijkl_mnop",
        "glpat-abcdefghij1234567890",
        "xoxb-1234567890-abcdef",
        "AKIAIOSFODNN7EXAMPLE",
        "AIzaSyA-1234567890abcdefghijklmnopqrstu",
        "hf_abcdefghijklmnopqrstuvwxyz",
        "slp_" + "aB1-_" * 8 + "xyz",
        "sk-lf-abcdefgh-ABCDEFGH",
        "xapp-1-A0123456789-1234567890-abcdef",
        "xai-" + "aB1" * 26,
        "nvapi-" + "aB-1_" * 12,
        "npm_" + "aB1" * 12,
        "pypi-AgEIcHlwaS5vcmcC" + "aB-1_" * 20,
        "SG." + "aB-1_" * 4 + "xy." + "aB1" * 14 + "x",
        "Bearer abcdef.1234567890",
        "bearer sk-abcdefghijklmnop1234",
        JWT,
        PEM,
        PEM.replace(" RSA", " OPENSSH"),
        PEM.replace(" RSA", ""),
    ],
)
@pytest.mark.parametrize(
    "around", ["{}", "the key is {}.", '{{"key": "{}"}}', "密钥：{}。", "a=1&key={}&b=2", "\\n{}", "\\u5bc6{}"]
)
def test_a_key_is_redacted_wherever_it_stands(secret, around):
    text = redactor("api_key").redact(around.format(secret))
    assert text.startswith(around.partition("{}")[0].format())
    assert "[redacted:api_key]" in text
    assert not any(part in text for part in (secret[-10:], secret[10:20]))


def test_a_private_key_that_was_cut_off_is_redacted_to_its_end():
    assert redactor("api_key").redact(f"my key: {PEM[:45]}") == "my key: [redacted:api_key]"


@pytest.mark.parametrize(
    "text",
    [
        "task-0123456789abcdef and risk-assessment-2024-01",
        "desk-sk-1",
        '<div class="sk-fading-circle sk-chasing-dots"> by sk-learn-contrib-package',
        "pypi-publish-workflow, xai-explainable-models, nvapi-client, npm_config_registry_url, SG.io",
        "the bearer authentication of responsibilities",
        "AKIA is a prefix; hf_ too; eyJ as well, and sk-learn",
        "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----",
        "chatcmpl-9aBcDeFgHiJkLmNoPqRsT",
        "commit 3f786850e387550fdab836ed7e6dc881de23001b",
    ],
)
def test_what_is_no_key_stays(text):
    assert redactor("api_key").redact(text) == text


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("write to a.b+c@mail.example.co.uk, please", "write to [redacted:email], please"),
        ("邮箱abc@example.com谢谢", "邮箱[redacted:email]谢谢"),
        ("<Bob_99%x@ex-ample.org>.", "<[redacted:email]>."),
        ("a@b.com.", "[redacted:email]."),
        ("react@18.2.0 and user@localhost and @decorator.call and a @ b.com", None),
    ],
)
def test_email(text, redacted):
    assert redactor("email").redact(text) == (redacted or text)


@pytest.mark.parametrize(
    "number",
    [
        "+1 (415) 555-2671",
        "+14155552671",
        "+44 20 7946 0958",
        "+44 (0)20 7946 0958",
        "+86 138 1234 5678",
        "+8613812345678",
        "0086 13812345678",
        "86-13812345678",
        "13812345678",
        "138 1234 5678",
        "199-1234-5678",
    ],
)
def test_a_phone_number_is_redacted(number):
    assert (
        redactor("phone").redact(f"call {number}, or 电话{number}。")
        == "call [redacted:phone], or 电话[redacted:phone]。"
    )


@pytest.mark.parametrize(
    "text",
    [
        "in 2026, from 1999 to 2031, on 2024-01-01 10:00 and 20240101",
        "+2024-01-01 10:00:00 a line of a diff, +20 points, 1+1, a + 12",
        "2024-01-01T10:00:00+08:00",
        "¥15000000000, $13800000000.50 and 15,000,000,000",
        "1700000000 and 1700000000123 and 13912345678901",
        "order-13912345678, id13812345678, 13812345678x, _13812345678",
        "0.13812345678 and 13812345678.5",
        "12812345678",
        "3f13812345678a",
    ],
)
def test_an_ordinary_number_is_no_phone_number(text):
    assert redactor("phone").redact(text) == text


@pytest.mark.parametrize(
    "number",
    [
        "4111111111111111",
        "4111 1111 1111 1111",
        "5500-0000-0000-0004",
        "2223003122003222",
        "378282246310005",
        "3782 822463 10005",
        "30569309025904",
        "3530111333300000",
        "6011000990139424",
        "6205500000000000004",
    ],
)
def test_a_card_is_redacted_beside_other_numbers(number):
    redact = redactor("credit_card").redact
    assert redact(number) == "[redacted:credit_card]"
    assert redact(f"卡号{number}.") == "卡号[redacted:credit_card]."
    assert redact(f"paid 120 with {number} 123 12/27") == "paid 120 with [redacted:credit_card] 123 12/27"
    assert redact(f"1234 {number}") == "1234 [redacted:credit_card]"


@pytest.mark.parametrize(
    "text",
    [
        "4111111111111112",
        "1234567812345670",
        "0000000000000000",
        "id4111111111111111",
        "4111111111111111ab",
        "41111111111111111111111",
        "0.4111111111111111",
    ],
)
def test_a_number_that_is_no_card_stays(text):
    assert redactor("credit_card").redact(text) == text


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("from 10.0.0.1:8080.", "from [redacted:ip]:8080."),
        ("192.168.1.255, 8.8.8.8.", "[redacted:ip], [redacted:ip]."),
        ("地址10.0.0.1。", "地址[redacted:ip]。"),
        ("2001:db8::1: refused", "[redacted:ip]: refused"),
        ("[::1]:80 and fe80::1%eth0", "[[redacted:ip]]:80 and [redacted:ip]%eth0"),
        ("2001:0db8:0000:0000:0000:ff00:0042:8329", "[redacted:ip]"),
        ("::ffff:10.0.0.1", "::ffff:[redacted:ip]"),
        ("300.1.1.1 1.2.3 v1.2.3.4 1.2.3.4.5 010.1.1.1", None),
        ("12:30:45 std::vector a::b :: {x: 1} 01:02:03:04:05:06 1:2:3", None),
    ],
)
def test_ip(text, redacted):
    assert redactor("ip").redact(text) == (redacted or text)


def test_a_pattern_of_ones_own():
    redact = redactor({"name": "order", "pattern": r"ORD-\d+|(?<=x)"}).redact
    assert redact("ORD-1, ORD-22, ordinary, x") == "[redacted:order], [redacted:order], ordinary, x"


def test_rules_apply_in_turn_and_none_means_none():
    text = "sk-abcdefghijklmnop1234 a@b.com ORD-7"
    assert redactor().redact(text) == text
    rules = ("email", "api_key", {"name": "order", "pattern": r"ORD-\d"})
    assert redactor(*rules).redact(text) == "[redacted:api_key] [redacted:email] [redacted:order]"


def test_only_strings_and_keys_change_and_the_original_stays():
    arguments = json.dumps({"to": "张a@b.com", "key": "x\nsk-abcdefghijklmnop1234", "path": "C:\\new"})
    request = {
        "a@b.com": 13812345678,
        "messages": [{"content": [{"type": "text", "text": "a@b.com"}], "n": [1.5, True, None, "13812345678"]}],
        "tool": {"arguments": arguments},
    }
    before = json.dumps(request)
    redacted = redactor(*BUILT_IN).redact(request)
    assert json.dumps(request) == before
    assert redacted["[redacted:email]"] == 13812345678
    assert redacted["messages"] == [
        {"content": [{"type": "text", "text": "[redacted:email]"}], "n": [1.5, True, None, "[redacted:phone]"]}
    ]
    assert json.loads(redacted["tool"]["arguments"]) == {
        "to": "张[redacted:email]",
        "key": "x\n[redacted:api_key]",
        "path": "C:\\new",
    }


@pytest.mark.parametrize("value", [None, 7, 1.5, True, [], {}, "", [[]]])
def test_other_values_come_back_as_they_are(value):
    assert redactor(*BUILT_IN).redact(value) == value


def test_deep_json_is_no_trouble():
    value = "a@b.com"
    for _ in range(5000):
        value = [value]
    value = redactor("email").redact(value)
    for _ in range(5000):
        (value,) = value
    assert value == "[redacted:email]"


def test_pictures_are_left_alone():
    picture = "data:image/png;base64,AKIAIOSFODNN7EXAMPLE/13812345678/4111111111111111=="
    redact = redactor(*BUILT_IN).redact
    assert redact({"url": picture}) == {"url": picture}
    assert redact(f"![x]({picture}) 13812345678") == f"![x]({picture}) [redacted:phone]"
    assert redact("data: 13812345678") == "data: [redacted:phone]"


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("piece", "found"),
    [
        ("sk-", 0),
        ("sk-1", 1),
        ("eyJ-", 0),
        ("eyJaaaaaaaa.", 27_778),
        ("bearer ", 0),
        ("-----BEGIN PRIVATE KEY-----", 1),
        ("-----END PRIVATE KEY-----", 0),
        ("a", 0),
        ("a@", 0),
        ("a.", 0),
        ("a@a.", 0),
        ("a@bb.cc ", 125_000),
        ("1", 0),
        ("1 ", 0),
        ("123-", 0),
        ("+1(", 0),
        ("1.1.", 0),
        ("1:", 0),
        ("a:", 0),
        ("\\n1", 0),
        ("data:", 0),
        ("data:a/a;", 0),
    ],
)
def test_a_million_unlucky_characters_are_read_in_one_pass(piece, found):
    # With a pattern of quadratic time one of these would take an hour.
    text = (piece * 1_000_000)[:1_000_000]
    assert redactor(*BUILT_IN).redact(text).count("[redacted:") == found


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("emial", "one of api_key, password, email, phone, credit_card, ip, {name, pattern} or {python}; found emial"),
        ({"name": "order"}, "one of api_key"),
        ({"pattern": "x"}, "Field required"),
        ({"name": "", "pattern": "x"}, "at least 1 character"),
        ({"name": "order", "pattern": "("}, "valid regular expression"),
        ({"name": "order", "pattern": "x", "flags": "i"}, "Extra inputs"),
        (7, "valid dictionary"),
    ],
)
def test_bad_rules_are_refused(rule, told):
    with pytest.raises(ValueError, match=told):
        RedactRule.model_validate(rule)


SECRETS = [
    "sk-abcdefghijklmnop1234", "rk_test_abcdefgh12345678", "gsk_abcdefghijklmnopqrst1234", "AKIAIOSFODNN7EXAMPLE",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789", "github_pat_11ABCDEFG0abcdefghijkl_mnop", "xapp-1-A0123456789-1234",
    "glpat-abcdefghij1234567890", "xoxb-1234567890-abcdef", "AIzaSyA-1234567890abcdefghijklmnopqrstu", JWT, PEM,
    "hf_abcdefghijklmnopqrstuvwxyz", "xai-" + "aB1" * 26, "nvapi-" + "aB-1_" * 12, "npm_" + "aB1" * 12, PEM[:40],
    "pypi-AgEIcHlwaS5vcmcC" + "aB-1_" * 20, "SG." + "aB-1_" * 4 + "xy." + "aB1" * 14 + "x", "Bearer abc/ef.1234567890",
    "bearer   1/+/~=._-abcdef", "a.b+c@mail.example.co.uk", "+1 (415) 555-2671", "0086 13812345678", "199-1234-5678",
    "4111 1111 1111 1111", "3782 822463 10005", "30569309025904", "6205500000000000004", "10.0.0.1", "fe80::1",
    "::1", "1::", "2001:0db8:0000:0000:0000:ff00:0042:8329", "ORD-123",
]  # fmt: skip
AROUND = [
    "",
    " ",
    "\n",
    "\b",
    "\x1b",
    "\\",
    "\\n",
    "\\u4f60",
    '"',
    "/",
    "<",
    "你",
    "é",
    "\U0001f600",
    "x",
    "7",
    "-",
    ":",
    ".",
]


def _escaped(text):
    """JSON with every sign of a string as an escape, as an encoder may write it."""
    return json.dumps(text)[:1] + "".join(f"\\u{ord(sign):04x}" for sign in text) + '"'


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "rules", [("api_key",), BUILT_IN, BUILT_IN[::-1], (*BUILT_IN, {"name": "order", "pattern": r"ORD-\d+"})]
)
def test_nothing_is_overlooked_in_json_however_it_is_written(rules, seed):
    dice = random.Random(seed)
    rule_set = redactor(*rules)
    found = 0
    for _ in range(600):
        parts = dice.choices(AROUND, k=dice.randint(0, 4)) + dice.choices(SECRETS, k=dice.randint(0, 2))
        dice.shuffle(parts)
        text = "".join(parts)
        if dice.random() < 0.3:  # nearly the thing
            at = dice.randrange(len(text) + 1)
            text = text[:at] + dice.choice(AROUND) + text[at + 1 :]
        value = {"messages": [{"content": text}, {"content": "plain words"}]}
        expected = rule_set.redact(value)
        compact = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
        hidden = json.dumps(value).replace(json.dumps(text), _escaped(text)).encode() if text.isascii() else None
        slashed = json.dumps(value).replace("/", "\\/").encode()
        for written in (None, compact, json.dumps(value).encode(), slashed, hidden):
            redacted, as_json = rule_set.redact_json(value, written)
            assert redacted == expected
            assert json.loads(as_json) == expected
        found += expected != value
    assert found > 100


def test_json_without_anything_to_redact_stays_the_very_same():
    value = {"messages": [{"content": "3 words, 120 of 4.5 at 10:30: see step-2 & <b>"}], "n": 1750000000}
    text = b'{ "messages":[{"content":"3 words, 120 of 4.5 at 10:30: see step-2 \\u0026 \\u003cb>"}],"n":1750000000}'
    redacted, as_json = redactor(*BUILT_IN).redact_json(value, text)
    assert redacted is value
    assert as_json is text


def test_json_with_half_of_a_surrogate_pair_is_redacted():
    value = {"content": "\ud800 a@b.com"}
    redacted, as_json = redactor("email").redact_json(value)
    assert redacted == {"content": "\ud800 [redacted:email]"}
    assert json.loads(as_json) == redacted


def without_names(text):
    return text.replace("Ada", "[redacted:name]")


def broken(text):
    if "Ada" in text:
        raise RuntimeError(f"cannot redact {text}")
    return text


def silent(text):
    return None


HOOKED = {"python": f"{__name__}:without_names"}


def test_a_hook_redacts_each_text_beside_the_rules():
    hooked = redactor("api_key", HOOKED)
    value = {"Ada": ["Ada has sk-abcdefghijklmnop1234", 7, {"url": "data:image/png;base64,Adax Ada"}]}
    assert hooked.redact(value) == {
        "[redacted:name]": [
            "[redacted:name] has [redacted:api_key]",
            7,
            {"url": "data:image/png;base64,Adax [redacted:name]"},
        ]
    }
    assert hooked.redact_json({"a": "Ada"}, b'{"a":"Ada"}') == ({"a": "[redacted:name]"}, b'{"a":"[redacted:name]"}')


@pytest.mark.parametrize(("hook", "text"), [("broken", "Ada asks"), ("silent", "anybody asks")])
def test_where_a_hook_fails_nothing_of_the_text_is_let_through(hook, text):
    hooked = redactor({"python": f"{__name__}:{hook}", "name": "names"})
    with capture_logs() as logs:
        assert hooked.redact({"a": text, "n": 1}) == {"a": "[redacted:names]", "n": 1}
        for strictly in (lambda: hooked.redact([text], strict=True), lambda: hooked.redact_json({"a": text})):
            with pytest.raises(RedactionFailed, match=hook) as failed:
                strictly()
            assert text not in str(failed.value)
    [told] = logs
    assert told["event"] == "redaction_hook_failed"
    assert "Ada" not in str(told), "what it raises may quote the text"


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ({"python": "nowhere:function"}, "can be imported"),
        ({"python": "json:nothing"}, "can be imported"),
        ({"python": "json"}, "package.module:Object"),
        ({"python": "json:__name__"}, "a function; found json:__name__"),
        ({**HOOKED, "pattern": "x"}, "not both"),
    ],
)
def test_a_hook_that_is_none_is_refused(rule, told):
    with pytest.raises(ValidationError, match=told):
        redactor(rule)
