"""Put the agent to work, and show what the policy learns from it: the reward on held-out invoices by version.

    python curve.py [--invoices N] [--every N] [--held-out N]

Invoices go through the sidecar to production, as the work of any agent. The sidecar has the policy model answer each of
them eight times, and trains it. Every few invoices the policy itself is asked about invoices that are never trained on.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from statistics import fmean

import httpx
from my_agent import book, invoices
from my_rewards import graded
from openai import APIConnectionError, AsyncOpenAI

SIDECAR = os.environ.get("SLIPSTREAM_URL", "http://127.0.0.1:8100")
EXPLORER = os.environ.get("EXPLORER_URL", "http://127.0.0.1:8010")
STEP_SECONDS = 900  # far more than a training step takes
TASKS_A_STEP = 4  # with eight runs each they are the Trainer's batch


async def main() -> None:
    arguments = _arguments()
    began = time.monotonic()
    held_out = invoices(seed=1, count=arguments.held_out)
    known = {text for text, _ in held_out}
    work = [each for each in invoices(seed=2, count=2 * arguments.invoices) if each[0] not in known]
    production = AsyncOpenAI(base_url=f"{SIDECAR}/v1", api_key="not-needed", timeout=600)
    policy = AsyncOpenAI(base_url=f"{EXPLORER}/v1", api_key="not-needed", timeout=600)
    served = (await policy.models.list()).data[0].id
    points: list[tuple[int, float]] = []

    def say(text: str) -> None:
        minutes, seconds = divmod(int(time.monotonic() - began), 60)
        print(f"{minutes:3}:{seconds:02}  {text}", flush=True)

    async def measure(version: int) -> None:
        answers = await asyncio.gather(*(book(policy, text, model=served) for text, _ in held_out))
        reward = fmean(graded(calls, right)[0] for calls, (_, right) in zip(answers, held_out, strict=True))
        points.append((version, reward))
        say(f"version {version}: reward {reward:.2f} on held-out invoices  {'#' * round(40 * reward)}")

    await measure(version := await _version())
    for start in range(0, arguments.invoices, TASKS_A_STEP):
        batch = work[start : start + TASKS_A_STEP]
        await asyncio.gather(*(book(production, text, reference=right) for text, right in batch))
        say(f"{start + len(batch)} invoices booked; the policy answers the last {len(batch)} and learns from them")
        version = await _newer(version)
        if (start + len(batch)) % arguments.every == 0:
            await measure(version)
    _draw(points)


async def _version() -> int:
    """The version of the policy that is served, as the sidecar sees it."""
    async with httpx.AsyncClient(trust_env=False) as client:
        return int((await client.get(f"{SIDECAR}/status")).json()["policy"]["version"] or 0)


async def _newer(than: int) -> int:
    """Wait for the version that comes of the invoices just booked."""
    for _ in range(2 * STEP_SECONDS):
        if (version := await _version()) > than:
            return version
        await asyncio.sleep(0.5)
    raise SystemExit(f"no new version in {STEP_SECONDS} s: {SIDECAR}/status and the log of slipstream up tell why")


def _draw(points: list[tuple[int, float]]) -> None:
    """Write curve.png, where matplotlib is installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("pip install matplotlib draws this as curve.png")
        return
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.plot(*zip(*points, strict=True), "o-")
    axes.set(xlabel="version", ylabel="mean reward on held-out invoices", ylim=(-0.02, 1.02))
    figure.savefig("curve.png", dpi=150)
    print("curve.png has this as a chart")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Put the agent to work, and show what the policy learns from it.")
    parser.add_argument("--invoices", type=int, default=24, help="that production books, and the policy learns from")
    parser.add_argument("--every", type=int, default=8, help="invoices between two measurements")
    parser.add_argument("--held-out", type=int, default=24, help="invoices that are measured on")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except (APIConnectionError, httpx.TransportError) as error:
        raise SystemExit(f"{SIDECAR} or {EXPLORER} does not answer: does slipstream up run? ({error})") from None
