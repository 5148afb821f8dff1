"""Numbers as typesetters write them. Unicode's NFKC alone makes other numbers of some: 102 of 10², and 21/2 of 2½."""

from __future__ import annotations

import re
import unicodedata

_POWER = re.compile("([⁺⁻]?)([⁰¹²³⁴-⁹]+)")
_GLUED = re.compile(r"(?<=\d)(?=[₀-₉①-⒛¼-¾⅐-⅞])|(?<=[⁰¹²³⁴-⁹₀-₉①-⒛¼-¾⅐-⅞])(?=\d)")
_MIXED = re.compile(r"(?<![\d.,])(\d{1,9}) ?([¼-¾⅐-⅞])")
_SIGN = re.compile(r"(?<![\w)])–(?=\.?\d)")


def normalised(text: str) -> str:
    """The text by NFKC, each number by itself: a power of a number is written with `^`, a fraction with `/`, the minus
    sign as a hyphen, and so an en dash that stands for one."""
    return _plain(re.sub(rf"(?<=\d){_POWER.pattern}", lambda found: f"^{_exponent(found)}", _GLUED.sub(" ", text)))


def arithmetic(text: str, latex: bool) -> str:
    """As `normalised`, with powers of anything, and 2½ as 5/2.

    Args:
        latex: it is read as LaTeX, where a negative power needs brackets.
    """

    def power(found: re.Match[str]) -> str:
        exponent = _exponent(found)
        return f"^({exponent})" if latex and exponent.startswith("-") else f"^{exponent}"

    return _plain(_POWER.sub(power, _MIXED.sub(_improper, _GLUED.sub(" ", text))))


def _exponent(found: re.Match[str]) -> str:
    """The exponent in ASCII, without a plus sign."""
    return ("-" if found[1] == "⁻" else "") + unicodedata.normalize("NFKC", found[2])


def _improper(found: re.Match[str]) -> str:
    over, under = map(int, unicodedata.normalize("NFKC", found[2]).split("⁄"))
    return f"{int(found[1]) * under + over}/{under}"


def _plain(text: str) -> str:
    return _SIGN.sub("-", unicodedata.normalize("NFKC", text).replace("⁄", "/").replace("−", "-"))
