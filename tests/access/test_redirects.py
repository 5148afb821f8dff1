"""No answer leads to another place: what a Host header says becomes no Location."""

from __future__ import annotations

import re

import pytest
from loops import RunLoop

ELSEWHERE = "localhost:9"


@pytest.mark.slow
async def test_no_path_of_the_control_api_is_redirected(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        paths = (await loop.client.get("/openapi.json")).json()["paths"]
        routes = [(method, re.sub(r"{\w+}", "1", path)) for path, methods in paths.items() for method in methods]
        routes += [("get", path) for path in ("/docs", "/redoc", "/openapi.json", "/healthz")]
        assert ("get", "/status") in routes
        for method, path in routes:
            for other in (f"{path}/", f"/{path}", path.upper()):
                response = await loop.client.request(method, loop.url + other, headers={"host": ELSEWHERE})
                assert response.status_code // 100 != 3, (other, dict(response.headers))
                assert ELSEWHERE not in str(response.headers), other
