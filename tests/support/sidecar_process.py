"""`slipstream serve` as a process that a test can kill at any moment."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import httpx
import yaml
from serving import until


class SidecarProcess:
    """`slipstream serve` as a process, on one port and one store for all its lives."""

    def __init__(self, folder: Path, production_url: str, explorer_url: str, **sections: Any) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.store = folder / "slipstream.db"
        self.config = folder / "sidecar.yaml"
        self.url = f"http://127.0.0.1:{port}"
        self.lives = 0
        self._process: asyncio.subprocess.Process | None = None
        self.config.write_text(
            yaml.safe_dump(
                {
                    "listen": f"127.0.0.1:{port}",
                    "production": {"base_url": f"{production_url}/v1"},
                    "explorer": {"base_url": explorer_url, "poll_interval": "200ms"},
                    "store": {"url": f"sqlite+aiosqlite:///{self.store}"},
                    "commit": {"interval": "150ms"},
                    "log": {"level": "error"},
                    **sections,
                }
            )
        )

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "slipstream", "serve", "--config", str(self.config)
        )
        self.lives += 1
        async with httpx.AsyncClient(base_url=self.url) as client:

            async def ready() -> bool:
                try:
                    return (await client.get("/readyz")).status_code == 200
                except httpx.TransportError:
                    return False

            await until(ready, 60)

    async def end(self, how: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(how)
        await self._process.wait()


async def acknowledged(
    client: httpx.AsyncClient, path: str, body: dict[str, Any], headers: dict[str, str] | None = None
) -> Any:
    """Post until it is acknowledged, over every death of the sidecar in between."""

    async def posted() -> Any:
        try:
            response = await client.post(path, json=body, headers=headers)
        except httpx.TransportError:
            return None
        assert response.status_code in (200, 202), response.text
        return response.json()

    return await until(posted, 120)
