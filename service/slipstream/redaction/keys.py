"""The kind `api_key`: keys and tokens with a known form, and values whose name says that they are one.

Some keys look like any hash (Azure's are 32 hexadecimal digits, AWS's secret keys 40 signs of base64). They are found
by what stands before them: the name of a field, header or variable (`api-key: ...`, `AccountKey=...`,
`aws_secret_access_key = ...`), or an AWS access key id nearby. A hash, a UUID or a commit without such a name stays.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator

from slipstream.redaction.escapes import Span

_KEYS: tuple[tuple[str, ...], ...] = (
    # OpenAI, Anthropic, DeepSeek, OpenRouter, Langfuse; a digit or capital tells one from names such as "sk-learn-...".
    ("sk-", r"(?=[a-z_-]{0,64}[0-9A-Z])[A-Za-z0-9_-]{12,}+"),
    ("[rs]k_", r"(?:live|test)_[A-Za-z0-9]{16,}+"),  # Stripe
    ("slp_", r"[A-Za-z0-9_-]{32,}+"),  # ours
    ("gsk_", r"[A-Za-z0-9]{20,}+"),  # Groq
    ("gh[opsur]_", r"[A-Za-z0-9]{30,}+"),
    ("github_pat_", r"[A-Za-z0-9_]{22,}+"),
    ("glpat-", r"[A-Za-z0-9_-]{20,}+"),  # GitLab
    ("xox[a-z]-", r"[A-Za-z0-9-]{10,}+"),  # Slack
    ("xapp-", r"[0-9]-[A-Za-z0-9-]{10,}+"),  # Slack
    ("A[KS]IA", r"[0-9A-Z]{16}(?![0-9A-Za-z])"),  # AWS
    ("AIza", r"[A-Za-z0-9_-]{35}"),  # Google
    ("hf_", r"[A-Za-z0-9]{20,}+"),  # Hugging Face
    ("xai-", r"[A-Za-z0-9]{40,}+"),
    ("nvapi-", r"[A-Za-z0-9_-]{40,}+"),  # NVIDIA
    ("npm_", r"[A-Za-z0-9]{36}"),
    ("pypi-AgE", r"[A-Za-z0-9_-]{40,}+"),
    (r"SG\.", r"[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}"),  # SendGrid
    ("eyJ", r"[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]*+", "0-9A-Za-z_-"),  # JSON Web Token
)
"""Prefix and form of each kind of key, and, if it is not the usual one, what it may not follow."""

_BEGIN = "-----BEGIN [A-Z ]{0,32}PRIVATE KEY(?: BLOCK)?-----"
_BLANK = r"[ \t\r\n]{1,4}"
_PATTERNS = (
    *(re.compile(rf"{first}(?<![{after[0] if after else '0-9A-Za-z'}]{first}){rest}") for first, rest, *after in _KEYS),
    # A digit tells a token from plain words, such as "bearer authentication".
    re.compile(
        rf"(?i:bearer)(?<![0-9A-Za-z].{{6}}){_BLANK}(?=[A-Za-z._~+/=-]{{0,64}}[0-9])[A-Za-z0-9._~+/=-]{{12,}}+", re.S
    ),
    # A block that was cut off reaches to the end of the text.
    re.compile(rf"{_BEGIN}(?s:.*?-----END [A-Z ]{{0,32}}PRIVATE KEY(?: BLOCK)?-----|.*)"),
)
# Azure's newer keys: 84 characters with a mark amid them
_AZURE_MARK = re.compile(r"JQQJ9[9DH](?<=[A-Za-z0-9]{52}.{6})(?<![A-Za-z0-9].{58})[A-Za-z0-9]{26}(?![A-Za-z0-9])")
_AZURE_HEAD = 52

_BASIC = re.compile(rf"(?i:basic)(?<![0-9A-Za-z].{{5}}){_BLANK}([A-Za-z0-9+/_-]{{4,}}+={{0,2}})", re.S)

_SERVICE = (
    r"api|account|access|subscription|functions?|secret|shared|openai|azure|service|cognitive|speech|search|cosmos"
)
_NAMES = (
    rf"(?:{_SERVICE}|storage|translator|vision|maps)[-_ ]?key",
    r"(?:client|app|api|consumer)[-_ ]?secret",
    r"(?:access|auth|refresh|session|api|secret)[-_ ]?token",
)
_NAME = rf"(?:{'|'.join(_NAMES)})"
_VALUE = "[A-Za-z0-9+/_=~-]"
_SHORTEST = 16
_LOOKS_RANDOM = rf"(?={_VALUE}{{0,128}}[0-9])(?={_VALUE}{{0,128}}[A-Za-z]){_VALUE}{{{_SHORTEST},}}+"
_NAMED = re.compile(
    # `name: value`, `"name": "value"`, `--name value`, `name is value`, `"name": "api-key", "value": "..."`
    rf"""(?i){_NAME}[\s"'`]{{0,4}}(?P<says>[:=]>?|:=|\bis\b|,[\s"']{{0,4}}value["']?\s?:)?[\s"'`(\[]{{0,4}}"""
    rf"(?<![0-9A-Za-z])(?P<value>{_LOOKS_RANDOM})"
)
_HEXADECIMAL = re.compile("(?:[0-9A-Fa-f]{32}){1,2}")
_IS_NAME = re.compile(rf"(?i){_NAME}[0-9]?$")
_IS_VALUE = re.compile(_LOOKS_RANDOM)
_NAME_WORDS = ("key", "secret", "token")

