"""The kind `password`: what stands behind a name such as `password`, `passwd` or `pwd`, and in the userinfo of a URL.

Code and forms speak of passwords without holding one (`password: str`, `password=None`, `$DB_PASSWORD`, "Password:
required"): such words stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from slipstream.redaction.escapes import Span

_NAME = r"(?:password|passwd|passphrase|passcode|pwd)[0-9]?"
_APART = r"""\s"'`&;,<>(){}\[\]|"""
"""Characters that end a password without quotation marks."""
# Not possessive where a group is repeated: before Python 3.11.5 `re` found no match then, and nothing was redacted.
_NAMED = re.compile(
    rf"(?i)(?P<name>{_NAME})(?:"
    r"""["'`]?[ \t]{0,3}(?:,\s{0,4}["']value["']\s?)?(?:=>|:=|[:=])[ \t\r\n\[]{0,4}"""
    r"""(["'`])(?P<quoted>(?:[^"'`\\\n]|\\.|(?!\2)["'`]){1,512})\2"""
    rf"|[ \t]{{0,3}}:?=(?!=)[ \t]{{0,3}}(?P<set>(?:[^{_APART}\\]|\\(?![nrtbfu\"'/\\])){{1,512}}+)(?!\()"
    rf"|:[ \t]{{0,3}}(?P<line>[^{_APART}\\]{{3,512}}+)(?=[ \t]*(?:$|[\r\n,;&}}]))"
    rf"|[ \t]is[ \t:]{{1,3}}(?=\S{{0,64}}[0-9])(?P<told>[^{_APART}\\]{{4,512}}+)"
    r")"
)
_USERINFO = re.compile(r"""://[^\s:/@"'<>]{0,64}:([^\s/"'<>]{1,256})@""")
_IS_NAME = re.compile(rf"(?i){_NAME}$")
_NO_PASSWORD = re.compile(
    r"(?i)[\w.]*(?:password|passwd|passphrase|pwd)"  # a variable, or the word itself
    r"|none|null|nil|true|false|undefined|str|string|text|bytes|int|any|object|optional|required|invalid|incorrect"
    r"|wrong|reset|expired|hidden|masked|empty|redacted|yes|no"
    r"|[*•.x]+|\$\{?\w*\}?|\{.*\}|<.*>|%\(?\w+\)?s?|%\w+%|\[redacted:.*"  # a mark, a template
)

PASSWORD_SIGNS = (
    rf"""(?is){_NAME}(?:["'`\\ ]|u00[0-9a-f]{{2}}|[tnr]){{0,16}}(?:[:=]|is|,.{{0,12}}value)""",
    r"://[^ :/@]*:[^ /]+@",
)


def passwords(text: str) -> Iterator[Span]:
    """The spans of a text that are passwords, in order."""
    return iter(sorted({*_named(text), *_userinfo(text)}))


def is_password(name: str, value: str) -> bool:
    """Return whether the value of a field of that name is a password."""
    return bool(_IS_NAME.search(name)) and _says_one(name, value)


def _says_one(name: str, value: str) -> bool:
    if name.lower().endswith("pwd") and value.startswith(("/", "~", "C:")):  # the working directory
        return False
    return bool(value) and not _NO_PASSWORD.fullmatch(value)


def _named(text: str) -> Iterator[Span]:
    lower = text.lower()
    if "pass" not in lower and "pwd" not in lower:
        return
    for match in _NAMED.finditer(text):
        form = match.lastgroup or ""
        if _says_one(match["name"], match[form]):
            yield match.span(form)


def _userinfo(text: str) -> Iterator[Span]:
    if "://" not in text:
        return
    for match in _USERINFO.finditer(text):
        if not _NO_PASSWORD.fullmatch(match[1]):
            yield match.span(1)
