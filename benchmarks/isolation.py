"""Time of a calculator in the sidecar's process and in one of its own.

python benchmarks/isolation.py [--runs 2000] [--kilobytes 8]
"""

from __future__ import annotations

import argparse
import asyncio
import time

from prometheus_client import CollectorRegistry

from slipstream.isolation import Isolation
from slipstream.metrics import Metrics
from slipstream.rewards import RewardModel, RewardsSettings
from slipstream.trajectory import Call, PolicyCall, Run, Task

CALCULATORS = {
    "length (in process)": {"length": {"min": 1}},
    "regex (isolated)": {"regex": {"pattern": "word"}},
    "format (isolated)": {"format": {}},
    "agreement (isolated)": {"agreement": {}},
}


def run_of(kilobytes: int) -> Run:
    """A shadow call whose conversation has so many kilobytes."""
    request = {"messages": [{"role": "user", "content": "word " * (kilobytes * 200)}]}
    message = {"role": "assistant", "content": "a word and another " * 20}
    answer = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    call = Call("t", 0, request, answer)
    return Run(Task("t", "s", (call,)), "g", 0, (PolicyCall(request, answer, "m"),), production=call)


async def measure(runs: int, kilobytes: int) -> None:
    """Print the milliseconds of a score, one after the other."""
    isolation, run = Isolation(), run_of(kilobytes)
    for name, calculator in CALCULATORS.items():
        settings = RewardsSettings.model_validate({"calculators": [calculator]})
        model = RewardModel(settings, Metrics(CollectorRegistry()), isolation)
        await model.score(run)
        began = time.perf_counter()
        for _ in range(runs):
            await model.score(run)
        print(f"{name:24} {(time.perf_counter() - began) / runs * 1000:8.3f} ms")
    await asyncio.to_thread(isolation.close)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--kilobytes", type=int, default=8)
    given = parser.parse_args()
    asyncio.run(measure(given.runs, given.kilobytes))