_AWS_ID = re.compile(r"A[KS]IA[0-9A-Z]{16}")
_AWS_SECRET = re.compile(r"(?<![A-Za-z0-9/+])[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])")
_AWS_NEAR = 200
"""Signs between an access key id and its secret, as in a table or a file of credentials."""

_LOOKAHEAD = re.compile(r"\(\?[=!].*?\)")
_BLANK_SIGN = r"(?:[ \t]|\\+(?:[nrt]|u00[02][09adAD]))+"
"""A blank, as JSON of any level writes it."""
API_KEY_SIGNS = (
    *(first + _LOOKAHEAD.sub("", rest).replace("}+", "}").replace("*+", "*") for first, rest, *_ in _KEYS),
    _BEGIN,
    rf"(?i)bearer{_BLANK_SIGN}[A-Za-z0-9._~+/=-]{{12}}",
    r"JQQJ9[9DH][A-Za-z0-9]{26}",
    rf"(?i:basic){_BLANK_SIGN}[A-Za-z0-9+/_-]{{3,}}[0-9A-Z+/=]",
    *(rf"(?is){name}[^A-Za-z0-9].{{0,32}}{_VALUE}{{{_SHORTEST}}}" for name in _NAMES),
)


def api_keys(text: str) -> Iterator[Span]:
    """The spans of a text that are keys or tokens, in order."""
    end = 0
    for span in sorted(_spans(text)):
        if span[1] > end:  # not within a longer one, such as a key after "Bearer "
            yield max(span[0], end), span[1]
            end = span[1]


def is_api_key(name: str, value: str) -> bool:
    """Return whether the value of a field of that name is a key."""
    return bool(_IS_NAME.search(name) and _IS_VALUE.fullmatch(value.strip()))


def _spans(text: str) -> Iterator[Span]:
    for pattern in _PATTERNS:
        yield from (match.span() for match in pattern.finditer(text))
    yield from ((match.start() - _AZURE_HEAD, match.end()) for match in _AZURE_MARK.finditer(text))
    for match in _BASIC.finditer(text):
        if _is_user_and_password(match[1]):
            yield match.span()
    lower = text.lower()
    if any(word in lower for word in _NAME_WORDS):
        for match in _NAMED.finditer(text):
            if match["says"] or _is_mixed(match["value"]) or _HEXADECIMAL.fullmatch(match["value"]):
                yield match.span("value")
    for match in _AWS_ID.finditer(text):
        near = max(0, match.start() - _AWS_NEAR), match.end() + _AWS_NEAR
        yield from (secret.span() for secret in _AWS_SECRET.finditer(text, *near) if _is_mixed(secret[0]))


def _is_mixed(text: str) -> bool:
    """Return whether it has capitals, small letters and digits: a commit and most paths and names lack some."""
    return any(map(str.isupper, text)) and any(map(str.islower, text)) and any(map(str.isdigit, text))


def _is_user_and_password(text: str) -> bool:
    """Return whether this is base64 of `user:password` (RFC 7617), and not a word behind "basic"."""
    try:
        decoded = base64.b64decode(text.rstrip("=").translate(str.maketrans("-_", "+/")) + "==")
    except binascii.Error:
        return False
    return b":" in decoded and min(decoded) >= 0x20
