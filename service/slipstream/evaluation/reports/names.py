"""Names of models on the command line: `production[:MODEL]`, `version:N`, `policy`, or a URL."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlsplit

from slipstream.errors import SlipstreamError

_LONGEST = 1024
_LARGEST_VERSION = 2**31 - 1
_FORMS = "production[:MODEL], version:NUMBER, policy, or http://HOST/v1#MODEL"


class ReportError(SlipstreamError):
    """A report cannot be made as it was asked for; says what was expected and what was found."""


class Kind(StrEnum):
    """Kind of a model that is asked."""

    PRODUCTION = "production"
    VERSION = "version"
    """A version of the policy, by its number."""
    POLICY = "policy"
    """The version that the Explorer serves, whichever it is."""
    URL = "url"
    """A model of any server that speaks OpenAI's API."""


@dataclass(frozen=True, slots=True)
class ModelName:
    """A model as it was named.

    Attributes:
        text: the name.
        model: the name by which its server knows it; None where that is found out.
        version: of the policy.
        url: of the server, with its `/v1`.
    """

    text: str
    kind: Kind
    model: str | None = None
    version: int | None = None
    url: str | None = None


def model_named(text: str) -> ModelName:
    """Read the name of a model.

    Raises:
        ReportError: it is none.
    """
    if not text.isprintable():  # it would stand in the report, which is UTF-8
        raise ReportError(f"--model: expected printable text, found {text[:_LONGEST]!a}")
    head, colon, rest = text.partition(":")
    if text == "policy":
        return ModelName(text, Kind.POLICY)
    if head == "production" and bool(colon) is bool(rest) and len(rest) <= _LONGEST:
        return ModelName(text, Kind.PRODUCTION, model=rest or None)
    if head == "version" and rest.isascii() and rest.isdecimal() and int(rest) <= _LARGEST_VERSION:
        return ModelName(f"version:{int(rest)}", Kind.VERSION, version=int(rest))
    if head in ("http", "https"):
        return _at_url(text)
    raise ReportError(f"--model: expected {_FORMS}; found {text[:_LONGEST]!r}")


def _at_url(text: str) -> ModelName:
    url, _, model = text.partition("#")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port  # the port is looked at when it is read
    except ValueError as error:
        raise ReportError(f"--model: expected a URL; {error}") from error
    if parts.username is not None or parts.password is not None:  # it would stand in the report
        raise ReportError("--model: expected a URL without a user and a password; --model-key-from names a variable")
    if not host or parts.query or not 0 < len(model) <= _LONGEST:
        raise ReportError(f"--model: expected http://HOST/v1#MODEL, found {text[:_LONGEST]!r}")
    return ModelName(f"{url.rstrip('/')}#{model}", Kind.URL, model=model, url=url.rstrip("/"))
