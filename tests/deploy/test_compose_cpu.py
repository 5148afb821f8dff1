"""The profile cpu of docker-compose.yml, end to end: from its start to a trained version and an orderly stop."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from composed import Composed, compose_config
from scripted import production_app
from serving import serving, until
from starlette.types import Receive, Scope, Send

from slipstream.access.keys import new_key
from slipstream.local import model

KEY = new_key()
TASKS = 6
REPEAT_TIME = 4


@pytest.fixture(scope="module")
def models(pytestconfig: pytest.Config) -> Path:
    """The volume `models`, with SmolLM2 in it as an earlier `up` would have left it."""
    return model.fetch("smollm2", pytestconfig.rootpath / ".cache" / "models" / "smollm2").parent


@pytest.fixture
def sockets() -> Iterator[Path]:
    """The volume `sockets`, where paths are short enough for Unix sockets."""
    with tempfile.TemporaryDirectory(prefix="slip-") as folder:
        yield Path(folder)


@pytest.mark.embedded
@pytest.mark.slow
async def test_from_start_to_a_trained_version_and_an_orderly_stop(models: Path, sockets: Path, tmp_path: Path) -> None:
    keys: set[bytes] = set()
    answers = production_app()

    async def production_model(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            keys.add(dict(scope["headers"])[b"authorization"])
        await answers(scope, receive, send)

    async with serving(production_model) as production:
        variables = {
            "PRODUCTION_BASE_URL": f"{production}/v1",
            "SAMPLING_RATE": "1",
            "REPEAT_TIME": str(REPEAT_TIME),
            "EXPLORER_CPUS": "1",
            "TRAINER_CPUS": "1",
        }
        services = Composed(
            compose_config("cpu", variables=variables),
            tmp_path,
            volumes={"models": models, "sockets": sockets},
            secrets={
                "production_api_key": "sk-production\n",
                "facade_api_key": "sk-facade\n",
                "access_keys": f"[{{name: agents, roles: [proxy, feedback, admin], key: {KEY}}}]\n",
            },
        )
        try:
            await services.start()
            await services.healthy()
            await _train(services)
        finally:
            codes = await services.stop()
        assert codes == dict.fromkeys(services.services, 0), services.log.read_text()
        assert keys == {b"Bearer sk-production"}, "production's key comes from the secret's file"
    _nothing_left(tmp_path)


async def _train(services: Composed) -> None:
    """Drives traffic until two versions were trained and are served, and leaves one task to be delivered."""
    url = services.url(8100)
    async with (
        httpx.AsyncClient(base_url=url, timeout=30, headers={"x-slipstream-key": KEY}) as control,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY) as agent,
    ):

        async def status() -> dict[str, Any]:
            found: dict[str, Any] = (await control.get("/status")).json()
            return found

        async def ask(number: int) -> None:
            answer = await agent.chat.completions.create(
                model="prod", messages=[{"role": "user", "content": f"question {number}"}], max_tokens=12
            )
            assert answer.choices[0].message.content == f"echo: question {number}"

        async def trained(steps: int) -> bool:
            await control.post("/commit")
            return ((await status())["policy"]["version"] or 0) >= steps

        for number in range(TASKS):
            await ask(number)
        await until(lambda: trained(TASKS * REPEAT_TIME // 8), 400)  # 15 s on two idle cores
        assert (await status())["experiences_delivered"] == TASKS * REPEAT_TIME

        await ask(TASKS)

        async def ready() -> bool:
            return bool((await status())["next_commit"]["experiences_ready"] == REPEAT_TIME)

        await until(ready, 200)


def _nothing_left(folder: Path) -> None:
    """What waited for a commit at the stop was delivered before the Explorer went."""
    with sqlite3.connect(folder / "store" / "slipstream.db") as store:
        groups = store.execute("SELECT state, count(*) FROM groups GROUP BY state").fetchall()
        commits = store.execute("SELECT trigger, state FROM commits ORDER BY id DESC LIMIT 1").fetchall()
    store.close()
    assert groups == [("delivered", TASKS + 1)]
    assert commits == [("shutdown", "delivered")]
    [buffer_file] = folder.glob("checkpoints/**/embedded_*.db")
    with sqlite3.connect(buffer_file) as buffer:
        [(experiences,)] = buffer.execute("SELECT count(*) FROM exp_buffer").fetchall()
    buffer.close()
    assert experiences == (TASKS + 1) * REPEAT_TIME
