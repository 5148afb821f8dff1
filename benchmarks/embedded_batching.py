"""The embedded Explorer's tokens a second, by how many requests come at once: SmolLM2-135M, over real HTTP.

    python benchmarks/embedded_batching.py [--rounds 3] [--tokens 64] [--dtype bfloat16] [--at-once 1 8 64]
        [--source DIR ...] [--vllm PYTHON]

The Explorer is a process of its own (`slipstream explorer`). A round measures each number at once, so that the
machine's drift falls on all alike; the best round counts. With several `--source` (checkouts of this repository) the
rounds of their Explorers are interleaved; with `--vllm` (the Python of an environment with vLLM) there is one more, of
the first checkout with vLLM as its engine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil
import torch
import yaml

from slipstream.local import model

ROOT = Path(__file__).parents[1]
AT_ONCE = (1, 2, 4, 8, 16)
_QUESTION = "Write a long story about a ship and its crew, number {}. Begin at once, and do not stop."
_PREFIX = "You are a patient teller of tales who never hurries and leaves out nothing. " * 16


@dataclass
class Explorer:
    """A running Explorer, and the best that was measured of it."""

    name: str
    pid: int
    client: httpx.AsyncClient
    model: str
    best: dict[str, float] = field(default_factory=dict)

    async def ask(self, question: str, tokens: int, seed: int, system: str = "") -> tuple[int, float]:
        """Tokens of the answer, and the seconds that it took."""
        started = time.perf_counter()
        messages = [{"role": "system", "content": system}] if system else []
        body = {
            "model": self.model,
            "messages": [*messages, {"role": "user", "content": question}],
            "max_tokens": tokens,
            "seed": seed,
        }
        answer = (await self.client.post("/v1/chat/completions", json=body)).raise_for_status().json()
        return answer["usage"]["completion_tokens"], time.perf_counter() - started

    def keep(self, name: str, value: float, better: str = "more") -> None:
        self.best[name] = (max if better == "more" else min)(value, self.best.get(name, value))

    def cpu_seconds(self) -> float:
        """CPU seconds of its process and of those that it started."""
        explorer = psutil.Process(self.pid)
        times = [process.cpu_times() for process in (explorer, *explorer.children(recursive=True))]
        return sum(each.user + each.system for each in times)


@asynccontextmanager
async def started(
    source: Path, folder: Path, directory: Path, dtype: str, vllm: Path | None = None
) -> AsyncIterator[Explorer]:
    """`slipstream explorer` from a checkout."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = folder / f"{port}.yaml"
    document = {
        "mode": "serve",
        "name": f"job-{port}",
        "checkpoint_root_dir": str(folder),
        "model": {"model_path": str(directory), "max_model_len": 2048},
        "explorer": {"proxy_port": port, "rollout_model": {"dtype": dtype, "gpu_memory_utilization": 0.2}},
    }
    config.write_text(yaml.safe_dump(document))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "slipstream", "--log-level", "error", "explorer", "--config", str(config)),
        *(("--vllm", str(vllm)) if vllm else ()),
        env={**os.environ, "PYTHONPATH": str(source / "service")},
    )
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=600) as client:
            for _ in range(1800):
                try:
                    await client.get("/health")
                    break
                except httpx.TransportError:
                    await asyncio.sleep(0.1)
            yield Explorer(f"{source.name}{' on vLLM' if vllm else ''}", process.pid, client, str(directory))
    finally:
        process.terminate()
        await process.wait()


async def equal(explorer: Explorer, at_once: int, tokens: int) -> None:
    """Requests of the same length that arrive together."""
    cpu, begun = explorer.cpu_seconds(), time.perf_counter()
    answers = await asyncio.gather(*(explorer.ask(_QUESTION.format(each), tokens, each) for each in range(at_once)))
    produced = sum(count for count, _ in answers)
    explorer.keep(f"{at_once} at once", produced / (time.perf_counter() - begun))
    explorer.keep(f"{at_once} at once, per CPU second", produced / max(explorer.cpu_seconds() - cpu, 0.01))


