"""Personal data and secrets are taken out of what is captured, before it is stored.

Every pattern here runs in time linear in the text: a repetition is bounded, or possessive and followed by what it
cannot match itself, and a match may start only where a run of its signs starts. What a pattern finds is then checked
in Python (checksums, address syntax), which keeps the patterns plain.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from ipaddress import ip_address
from typing import Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

BuiltIn = Literal["api_key", "email", "phone", "credit_card", "ip"]


class RedactRule(BaseModel):
    """What to look for: a built-in kind by its name, or a pattern of one's own.

    Attributes:
        name: stands in the text's place, as `[redacted:name]`.
        pattern: a regular expression, or None for the built-in kind of that name.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1, max_length=64)
    pattern: re.Pattern[str] | None = None

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.pattern is None and self.name not in get_args(BuiltIn):
            raise ValueError(f"one of {', '.join(get_args(BuiltIn))}, or {{name, pattern}}; found {self.name}")
        return self


class Redactor:
    """Replaces what the rules find in strings by `[redacted:name]`, in the rules' order."""

    def __init__(self, rules: Sequence[RedactRule]) -> None:
        self._finders = [(_finder(rule), f"[redacted:{rule.name}]") for rule in rules]

    def redact(self, value: Any) -> Any:
        """A copy of a JSON value with its strings redacted; keys, numbers and structure stay as they are."""
        root = [value]
        pending: list[Any] = [root]
        while pending:  # no recursion: a caller decides how deep its JSON is
            node = pending.pop()
            for key, child in node.items() if isinstance(node, dict) else enumerate(node):
                if isinstance(child, str):
                    node[key] = self._redact_text(child)
                elif isinstance(child, dict | list):
                    node[key] = child.copy()
                    pending.append(node[key])
        return root[0]

    def _redact_text(self, text: str) -> str:
        for find, label in self._finders:
            # Odd parts are data URLs: pictures and sounds, in whose base64 a match could only be an accident.
            parts = _DATA_URL.split(text) if "data:" in text else [text]
            parts[::2] = (_replace(part, find(part), label) for part in parts[::2])
            text = "".join(parts)
        return text


Span = tuple[int, int]
Finder = Callable[[str], Iterator[Span]]


def _replace(text: str, spans: Iterator[Span], label: str) -> str:
    done, kept = 0, []
    for start, end in spans:
        kept += [text[done:start], label]
        done = end
    return "".join([*kept, text[done:]]) if kept else text


def _finder(rule: RedactRule) -> Finder:
    if rule.pattern is None:
        return _BUILT_IN[rule.name]
    pattern = rule.pattern
    return lambda text: (match.span() for match in pattern.finditer(text) if match[0])


def _word(first: str, rest: str, not_after: str = "0-9A-Za-z") -> re.Pattern[str]:
    """A pattern that matches `first` and `rest`, where none of the signs `not_after` precedes.

    It matches also after an escape such as \n or \u4f60: tool calls and results are JSON within strings, where the
    escape's last sign looks like a part of the word that follows. What precedes is looked at after `first`, of fixed
    width, because a search for a literal or a set of signs is ten times as fast as trying a condition everywhere.
    """
    return re.compile(
        rf"{first}(?:(?<![{not_after}]{first})|(?<=\\[nrt]{first})|(?<=\\u[0-9A-Fa-f]{{4}}{first})){rest}"
    )


_DATA_URL = re.compile(r"(data:[\w.+-]+/[\w.+-]+;base64,[A-Za-z0-9+/=]*)")

_API_KEYS = (
    # OpenAI, Anthropic, DeepSeek, OpenRouter, Langfuse; a digit or capital tells one from names such as "sk-learn-...".
    _word("sk-", r"(?=[a-z_-]{0,64}[0-9A-Z])[A-Za-z0-9_-]{12,}+"),
    _word("[rs]k_", r"(?:live|test)_[A-Za-z0-9]{16,}+"),  # Stripe
    _word("gsk_", r"[A-Za-z0-9]{20,}+"),  # Groq
    _word("gh[opsur]_", r"[A-Za-z0-9]{30,}+"),
    _word("github_pat_", r"[A-Za-z0-9_]{22,}+"),
    _word("glpat-", r"[A-Za-z0-9_-]{20,}+"),  # GitLab
    _word("xox[a-z]-", r"[A-Za-z0-9-]{10,}+"),  # Slack
    _word("xapp-", r"[0-9]-[A-Za-z0-9-]{10,}+"),  # Slack
    _word("A[KS]IA", r"[0-9A-Z]{16}(?![0-9A-Za-z])"),  # AWS
    _word("AIza", r"[A-Za-z0-9_-]{35}"),  # Google
    _word("hf_", r"[A-Za-z0-9]{20,}+"),  # Hugging Face
    _word("xai-", r"[A-Za-z0-9]{40,}+"),
    _word("nvapi-", r"[A-Za-z0-9_-]{40,}+"),  # NVIDIA
    _word("npm_", r"[A-Za-z0-9]{36}"),
    _word("pypi-AgE", r"[A-Za-z0-9_-]{40,}+"),
    _word(r"SG\.", r"[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}"),  # SendGrid
    _word("eyJ", r"[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]*+", "0-9A-Za-z_-"),  # JSON Web Token
    # A digit tells a token from plain words, such as "bearer authentication".
    _word("[Bb]earer ", r" {0,3}(?=[A-Za-z._~+/=-]{0,64}[0-9])[A-Za-z0-9._~+/=-]{12,}+"),
    # A block that was cut off reaches to the end of the text.
    re.compile(
        r"-----BEGIN [A-Z ]{0,32}PRIVATE KEY(?: BLOCK)?-----"
        r"(?s:.*?-----END [A-Z ]{0,32}PRIVATE KEY(?: BLOCK)?-----|.*)"
    ),
)


