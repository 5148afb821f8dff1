"""Requests of OpenAI clients whose base URL is not the sidecar's: what it should be."""

from __future__ import annotations

import re

from slipstream.http.headers import Headers
from slipstream.proxy.refusal import Refusal

_CALL = re.compile(rb"/(?:chat/completions|completions|responses|embeddings|messages|models)/?$")
"""Ends of the paths that clients of OpenAI's API and Anthropic's add to their base URL."""
_OURS = (b"/runs/", b"/explorer/")
"""Prefixes below which the control API answers such paths itself."""
_AZURE = b"/openai/"
_HOST = re.compile(rb"[A-Za-z0-9.-]{1,253}(?::[0-9]{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](?::[0-9]{1,5})?")
_LONGEST_PATH = 200
"""Characters of the path that an answer quotes."""


def misdirected(method: bytes, target: bytes, headers: Headers) -> Refusal | None:
    """The answer to a call of a model that was sent to an address of the sidecar where none is taken; None for any
    other request."""
    if method != b"POST" or target.startswith(_OURS):
        return None
    path = target.partition(b"?")[0]
    if not _CALL.search(path):
        return None
    if path.startswith(_AZURE):
        why = "Azure's paths are passed on where production.base_url is an Azure endpoint, such as "
        why += "https://NAME.openai.azure.com/openai/v1; this sidecar's is none. With OpenAI's client, use "
    else:
        why = "expected "
    return _refusal(path, why, headers)


def doubled(target: bytes, headers: Headers) -> Refusal:
    """The answer to a request whose path has `/v1` twice."""
    return _refusal(
        target.partition(b"?")[0], "the client adds a /v1 of its own to it, or it has one too many; use ", headers
    )


def _refusal(path: bytes, why: str, headers: Headers) -> Refusal:
    host = next((value.strip() for name, value in headers if name.lower() == b"host"), b"")
    shown = host.decode("ascii") if _HOST.fullmatch(host) else "SIDECAR:8100"
    found = path[:_LONGEST_PATH].decode("latin-1")
    text = f"base_url: {why}http://{shown}/v1 (a client of Anthropic's: without /v1). No model is asked at {found}."
    return Refusal(404, "wrong_base_url", text)
