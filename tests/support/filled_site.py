"""A running sidecar whose page has something to show on each of its parts.

To look at it by hand: `python tests/support/filled_site.py [FOLDER]`, and open the address that it prints.
"""

from __future__ import annotations

import asyncio
import math
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from experiment_store import Tried
from loops import Loop
from made_datasets import make_datasets
from rollout_store import VERSION
from scripted import ScriptedExplorer, completion, production_app
from scripted_lane import lane_section
from serving import serving, sidecar, until

from slipstream.settings.sidecar import Settings
from slipstream.store.database import Database
from slipstream.store.states import RUNS_UNDER_WAY
from slipstream.store.tables.versions import VersionRow

_QUESTIONS = (
    ("Where is my parcel? Order 1042.", "It is on its way and arrives on Thursday."),
    ("What is 12 * 7?", "12 * 7 = 84."),
    ("Cancel my subscription, please.", "I have cancelled it. You keep access until the end of the month."),
    ("Which size fits me? I am 1.78 m tall.", "Most people of your height take a medium."),
    ("你好,我的订单什么时候到?", "您好!您的订单预计周四送达。"),
)

TAUGHT = 5
"""The version that was trained on a data set."""

_ON_DATA: dict[str, Any] = {
    "commits": 0, "first_commit": None, "last_commit": None, "groups": 0, "experiences": 0, "reward_mean": None,
    "dataset": {"name": "support", "digest": "of the rows", "kind": "sft", "rows": 141},
}  # fmt: skip

HOSTILE = (
    "<script>alert(1)</script><img src=x onerror=alert(2)>",
    "\u202eevil\u202c \u001b[31mred\u001b[0m \u200bhidden",
    "[click](javascript:alert(3)) ${alert(4)} {{constructor.constructor('alert(5)')()}}",
)
"""Texts that are to stay texts."""


class _Policy(ScriptedExplorer):
    """Answers as a policy does that is getting better: mostly like production, sometimes with other words."""

    def reply(self, msg_id: str, body: dict[str, Any]) -> dict[str, Any]:
        last = str(body["messages"][-1].get("content"))
        known = dict(_QUESTIONS).get(last, f"I looked it up: {last}")
        said = (known, known.replace("is", "will be", 1), "I do not know.")[len(self.chats) % 3]
        return completion(msg_id, said)


async def _versions(database: Database, now: float) -> None:
    """Versions, as days before leave them behind."""
    draw = random.Random(7)
    async with database.write() as session:
        for number in range(VERSION + 1):
            mean, runs = 0.35 + 0.5 * (1 - math.exp(-number / 3)), 96
            served_at = now - 3600 * (VERSION - number + 1)
            session.add(
                VersionRow(
                    version=number, seen_at=served_at, found_at=served_at,
                    parent=None if number == 0 else number - 1, reward_count=runs, reward_sum=mean * runs,
                    reward_squares=runs * (mean * mean + 0.08),
                    trained_on=None if number == 0 else _ON_DATA if number == TAUGHT else {
                        "commits": 2, "first_commit": 2 * number - 1, "last_commit": 2 * number, "groups": 12,
                        "experiences": 96, "reward_mean": mean - 0.03,
                    },
                    metrics=None if number == 0 else {
                        "loss": draw.uniform(-0.02, 0.02), "grad_norm": draw.uniform(0.4, 0.9),
                        "kl_to_sampling": draw.uniform(0.001, 0.004), "clip_fraction": draw.uniform(0, 0.05),
                        "entropy": 1.4 - 0.08 * number, "seconds": draw.uniform(8, 12),
                    },
                )
            )  # fmt: skip


async def _rollouts(database: Database, lane: dict[str, Any], now: float) -> None:
    """An ended experiment and a running rollout, as days before leave them behind."""
    draw = random.Random(7)
    tried = Tried(database, serving=lane)
    tried.now = now - 20_000
    try:
        await tried.start()
        await tried.try_()
        await tried.pass_(1)
        await tried.users(60, feedback=(0.4, 0.8))
        await tried.pass_(3600)
        tried.now = now - 600
        await tried.open(min_units=400, objective="feedback")
        await tried.pass_(1)
        for user in range(40):
            treated = user % 2 == 1
            await tried.assign(f"user-{user}", treated, failures=user % 13 == 0)
            answer = await tried.call(f"user-{user}", treated)
            await tried.say(answer, draw.choice([0.6, 0.8, 1.0]) if treated else draw.choice([0.4, 0.6, 0.8]))
        await tried.pass_(120)
    finally:
        await tried.close()


