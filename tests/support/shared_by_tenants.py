"""A sidecar that several tenants share, each with keys of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from loops import Loop, RunLoop
from scripted import ScriptedExplorer
from serving import until
from stores import stored_rows

from slipstream.access.keys import as_hash, new_key

KEYS: dict[str, dict[str, Any]] = {
    "agent-a": {"roles": ["proxy", "feedback"], "tenant": "acme"},
    "backend-a": {"roles": ["feedback"], "tenant": "acme"},
    "annotator-a": {"roles": ["annotator"], "tenant": "acme"},
    "admin-a": {"roles": ["admin"], "tenant": "acme"},
    "agent-b": {"roles": ["proxy", "feedback"], "tenant": "beta"},
    "annotator-b": {"roles": ["annotator"], "tenant": "beta"},
    "admin-b": {"roles": ["admin"], "tenant": "beta"},
    "agent": {"roles": ["proxy", "feedback"]},
    "other-agent": {"roles": ["proxy", "feedback"]},
    "metrics": {"roles": ["metrics"]},
    "admin": {"roles": ["admin"]},
}


@dataclass
class Shared:
    """A sidecar that several tenants share; the store is looked at past it."""

    loop: Loop
    keys: dict[str, str]
    store_url: str

    def by(self, name: str) -> dict[str, str]:
        return {"authorization": f"Bearer {self.keys[name]}"}

    @asynccontextmanager
    async def as_(self, key: str) -> AsyncIterator[Loop]:
        """The loop as the holder of this key sees it."""
        async with httpx.AsyncClient(base_url=self.loop.url, headers=self.by(key), timeout=30) as client:
            yield Loop(self.loop.url, self.loop.explorer, client)

    async def chat(self, key: str, content: Any = "hello", **headers: str) -> dict[str, Any]:
        named = {f"x-slipstream-{name.replace('_', '-')}": value for name, value in headers.items()}
        return await self.loop.chat(content, headers={**self.by(key), **named})

    async def ask(self, key: str, method: str, path: str, **how: Any) -> httpx.Response:
        headers = {**self.by(key), **how.pop("headers", {})}
        return await self.loop.client.request(method, path, headers=headers, **how)

    async def stored(self, calls: int) -> list[tuple[str, str, str]]:
        """The session, the task and the msg_id of each call, in their order, once there are so many."""

        async def rows() -> list[Any] | None:
            query = "SELECT t.session_id, t.id, c.msg_id FROM calls c JOIN tasks t ON t.id = c.task_id ORDER BY "
            found = await stored_rows(self.store_url, query + "c.started_at")
            return found if len(found) == calls else None

        found: list[tuple[str, str, str]] = await until(rows)
        return found

    async def targets(self, key: str, receipt: httpx.Response) -> list[dict[str, Any]]:
        assert receipt.status_code == 202, receipt.text
        found = await self.ask(key, "GET", f"/feedback/{receipt.json()['id']}")
        assert found.status_code == 200, found.text
        targets: list[dict[str, Any]] = found.json()["targets"]
        return targets


RunShared = Callable[..., AbstractAsyncContextManager[Shared]]


def sharing(run_loop: RunLoop, store_url: str) -> RunShared:
    """Start one with these keys; sections as for `run_loop`, `access` over the keys."""

    @asynccontextmanager
    async def start(explorer: ScriptedExplorer | None = None, /, **sections: Any) -> AsyncIterator[Shared]:
        keys = {name: new_key() for name in KEYS}
        made = [{"name": name, "hash": as_hash(keys[name]), **key} for name, key in KEYS.items()]
        sections["access"] = {"keys": made, **sections.get("access", {})}
        sections["production"] = {"api_key": "production's own", **sections.get("production", {})}
        async with run_loop(explorer or ScriptedExplorer(), **sections) as loop:
            yield Shared(loop, keys, store_url)

    return start
