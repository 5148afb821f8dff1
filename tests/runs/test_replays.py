"""Agent replays: an agent run again at its run's address, and what comes of it."""

from __future__ import annotations

from loops import RunLoop
from replaying import ask, finish, open_runs, replay, sdk
from stores import ON_BOTH_STORES


@ON_BOTH_STORES
async def test_a_replay_goes_out_whole_with_the_reward_of_each_run(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        group = await open_runs(loop, "order 17/a", 2, labels=["tuned"], metadata={"reference": "42"})
        assert group["group_id"] == "order 17/a.replay"
        assert [run["base_url"] for run in group["runs"]] == ["/runs/order%2017%2Fa/0/v1", "/runs/order%2017%2Fa/1/v1"]
        said = {}
        for run, reward in zip(group["runs"], (0.25, 1.0), strict=True):
            async with sdk(loop, run) as client:
                said[run["run_id"]] = [await ask(client, f"step {step}") for step in range(3)]
            ended = await finish(loop, "order 17/a", run["run_id"], reward=reward, breakdown={"right": reward})
            assert ended["state"] == "scored"
            assert ended["msg_ids"] == said[run["run_id"]]
        assert (await loop.commit())["experiences"] == 6
        [commit] = loop.explorer.committed
        assert [(e["msg_id"], e["run_id"], e["reward"], e["task_id"]) for e in commit] == [
            (msg_id, run_id, reward, "order 17/a.replay")
            for run_id, reward in ((0, 0.25), (1, 1.0))
            for msg_id in said[run_id]
        ]
        assert (await replay(loop, "order 17/a"))["state"] == "delivered"
