"""Texts inside of `data:` URLs (RFC 2397): files that a message carries, in base64 or percent-encoded.

Pictures, sounds and other files that are no text are left alone: in their base64 a match could only be an accident.
"""

from __future__ import annotations

import base64
import binascii
import re
from codecs import getincrementaldecoder
from urllib.parse import unquote

DATA_URL = re.compile(
    r"(?i)(data:[\w.+-]{0,64}(?:/[\w.+-]{0,128})?(?:;[\w.+-]{1,64}=[^;,\s\"'<>\\]{0,128}){0,8}(?:;base64,[A-Za-z0-9+/_%=-]*+"
    r"|,[^\s\"'<>]*+))"
)
"""A data URL, as a group, so that `split` gives what is between them and them in turn."""

_BASE64 = ";base64,"
_ONE_ALPHABET = str.maketrans("-_", "+/")
_HEAD = 64
"""Characters of base64, a multiple of four."""

_ASCII_QUAD = "[A-Za-f][A-HQ-Xg-nw-z0-3][ABEFIJMNQRUVYZcdghklopstwx014589][A-Za-z0-9+/_-]"
"""Four characters of base64 that stand for three of ASCII: the highest bit of each byte is 0."""

SIGNS = (
    r"(?i)data:(?:text|application|message|multipart)/",
    r"(?i)data:image/svg",
    rf"(?i:;base64,)(?:{_ASCII_QUAD}){{4}}",  # whatever its media type says
    r"(?i)data:[^, ]{0,64},[^ ]*%",
    r"(?i)data:[,;]",
)
"""Patterns, as `Suspects` takes them, of JSON in which a text may be in a data URL. Pictures have none of these."""


class DataUrl:
    """A data URL that may hold a text.

    Attributes:
        base64: whether what it holds is in base64.
        text: what that is, or None where it is no text; the URL itself where it is not in base64.
    """

    def __init__(self, url: str) -> None:
        head, mark, content = _partition(url)
        self._head = head + mark
        self.base64 = bool(mark)
        self.text = _decoded(content) if mark else url

    def with_text(self, text: str) -> str:
        """The URL in base64 with another text in it."""
        return self._head + base64.b64encode(text.encode("utf-8", "surrogatepass")).decode()


def _partition(url: str) -> tuple[str, str, str]:
    at = url.lower().find(_BASE64)
    if at < 0:
        return url, "", ""
    return url[:at], url[at : at + len(_BASE64)], url[at + len(_BASE64) :]


def _decoded(content: str) -> str | None:
    """The text that base64 of either alphabet stands for, or None where it is no text."""
    plain = unquote(content).rstrip("=").translate(_ONE_ALPHABET)
    try:
        # a picture is told by its first bytes
        getincrementaldecoder("utf-8")().decode(base64.b64decode(plain[:_HEAD] + "=="))
        # one character too many is of a URL that was cut off
        text = base64.b64decode(plain[: len(plain) - (len(plain) % 4 == 1)] + "==").decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return None if "\0" in text else text