async def mixed(explorer: Explorer, tokens: int) -> None:
    """Short requests that come while long ones are being answered: they should not wait for these to end."""
    begun = time.perf_counter()
    long = [asyncio.create_task(explorer.ask(_QUESTION.format(each), 3 * tokens, each)) for each in range(4)]
    short = []
    for each in range(8):
        await asyncio.sleep(0.1)
        short.append(asyncio.create_task(explorer.ask("Say hello.", 8, each)))
    answers = await asyncio.gather(*long, *short)
    explorer.keep("mixed", sum(count for count, _ in answers) / (time.perf_counter() - begun))
    seconds = sorted(taken for _, taken in answers[len(long) :])
    explorer.keep("mixed, median seconds of the short", seconds[len(seconds) // 2], "less")


async def shared(explorer: Explorer, requests: int) -> None:
    """Different questions behind one long system message, one short answer each."""
    begun = time.perf_counter()
    await asyncio.gather(*(explorer.ask(_QUESTION.format(each), 8, each, _PREFIX) for each in range(requests)))
    explorer.keep(f"{requests} behind one system message, seconds", time.perf_counter() - begun, "less")


async def measure(
    sources: Sequence[Path], rounds: int, tokens: int, dtype: str, vllm: Path | None, at_once: Sequence[int]
) -> list[Explorer]:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        directory = await asyncio.to_thread(model.fetch, "smollm2", ROOT / ".cache" / "models" / "smollm2")
        explorers = [await stack.enter_async_context(started(source, folder, directory, dtype)) for source in sources]
        if vllm is not None:
            explorers.append(await stack.enter_async_context(started(sources[0], folder, directory, dtype, vllm)))
        for explorer in explorers:
            await explorer.ask("Say hello.", 8, 0)  # the first one is slower
        for _ in range(rounds):
            for explorer in explorers:
                for requests in at_once:
                    await equal(explorer, requests, tokens)
                await mixed(explorer, tokens)
                await shared(explorer, 16)
        return explorers


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=64, help="of each answer")
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    parser.add_argument(
        "--at-once", type=int, nargs="+", default=AT_ONCE, metavar="N", help="requests that come together"
    )
    parser.add_argument("--source", type=Path, action="append", help="a checkout; by default this one")
    parser.add_argument(
        "--vllm", type=Path, metavar="PYTHON", help="of an environment with vLLM: measure that engine too"
    )
    options = parser.parse_args()
    sources = [source.resolve() for source in options.source or [ROOT]]
    explorers = asyncio.run(
        measure(sources, options.rounds, options.tokens, options.dtype, options.vllm, options.at_once)
    )
    gpu = f"{torch.cuda.get_device_name()}, " if torch.cuda.is_available() else ""
    print(
        f"{model.SMOLLM2}, {options.dtype}, {gpu}{torch.get_num_threads()} threads of {os.cpu_count()} cores "
        f"({platform.machine()}), torch {torch.__version__}; {options.tokens} tokens an answer, "
        f"best of {options.rounds} rounds, tokens per second\n"
    )
    print("| |", " | ".join(each.name for each in explorers), "|\n|---|" + "---|" * len(explorers))
    for name in explorers[0].best:
        print(f"| {name} |", " | ".join(f"{explorer.best[name]:.2f}" for explorer in explorers), "|")
    fewest, most = min(options.at_once), max(options.at_once)
    for unit in ("", ", per CPU second"):
        ratios = (
            explorer.best[f"{most} at once{unit}"] / explorer.best[f"{fewest} at once{unit}"] for explorer in explorers
        )
        print(f"| {most} at once against {fewest}{unit} |", " | ".join(f"{ratio:.2f}" for ratio in ratios), "|")


if __name__ == "__main__":
    main()