@asynccontextmanager
async def filled_site(
    folder: Path,
    /,
    *,
    rollouts: bool = True,
    datasets: bool = True,
    explorer: ScriptedExplorer | None = None,
    more: Callable[[Database], Awaitable[None]] | None = None,
    **sections: Any,
) -> AsyncIterator[Loop]:
    """The sidecar, with a store of its own in the folder. Sections of settings go before the usual ones.

    Args:
        rollouts: without them production answers all users, so that a test knows what they are told.
        datasets: with two data sets.
        explorer: in the place of a policy that is getting better.
        more: has further things happen in the store before the sidecar starts.
    """
    url = f"sqlite+aiosqlite:///{folder}/slipstream.db"
    database = Database(url)
    explorer = explorer or _Policy()
    explorer.version = VERSION
    async with (
        serving(production_app()) as production_url,
        serving(explorer.app()) as explorer_url,
        lane_section("the lane says {n}", step=102) as lane,
    ):
        await database.open()
        await _versions(database, time.time())
        if rollouts:
            await _rollouts(database, lane, time.time())
        if more is not None:
            await more(database)
        await database.close()
        directory = folder / "datasets"
        if datasets:
            await asyncio.to_thread(make_datasets, directory)
        settings = Settings.model_validate(
            {
                "store": {"url": url},
                "selection": {"sampling": {"rate": 0.7}},
                "runs": {"repeat_time": 3},
                "rewards": {"calculators": [{"agreement": {"weight": 2}}, {"length": {"max": 40}}]},
                "commit": {"interval": "1h"},
                "datasets": {"directory": str(directory)},
                **({"serving": lane} if rollouts else {}),
                **sections,
                "production": {"base_url": f"{production_url}/v1"},
                "explorer": {"base_url": explorer_url, "poll_interval": "100ms", "train_batch_size": 96},
            }
        )
        async with sidecar(settings) as address, httpx.AsyncClient(base_url=address, timeout=30) as client:
            loop = Loop(address, explorer, client)
            yield loop


async def talk(loop: Loop, sessions: int = 12, headers: dict[str, str] | None = None) -> None:
    """Have users talk with an agent, and some say what they think of it; wait until their runs are rewarded."""
    for number in range(sessions):
        of = {**(headers or {}), "x-slipstream-session-id": f"customer-{number}"}
        question, _ = _QUESTIONS[number % len(_QUESTIONS)]
        said: list[dict[str, Any]] = [
            {"role": "system", "content": "You answer the customers of a shop, in one sentence."},
            {"role": "user", "content": question},
        ]
        answer = await loop.chat(said, {**of, "x-slipstream-task-id": f"order-{1040 + number}"})
        if number % 3 == 0:
            said += [answer["choices"][0]["message"], {"role": "user", "content": HOSTILE[number // 3 % len(HOSTILE)]}]
            answer = await loop.chat(said, {**of, "x-slipstream-task-id": f"order-{1040 + number}"})
        if number % 2 == 0:
            given = {
                "msg_id": answer["id"],
                "thumbs": "up" if number % 4 else "down",
                "comment": "from the page's test",
            }
            response = await loop.client.post("/feedback", json=given, headers=headers)
            assert response.status_code == 202, response.text

    async def scored() -> bool:
        tasks = (await loop.client.get("/tasks", headers=headers)).json()["tasks"]
        runs = (await loop.client.get("/status", headers=headers)).json()["runs"]
        under_way = any(runs.get(state) for state in RUNS_UNDER_WAY)
        return len(tasks) >= sessions and all(task["decided"] for task in tasks) and not under_way

    await until(scored, 60, what="runs with a reward")


async def main() -> None:
    """Serve until the process is ended."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp())
    async with filled_site(folder) as loop:
        await talk(loop)
        await loop.commit()
        await talk(loop, 5)
        print(loop.url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
