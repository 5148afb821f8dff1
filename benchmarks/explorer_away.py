"""What a broken Explorer costs production: latency through the sidecar while the Explorer is well, down, hung, or
answers rubbish; each condition in turn, several rounds, so that the machine's own drift falls on all alike.

    python benchmarks/explorer_away.py [--calls 200] [--rounds 3]

Production is a stub that answers after 20 ms. Everything is selected and captured; calls are made 4 at a time.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx
import yaml
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

from broken import WAYS, broken_explorer
from scripted import ScriptedExplorer, completion
from serving import serving, until

_THINKING = 0.02
"""Seconds that production takes: enough to be no race, little enough to show a millisecond."""
_AT_ONCE = 4


async def _chat(request: Request) -> JSONResponse:
    await request.body()
    await asyncio.sleep(_THINKING)
    return JSONResponse(completion("prod", "an answer"))


@asynccontextmanager
async def _sidecar(folder: Path, production_url: str, explorer_url: str) -> AsyncIterator[httpx.AsyncClient]:
    """`slipstream serve` as a process of its own."""
    probe = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = probe.sockets[0].getsockname()[1]
    probe.close()
    await probe.wait_closed()
    config = folder / f"{port}.yaml"
    config.write_text(
        yaml.safe_dump(
            {
                "listen": f"127.0.0.1:{port}",
                "production": {"base_url": f"{production_url}/v1"},
                "explorer": {"base_url": explorer_url},
                "store": {"url": f"sqlite+aiosqlite:///{folder}/{port}.db"},
                "selection": {"sampling": {"rate": 1.0}},
                "rewards": {"calculators": [{"constant": {"value": 0.5}}]},
                "commit": {"interval": "1s", "on_shutdown": False},
                "runs": {"timeout": "2s"},
                "log": {"level": "error"},
            }
        )
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "slipstream", "serve", "--config", str(config), stderr=asyncio.subprocess.DEVNULL
    )
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:

        async def ready() -> bool:
            try:
                return (await client.get("/readyz")).status_code == 200
            except httpx.TransportError:
                return False

        try:
            await until(ready, 60)
            yield client
        finally:
            process.kill()
            await process.wait()


async def _latencies(client: httpx.AsyncClient, calls: int) -> list[float]:
    """Seconds of each call."""
    places = asyncio.Semaphore(_AT_ONCE)

    async def ask(number: int) -> float:
        body = {"model": "prod", "messages": [{"role": "user", "content": f"question {number} {time.time()}"}]}
        async with places:
            started = time.perf_counter()
            response = await client.post("/v1/chat/completions", json=body)
            assert response.status_code == 200
            return time.perf_counter() - started

    return await asyncio.gather(*(ask(number) for number in range(calls)))


async def _measure(calls: int, rounds: int) -> None:
    taken: dict[str, list[float]] = {}
    routes = [Route("/v1/chat/completions", _chat, methods=["POST"])]
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        production_url = await stack.enter_async_context(serving(Starlette(routes=routes)))
        explorers = {"well": await stack.enter_async_context(serving(ScriptedExplorer().app()))}
        for way in WAYS:
            explorers[way] = await stack.enter_async_context(broken_explorer(way))
        for _ in range(rounds):
            for way, explorer_url in explorers.items():
                async with _sidecar(folder, production_url, explorer_url) as client:
                    await _latencies(client, 20)  # warm: connections are open, code is loaded
                    taken.setdefault(way, []).extend(await _latencies(client, calls))
    print(f"{calls} calls x {rounds} rounds, {_AT_ONCE} at once, production answers after {_THINKING * 1000:.0f} ms\n")
    print("| Explorer | p50, ms | p90, ms | p99, ms |\n|---|---|---|---|")
    for way, seconds in taken.items():
        cuts = statistics.quantiles(seconds, n=100)
        print(f"| {way} | {cuts[49] * 1000:.1f} | {cuts[89] * 1000:.1f} | {cuts[98] * 1000:.1f} |")


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    asyncio.run(_measure(options.calls, options.rounds))


if __name__ == "__main__":
    main()
