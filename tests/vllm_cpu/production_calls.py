"""Streams through the sidecar to a real vLLM: run in a network namespace, by `test_vllm.py`.

    python production_calls.py --vllm PYTHON --model DIR --folder DIR [--calls N]

Starts vLLM's OpenAI server and `slipstream serve`, asks for that many streams with the openai SDK, sync and then async,
and prints a line of JSON: how many were captured of each, the reasons of the others, and the connections that were
opened to vLLM.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import openai
from prometheus_client.parser import text_string_to_metric_families

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from serving import until
from sidecar_process import SidecarProcess

_PORT = 8000  # of a namespace that is ours alone
_START_SECONDS = 900.0  # on a busy machine
_CALL_SECONDS = 120.0
_ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}
MESSAGES: Any = [{"role": "user", "content": "Count to five."}]


async def main() -> None:
    arguments = _arguments()
    folder: Path = arguments.folder
    async with _vllm(arguments.vllm, arguments.model, folder / "vllm.log") as url:
        sidecar = SidecarProcess(folder, url, "http://127.0.0.1:9", selection={"explicit_mark": {}})
        sidecar.log = folder / "sidecar.log"
        await sidecar.start()
        base_url = f"{sidecar.url}/v1"
        result: dict[str, Any] = {}
        before = await _counters(sidecar.url)
        for name, ask in (("sync", _sync), ("async", _async)):
            await ask(base_url, arguments.calls)
            result[name] = await _rise(sidecar.url, before, arguments.calls)
            before = await _counters(sidecar.url)
        sidecar.send(signal.SIGTERM)
        await sidecar.ended()
    print(json.dumps(result | {"connections": before["connections"]}))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--vllm", required=True, help="the Python of vLLM's environment")
    parser.add_argument("--model", required=True)
    parser.add_argument("--folder", type=Path, required=True, help="for logs and the store")
    parser.add_argument("--calls", type=int, default=20)
    return parser.parse_args()


@contextlib.asynccontextmanager
async def _vllm(python: str, model: str, log: Path) -> AsyncIterator[str]:
    """vLLM's OpenAI server, and its URL."""
    command = (
        *(python, "-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1", "--port", str(_PORT)),
        *("--model", model, "--served-model-name", "production", "--dtype", "float32", "--enforce-eager"),
        *("--max-model-len", "512", "--max-num-seqs", "4"),
    )
    url = f"http://127.0.0.1:{_PORT}"
    with log.open("wb") as out:
        server = await asyncio.create_subprocess_exec(*command, stdout=out, stderr=out, env=os.environ | _ENVIRONMENT)
    try:
        async with httpx.AsyncClient() as client:

            async def ready() -> bool:
                if server.returncode is not None:
                    raise RuntimeError(f"vLLM ended with {server.returncode}: see {log}")
                try:
                    return (await client.get(f"{url}/health")).status_code == 200
                except httpx.TransportError:
                    return False

            await until(ready, _START_SECONDS)
        yield url
    finally:
        if server.returncode is None:
            server.terminate()
        await server.wait()


async def _sync(base_url: str, calls: int) -> None:
    def ask() -> None:
        with openai.OpenAI(base_url=base_url, api_key="x", max_retries=0, timeout=_CALL_SECONDS) as client:
            for _ in range(calls):
                stream = client.chat.completions.create(
                    model="production", messages=MESSAGES, stream=True, max_tokens=8
                )
                assert [chunk.choices[0].finish_reason for chunk in stream][-1] is not None

    await asyncio.to_thread(ask)


async def _async(base_url: str, calls: int) -> None:
    async with openai.AsyncOpenAI(base_url=base_url, api_key="x", max_retries=0, timeout=_CALL_SECONDS) as client:
        for _ in range(calls):
            stream = await client.chat.completions.create(
                model="production", messages=MESSAGES, stream=True, max_tokens=8
            )
            assert [chunk.choices[0].finish_reason async for chunk in stream][-1] is not None


async def _rise(url: str, before: dict[str, int], calls: int) -> dict[str, int]:
    """What became of so many calls, by the word `captured` or the reason why not."""

    async def rise() -> dict[str, int] | None:
        now = await _counters(url)
        rose = {name: now[name] - before.get(name, 0) for name in now if name != "connections"}
        return {name: count for name, count in rose.items() if count} if sum(rose.values()) >= calls else None

    found: dict[str, int] = await until(rise, 60)
    return found


async def _counters(url: str) -> dict[str, int]:
    async with httpx.AsyncClient() as client:
        text = (await client.get(f"{url}/metrics")).text
    counters: dict[str, int] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == "slipstream_calls_captured_total":
                counters["captured"] = int(sample.value)
            elif sample.name == "slipstream_calls_not_captured_total":
                counters[sample.labels["reason"]] = int(sample.value)
            elif sample.name == "slipstream_proxy_connect_seconds_count":
                counters["connections"] = int(sample.value)
    return counters


if __name__ == "__main__":
    asyncio.run(main())
