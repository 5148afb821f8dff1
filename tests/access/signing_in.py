"""A browser that is signed in to a sidecar's page: it keeps cookies, and says where its requests come from."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

PAGE = {"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors", "sec-fetch-dest": "empty"}
"""What browsers add to what the page's own script asks for."""


@asynccontextmanager
async def browser(url: str, key: str | None = None) -> AsyncIterator[httpx.AsyncClient]:
    """One that has signed in with this key, if any."""
    async with httpx.AsyncClient(base_url=url, headers={**PAGE, "origin": url}, timeout=30) as client:
        if key is not None:
            signed_in = await client.post("/session", headers={"x-slipstream-key": key})
            assert signed_in.status_code == 200, signed_in.text
            assert signed_in.json()["signed_in"] is True
        yield client


def code_of(answer: httpx.Response) -> str | None:
    """The code of an error; None for an answer that is none."""
    if answer.status_code < 400:
        return None
    code: str | None = answer.json()["error"]["code"]
    return code
