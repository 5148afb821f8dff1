"""A real `slipstream up`: sidecar, Explorer and Trainer as processes, with the files that the project ships."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
from ports import free_port
from serving import until

ROOT = Path(__file__).parents[2]


class Up:
    """One that runs, or has ended.

    Attributes:
        client: asks the sidecar.
        environment: that it was started with.
        log: all that it has written, once it has ended.
        exit_code: None while it runs.
    """

    def __init__(self, client: httpx.AsyncClient, environment: dict[str, str]) -> None:
        self.client, self.environment = client, environment
        self.log = ""
        self.exit_code: int | None = None


@asynccontextmanager
async def slipstream_up(
    folder: Path, model: Path, production_url: str, *, overlays: Sequence[Path] = (), **environment: str
) -> AsyncIterator[Up]:
    """Start it in `folder`, which keeps its store and its checkpoints; ends it by SIGTERM.

    Args:
        overlays: merged over `small-cpu.yaml`.
        environment: further variables.
    """
    port, explorer_port = free_port(), free_port()
    for name in ("sidecar.yaml", "explorer.yaml", "trainer.yaml"):
        shutil.copy(ROOT / name, folder)
    variables = {
        **os.environ,
        "MODEL_PATH": str(model),
        "CHECKPOINT_ROOT_DIR": str(folder / "checkpoints"),
        "EXPLORER_PORT": str(explorer_port),
        "SLIPSTREAM_LISTEN": f"127.0.0.1:{port}",
        "SLIPSTREAM_PRODUCTION__BASE_URL": f"{production_url}/v1",
        "SLIPSTREAM_EXPLORER__BASE_URL": f"http://127.0.0.1:{explorer_port}",
        **environment,
    }
    command = [sys.executable, "-P", "-m", "slipstream", "up"]
    for overlay in (ROOT / "overlays" / "small-cpu.yaml", *overlays):
        command += ["--overlay", str(overlay)]
    process = await asyncio.create_subprocess_exec(*command, cwd=folder, env=variables, stdout=asyncio.subprocess.PIPE)
    reading = asyncio.create_task(process.communicate())

    async def ready() -> bool:
        assert process.returncode is None, "slipstream up ended"
        try:
            return (await client.get("/readyz")).json()["explorer"] is True
        except httpx.TransportError:
            return False

    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60) as client:
        up = Up(client, variables)
        try:
            await until(ready, 300)
            yield up
        finally:
            process.send_signal(signal.SIGTERM)
            output, _ = await reading
            up.log, up.exit_code = output.decode(), process.returncode
