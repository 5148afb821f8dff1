"""The page below a path of a real nginx, as docs/page.md writes its configuration."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from browser_tab import tab
from debian import installed
from loops import Loop
from playwright.async_api import Browser, expect
from ports import free_port
from serving import until

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

PAGE = (Path(__file__).parents[2] / "docs" / "page.md").read_text()

_NGINX = """
daemon off;
master_process off;
pid {folder}/pid;
error_log {folder}/error.log emerg;
events {{}}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port};
    {location}
  }}
}}
"""


@asynccontextmanager
async def nginx_before(url: str, folder: Path) -> AsyncIterator[str]:
    nginx = installed("nginx-light", "nginx")
    port = free_port()
    location = re.findall(r"```nginx\n(.*?)```", PAGE, re.DOTALL)[0].replace("http://127.0.0.1:8100", url)
    config = folder / "nginx.conf"
    config.write_text(_NGINX.format(folder=folder, port=port, location=location))
    process = await asyncio.create_subprocess_exec(nginx, "-c", str(config))
    try:
        async with httpx.AsyncClient() as client:

            async def up() -> bool:
                try:
                    return (await client.get(f"http://127.0.0.1:{port}/slipstream/healthz")).status_code == 200
                except httpx.TransportError:
                    return False

            await until(up)
        yield f"http://127.0.0.1:{port}/slipstream/"
    finally:
        process.terminate()
        await process.wait()


async def test_the_page_works_below_a_path_that_the_server_in_front_takes_away(
    browser: Browser, site: Loop, tmp_path: Path
) -> None:
    async with nginx_before(site.url, tmp_path) as url:
        context = await browser.new_context()
        asked: list[str] = []
        async with tab(context) as page:
            page.on("request", lambda request: asked.append(request.url))
            await page.goto(url)
            await expect(page.get_by_role("heading", name="Now", exact=True)).to_be_visible()
            await expect(page.get_by_role("img", name="live", exact=True)).to_be_visible()
            for name in ("Tasks", "Versions", "Audit"):
                await page.get_by_role("navigation").get_by_role("link", name=name).click()
                await expect(page.get_by_role("heading", name=name, exact=True, level=1)).to_be_visible()
                await page.wait_for_load_state("networkidle")
                await expect(page.get_by_role("alert")).to_have_count(0)
        await context.close()
        assert [one for one in asked if not one.startswith(url)] == []
