"""The agent at work, learning from it: `python scope_training.py "My lamp of order 17 arrived broken." ...`

Each question gets production's answer at once, and is then run again eight times on the policy model.
"""

from __future__ import annotations

import asyncio
import sys
from difflib import SequenceMatcher

from scope_agent_trained import support_agent

import slipstream_client as slipstream


def reward(run: slipstream.RunResult) -> tuple[float, dict[str, float]]:
    """From 0 to 1: half for no write that production did not make, half for an answer like production's."""
    parts = {
        "writes": float(all(effect.outcome == "recorded" for effect in run.side_effects)),
        "answer": SequenceMatcher(None, run.output, run.production_output).ratio(),
    }
    return sum(parts.values()) / 2, parts


runner = slipstream.TrainingRunner(selection=slipstream.SamplingRate(1.0), reward=reward, repeat_time=8)
agent = runner.agent(support_agent)


async def work() -> None:
    async with runner:  # its end waits for the replays, and commits
        for question in sys.argv[1:]:
            print(await agent(question))
    print(runner.stats)


if __name__ == "__main__":
    asyncio.run(work())
