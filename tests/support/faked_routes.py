"""GET /session and GET /events for a tab, as a sidecar without keys answers them."""

from __future__ import annotations

import itertools
import json

from playwright.async_api import Page, Route

SESSION = {
    "signed_in": True, "keys_needed": False, "key": None, "roles": ["admin"], "tenant": None, "content": True,
    "expires_at": None,
}  # fmt: skip


async def fake_routes(page: Page) -> None:
    """Each stream ends after one event, which says that all has changed; the browser opens the next one."""
    numbers = itertools.count()

    async def events(route: Route) -> None:
        marks = dict.fromkeys(("tasks", "preferences"), str(next(numbers)))
        body = f"retry: 300\nevent: changed\ndata: {json.dumps(marks)}\n\n"
        await route.fulfill(content_type="text/event-stream", body=body)

    await page.route("**/session", lambda route: route.fulfill(json=SESSION))
    await page.route("**/events", events)