def _api_keys(text: str) -> Iterator[Span]:
    end = 0
    for span in sorted(match.span() for pattern in _API_KEYS for match in pattern.finditer(text)):
        if span[1] > end:  # not within a longer one, such as a key after "Bearer "
            yield max(span[0], end), span[1]
            end = span[1]


_EMAIL = _word("[A-Za-z0-9._%+-]", r"[A-Za-z0-9._%+-]*+@[A-Za-z0-9-]++(?:\.[A-Za-z0-9-]++)++", r"\\A-Za-z0-9._%+-")


def _emails(text: str) -> Iterator[Span]:
    if "@" not in text:  # most texts: an address can begin with any sign, so the search itself is slow
        return
    for match in _EMAIL.finditer(text):
        top_level = match[0].rpartition(".")[2]
        if top_level.isalpha() and len(top_level) > 1:  # a version such as react@18.2.0 is no address
            yield match.span()


_PHONE = _word(
    "[+018]",
    r"(?<![0-9][.,].)(?<![0-9A-Za-z]-.)(?<![$€£¥].)"  # the middle of a decimal number or of an id; a price
    r"(?:(?<=\+)[1-9](?:[ ().-]{0,2}[0-9]){7,14}"  # international: 8 to 15 digits (ITU-T E.164)
    r"|(?:(?<=0)086[ -]?1|(?<=8)6[ -]?1|(?<=1))[3-9][0-9][ -]?[0-9]{4}[ -]?[0-9]{4})"  # Chinese mobile
    r"(?![0-9A-Za-z_]|[.,][0-9])",
    "0-9A-Za-z_+",
)
_SIGNED_DATE = re.compile(r"\+[0-9]{4}-[0-9]{2}-[0-9]{2}")  # a line of a diff


def _phones(text: str) -> Iterator[Span]:
    for match in _PHONE.finditer(text):
        if not _SIGNED_DATE.match(match[0]):
            yield match.span()


_DIGITS = re.compile(r"[0-9]+")
_DIGIT_GROUPS = _word("[0-9]", r"(?=[0-9 -]{12})[0-9]{2,}+(?:[ -][0-9]{3,}+)*+", "0-9A-Za-z_.")
_CARD = re.compile(
    r"4[0-9]{12}(?:[0-9]{3}){0,2}"  # Visa
    r"|(?:5[1-5]|2[2-7])[0-9]{14}"  # Mastercard
    r"|3[47][0-9]{13}"  # American Express
    r"|3(?:0[0-5]|[68][0-9])[0-9]{11}"  # Diners Club
    r"|35[0-9]{14}"  # JCB
    r"|6(?:011|4[4-9][0-9]|5[0-9]{2})[0-9]{12}"  # Discover
    r"|62[0-9]{14,17}"  # UnionPay
)
_MOST_GROUPS = 6  # of at least 3 digits, in a card of at most 19


def _cards(text: str) -> Iterator[Span]:
    # A card is one group of digits or several, and other numbers (an amount, a security code) can stand beside it.
    for run in _DIGIT_GROUPS.finditer(text):
        groups = [match.span() for match in _DIGITS.finditer(text, *run.span())]
        if text[run.end() : run.end() + 1].isalpha():
            groups.pop()  # the beginning of an id
        first = 0
        while first < len(groups):
            for last in reversed(range(first, min(first + _MOST_GROUPS, len(groups)))):
                start, end = groups[first][0], groups[last][1]
                if _is_card(text[start:end].replace(" ", "").replace("-", "")):
                    yield start, end
                    first = last
                    break
            first += 1


def _is_card(digits: str) -> bool:
    if not _CARD.fullmatch(digits):
        return False
    doubled = sum(sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    return (doubled + sum(map(int, digits[::-2]))) % 10 == 0  # Luhn's check, ISO/IEC 7812-1


_IP_V4 = _word("[0-9]", r"[0-9]{0,2}(?:\.[0-9]{1,3}){3}(?!\.?[0-9A-Za-z])", "0-9A-Za-z.")
_IP_V6 = _word("[0-9A-Fa-f:]", r"(?=[0-9A-Fa-f]{0,3}:)[0-9A-Fa-f:]++(?![A-Za-z]|\.[0-9])", "0-9A-Za-z:.")


def _addresses(text: str) -> Iterator[Span]:
    found = [match.span() for match in _IP_V4.finditer(text) if _is_address(match[0])]
    for match in _IP_V6.finditer(text):
        start, end = match.span()
        if _is_address(match[0]):
            found.append((start, end))
        elif _is_address(match[0][:-1]):  # a colon that belongs to the sentence
            found.append((start, end - 1))
    return iter(sorted(found))


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return any(map(str.isdigit, text))  # `a::b` and `::` are code


_BUILT_IN: dict[str, Finder] = {
    "api_key": _api_keys,
    "email": _emails,
    "phone": _phones,
    "credit_card": _cards,
    "ip": _addresses,
}
