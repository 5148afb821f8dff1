"""The page /docs asks no other host for anything, and says so to the browser."""

from __future__ import annotations

import re

import pytest
from loops import RunLoop


@pytest.mark.slow
async def test_the_page_has_all_of_its_files_here(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        page = await loop.client.get("/docs")
        assert page.status_code == 200
        assert "http" not in page.text, "no address of another host"
        asked = re.findall(r'(?:src|href)="([^"]+)"', page.text)
        assert len(asked) == 3
        for path in asked:
            file = await loop.client.get(path)
            assert file.status_code == 200
            assert file.headers["content-type"].startswith(("text/css", "text/javascript"))
            assert "default-src 'none'; script-src 'self';" in file.headers["content-security-policy"]
        assert "<script>" not in page.text, "the policy lets no script of the page's own run"
        assert b"SwaggerUIBundle" in (await loop.client.get("/docs/swagger-ui-bundle.js")).content
        assert (await loop.client.get("/docs/redoc.standalone.js")).status_code == 422
        assert (await loop.client.get("/redoc")).status_code == 404
