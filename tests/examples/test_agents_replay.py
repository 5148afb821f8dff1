"""The agents of `examples/`, run again on a policy that uses the tools, by script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from loops import RunLoop
from serving import serving
from shop import ANSWER, EXAMPLES, ShopExplorer, refunds, run_program, shop_production


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["sdk", *(pytest.param(name, marks=pytest.mark.slow) for name in EXAMPLES if name != "sdk")]
)
async def test_replays_get_the_results_of_productions_writes_and_write_nothing(
    name: str, run_loop: RunLoop, tmp_path: Path
) -> None:
    explorer, production = ShopExplorer(), list[dict[str, Any]]()
    async with (
        serving(shop_production(production)) as production_url,
        run_loop(
            explorer, production={"base_url": f"{production_url}/v1"}, selection={"sampling": {"rate": 0}}
        ) as loop,
    ):
        output = await run_program(name, "training", tmp_path, SLIPSTREAM_URL=loop.url)

    assert output.startswith(ANSWER)
    assert refunds(tmp_path) == [("17", 40.0)], "production's, once"
    assert len(production) == 3

    [experiences] = explorer.committed
    rewards: dict[int, set[float]] = {}
    for experience in experiences:
        rewards.setdefault(experience["run_id"], set()).add(experience["reward"])
    assert sorted(rewards) == list(range(8))
    assert len(experiences) == 8 * 3, "each run's three calls were delivered"
    right = [run for run, given in rewards.items() if given == {1.0}]
    assert len(right) == 4, "production's own refund has its recorded result, and the answer is as good"
    assert all(max(given) < 0.5 for run, given in rewards.items() if run not in right), "any other one is blocked"
    seen = [message for chat in explorer.chats for message in chat["messages"] if message["role"] == "tool"]
    told = [message for message in seen if "This action was not carried out: refund" in str(message["content"])]
    assert len(told) == 4, "and the policy sees that as the result"
