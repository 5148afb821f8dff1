"""The built-in kinds of personal data and secrets: how each is found.

Every pattern here runs in time linear in the text: a repetition is bounded, or possessive and followed by what it
cannot match itself, and a match may start only where a run of its signs starts. What a pattern finds is then checked
in Python (checksums, address syntax), which keeps the patterns plain.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from ipaddress import ip_address

from slipstream.redaction.escapes import Span, replace, spans_through_escapes
from slipstream.redaction.keys import API_KEY_SIGNS, api_keys, is_api_key
from slipstream.redaction.passwords import PASSWORD_SIGNS, is_password, passwords


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of thing to be redacted.

    Attributes:
        find: the spans of a text that are of this kind, in order.
        signs: patterns of which one matches wherever there is such a span, as `Suspects` wants them.
        is_value: whether the value of a field with a given name is of this kind, whatever it looks like by itself.
    """

    find: Callable[[str], Iterator[Span]]
    signs: tuple[str, ...]
    is_value: Callable[[str, str], bool] = lambda name, value: False


def _word(first: str, rest: str, not_after: str = "0-9A-Za-z") -> re.Pattern[str]:
    """A pattern that matches `first` and `rest`, where none of the signs `not_after` precedes.

    What precedes is looked at after `first`, of fixed width, because a search for a literal or a set of signs is ten
    times as fast as trying a condition everywhere.
    """
    return re.compile(rf"{first}(?<![{not_after}]{first}){rest}")


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


KINDS = {
    "api_key": Kind(api_keys, API_KEY_SIGNS, is_api_key),
    "password": Kind(passwords, PASSWORD_SIGNS, is_password),
    "email": Kind(_emails, (r"[A-Za-z0-9._%+-]@[A-Za-z0-9-]+\.[A-Za-z0-9-]",)),
    "phone": Kind(_phones, (r"\+[1-9](?:[ ().-]{0,2}[0-9]){7}", r"1[3-9][0-9][ -]?[0-9]{4}[ -]?[0-9]{4}")),
    "credit_card": Kind(_cards, (r"[2-6](?:[ -]?[0-9]){12}",)),
    "ip": Kind(
        _addresses,
        (
            r"[0-9](?:\.[0-9]{1,3}){3}",
            r"[0-9A-Fa-f]:(?:[0-9A-Fa-f]{1,4}:){6}[0-9A-Fa-f]",
            r"[0-9][0-9A-Fa-f:]*::",
            r"::[0-9A-Fa-f:]*[0-9]",
        ),
    ),
}


def without_secrets(text: str) -> str:
    """The text without keys and passwords, for logs and errors. It needs the standard library alone, unlike `Redactor`:
    every command of `slipstream` writes logs, in environments that have no more than the command needs."""
    for name in ("api_key", "password"):
        spans = spans_through_escapes(text, KINDS[name].find)
        text = replace(text, ((start, end, f"[redacted:{name}]") for start, end in spans))
    return text
