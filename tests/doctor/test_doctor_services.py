"""The doctor on what runs: real servers, a real sidecar, a buffer with the tables of Trinity's own schema."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import socket
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from urllib.parse import urlsplit

import httpx
import pytest
from engines import ExplorerWithEngines
from loops import RunLoop
from planted import Mistake, Plant, scored, sidecar
from scripted import production_app
from serving import serving

from slipstream.doctor.endpoints import in_clear
from slipstream.doctor.examination import SERVICES, examine
from slipstream.doctor.files import Files
from slipstream.doctor.findings import Finding
from slipstream.doctor.machine import look_at_machine
from slipstream.doctor.services import Answer, ask, connects, look_at_services
from slipstream.rewards import RewardsSettings

SERVED = {"model": {"model_path": "/models/policy"}}
HOUR = 3600.0


class Running:
    """A deployment at work: `await running.examined()` gives what the doctor finds among the services."""

    def __init__(self, files: Files, explorer: ExplorerWithEngines) -> None:
        self.files = files
        self.explorer = explorer
        self.job = files.trainer.job_dir

    async def examined(self, *addresses: str) -> list[Finding]:
        def look() -> list[Finding]:
            machine, services = look_at_machine(self.files), look_at_services(self.files, addresses)
            return [finding for check in SERVICES for finding in check(self.files, machine, services)]

        return await asyncio.to_thread(look)

    def published(self, version: int, seconds_ago: float) -> None:
        self.job.mkdir(parents=True, exist_ok=True)
        marker = self.job / "latest_state_dict_iteration.txt"
        written = marker.with_suffix(".new")
        written.write_text(str(version))
        os.utime(written, (time.time() - seconds_ago,) * 2)
        written.replace(marker)

    def written(self, count: int, seconds_ago: float, consumed: int = 0) -> None:
        """Experiences as Trinity's Explorer writes them; those that it has written before stay."""
        folder = self.job / "buffer"
        folder.mkdir(parents=True, exist_ok=True)
        with sqlite3.connect(folder / "exp_buffer.db") as database:
            database.execute(
                "CREATE TABLE IF NOT EXISTS exp_buffer (id INTEGER PRIMARY KEY, timestamp DATETIME, task_id VARCHAR, "
                "run_id INTEGER, msg_id VARCHAR, model_version INTEGER, reward FLOAT, consumed INTEGER)"
            )
            row = (f"-{seconds_ago} seconds", consumed)
            for _ in range(count):
                database.execute("INSERT INTO exp_buffer (timestamp, consumed) VALUES (datetime('now', ?), ?)", row)
        database.close()


@pytest.fixture
async def running(plant: Plant, run_loop: RunLoop) -> AsyncIterator[Running]:
    """The shipped files with the addresses of servers that run: production, an Explorer and a sidecar."""
    explorer = ExplorerWithEngines()
    async with run_loop(explorer) as loop, serving(production_app()) as production, serving(explorer.app()) as url:
        mistake = Mistake(both=SERVED, explorer={"explorer": {"proxy_port": urlsplit(url).port}})
        files = plant(
            replace(
                mistake,
                sidecar={
                    "SLIPSTREAM_LISTEN": urlsplit(loop.url).netloc,
                    "SLIPSTREAM_PRODUCTION__BASE_URL": f"{production}/v1",
                    "SLIPSTREAM_EXPLORER__BASE_URL": url,
                },
            )
        )
        files.trainer.job_dir.mkdir(parents=True)  # as the Explorer does at its start
        yield Running(files, explorer)


def codes(findings: list[Finding]) -> list[str]:
    return [finding.code for finding in findings]


async def test_services_as_they_should_be(running: Running) -> None:
    assert await running.examined() == []
    running.explorer.version = 3
    running.published(3, HOUR)
    running.written(96, HOUR, consumed=1)
    running.written(31, HOUR)  # less than a batch: it waits for more
    assert await running.examined() == []


async def test_before_the_start_what_is_away_is_a_warning(plant: Plant) -> None:
    away = {"SLIPSTREAM_EXPLORER__BASE_URL": "http://127.0.0.1:9", "SLIPSTREAM_LISTEN": "127.0.0.1:9"}
    async with serving(production_app()) as production:
        files = plant(
            Mistake(
                explorer={"explorer": {"proxy_port": 9}},
                sidecar={**away, "SLIPSTREAM_PRODUCTION__BASE_URL": f"{production}/v1"},
            )
        )
        found = await asyncio.to_thread(examine, files, addresses=())
    assert [(each.code, each.severity) for each in found] == [
        ("running.explorer_unreachable", "warning"),
        ("running.sidecar_unreachable", "warning"),
    ]


async def test_production_away(running: Running) -> None:
    production = {"production": running.files.sidecar.production.model_copy(update={"base_url": "http://127.0.0.1:9"})}
    running.files = replace(running.files, sidecar=running.files.sidecar.model_copy(update=production))
    [found] = await running.examined()
    assert (found.code, found.severity) == ("running.production_unreachable", "error")
    assert "http://127.0.0.1:9: Connection refused" in found.found


async def test_what_is_asked_through_a_proxy_is_looked_for_there(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names are known to the proxy alone."""
    production = {
        "production": running.files.sidecar.production.model_copy(update={"base_url": "https://m.invalid/v1"})
    }
    judge, webhook = {"base_url": "https://judge.invalid/v1", "model": "m"}, {"url": "https://scores.invalid/"}
    rewards = RewardsSettings.model_validate({"calculators": [{"judge": judge}, {"webhook": webhook}]})
    asked = running.files.sidecar.model_copy(update={**production, "rewards": rewards})
    running.files = replace(running.files, sidecar=asked)

    async def found() -> dict[str, str]:
        return {each.where.partition(": ")[2]: each.found for each in await running.examined()}

    with socket.create_server(("127.0.0.1", 0)) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.getsockname()[1]}")
        assert set(await found()) == {"rewards.calculators.1.webhook.url"}, "which no proxy is used for"
    monkeypatch.setenv("HTTPS_PROXY", "http://me:hunter2@127.0.0.1:9")
    away = await found()
    for key, url in (("production.base_url", "m"), ("rewards.calculators.0.judge.base_url", "judge")):
        assert away[key] == f"https://{url}.invalid/v1: through the HTTP proxy 127.0.0.1:9: Connection refused"
    monkeypatch.setenv("HTTPS_PROXY", "socks5://127.0.0.1:9")
    assert "HTTPS_PROXY: expected an HTTP proxy" in (await found())["production.base_url"]


async def test_endpoints_that_are_away_or_may_not_be_asked(running: Running) -> None:
    """A judge that is away, and a webhook by a name of this machine which only the system's resolver knows for one."""
    url = running.files.sidecar.production.base_url.replace("127.0.0.1", "2130706433")
    judge = {"base_url": "http://me:hunter2@127.0.0.1:9/v1", "model": "m"}
    rewards = {"calculators": [{"judge": judge}, {"webhook": {"url": url}}]}
    asked = running.files.sidecar.model_copy(update={"rewards": RewardsSettings.model_validate(rewards)})
    running.files = replace(running.files, sidecar=asked)
    away, refused = await running.examined()
    assert (away.code, away.severity) == ("running.endpoint_unreachable", "warning")
    assert away.where == "sidecar.yaml: rewards.calculators.0.judge.base_url"
    assert away.found == "http://127.0.0.1:9/v1: Connection refused"
    assert (refused.code, refused.severity) == ("files.webhook_refused", "error")
    assert refused.where == "sidecar.yaml: rewards.calculators.1.webhook.url"
    assert refused.found == f"{url}, at 127.0.0.1; allow_private names nothing"


def test_what_crosses_the_internet_in_clear(plant: Plant) -> None:
    """By addresses: names would be looked up in a network that a test need not have."""
    webhook = scored(url="http://[2606:4700::1]/score?key=hunter2")
    public = plant(Mistake(sidecar=sidecar("production", base_url="http://8.8.4.4/v1") | webhook)).sidecar
    assert [(each.key, each.shown) for each in in_clear(public)] == [
        ("production.base_url", "http://8.8.4.4/v1"),
        ("rewards.calculators.0.webhook.url", "http://[2606:4700::1]/score"),
    ]
    private = sidecar("production", base_url="http://10.0.0.7/v1") | sidecar("explorer", base_url="https://8.8.4.4")
    assert list(in_clear(plant(Mistake(sidecar=private)).sidecar)) == []


async def test_an_explorer_that_serves_another_model(running: Running) -> None:
    tree = {**running.files.explorer.tree, "model": {"model_path": "/models/other"}}
    running.files = replace(running.files, explorer=replace(running.files.explorer, tree=tree))
    [found] = await running.examined()
    assert found.code == "running.model_differs"
    assert "/models/other; the Explorer serves /models/policy" in found.found


async def test_an_explorer_that_does_not_follow(running: Running) -> None:
    running.published(4, HOUR)
    running.explorer.version = 3
    [found] = await running.examined()
    assert found.code == "running.explorer_does_not_follow"
    assert "engines serve 3; version 4 was published 60 min ago" in found.found
    running.published(4, 20)  # it has had no time yet
    assert await running.examined() == []


async def test_an_engine_that_stayed_behind(running: Running) -> None:
    running.published(4, HOUR)
    running.explorer.version = 4
    running.explorer.other_versions = [2]
    [found] = await running.examined()
    assert found.code == "running.engines_apart"
    assert "engines serve 4, 2" in found.found


async def test_an_explorer_with_another_checkpoint_directory(running: Running) -> None:
    running.explorer.version = 5
    running.published(2, HOUR)
    [found] = await running.examined()
    assert found.code == "running.checkpoint_directory_not_shared"
    assert f"serves version 5; {running.job} names 2" in found.found


async def test_a_version_that_comes_while_the_doctor_looks(running: Running) -> None:
    def come() -> None:
        running.explorer.version += 1
        running.published(running.explorer.version, 0)

    running.explorer.asked = come
    found = await asyncio.to_thread(examine, running.files, addresses=())
    assert [code for code in codes(found) if code.startswith("running.")] == []


async def test_an_explorer_that_made_its_directory_elsewhere(running: Running) -> None:
    running.job.rmdir()
    [found] = await running.examined()
    assert (found.code, found.found) == (
        "running.checkpoint_directory_not_shared",
        f"answers; there is no directory {running.job}",
    )


async def test_a_trainer_that_does_not_consume(running: Running) -> None:
    running.explorer.version = 1
    running.published(1, 2 * HOUR)
    running.written(32, 2 * HOUR, consumed=1)
    running.written(64, HOUR)
    [found] = await running.examined()
    assert (found.code, found.severity) == ("running.trainer_does_not_consume", "error")
    expected = "64 of 96 experiences wait, 64 of them for more than 15 min; a batch is 32; version 1 is 120 min old"
    assert found.found == expected


async def test_a_trainer_at_work_has_time_to_consume(running: Running) -> None:
    running.written(64, 60)
    assert await running.examined() == [], "they came a minute ago"
    running.explorer.version = 1
    running.published(1, 60)
    running.written(64, HOUR)
    assert await running.examined() == [], "a version came a minute ago"
    running.written(320, HOUR)
    assert codes(await running.examined()) == ["running.trainer_falls_behind"]


async def test_a_buffer_that_is_not_trinitys_is_left_alone(running: Running) -> None:
    folder = running.job / "buffer"
    folder.mkdir(parents=True)
    (folder / "exp_buffer.db").write_text("no database")
    assert await running.examined() == []
    (folder / "exp_buffer.db").unlink()
    assert await running.examined() == []
    assert list(folder.iterdir()) == [], "looking makes no database"


async def test_a_driver_with_errors_of_its_own(running: Running) -> None:
    """As asyncpg's are, of a wrong password or an argument that it does not know."""
    running.written(64, HOUR)
    path = f"sqlite:///{running.job}/buffer/exp_buffer.db?timeout=soon"
    fields = {"path": path, "storage_type": "sql", "name": "exp_buffer"}
    tree = {**running.files.trainer.tree, "buffer": {"trainer_input": {"experience_buffer": fields}}}
    running.files = replace(running.files, trainer=replace(running.files.trainer, tree=tree))
    assert await running.examined() == []


async def test_an_explorer_that_others_can_reach(running: Running) -> None:
    port = running.files.explorer.whole("explorer.proxy_port")
    assert await running.examined("127.0.0.9") == [], "it listens on 127.0.0.1 alone"
    with socket.create_server(("127.0.0.9", port)):
        [found] = await running.examined("127.0.0.9")
    assert found.code == "running.explorer_exposed"
    assert "127.0.0.9" in found.found


async def test_a_clock_that_is_wrong(running: Running) -> None:
    running.explorer.clock = -120.0
    [found] = await running.examined()
    assert found.code == "running.clock_skew"
    assert found.where.startswith(running.files.sidecar.explorer.base_url)
    told = re.fullmatch(r"(-\d+) s against this machine", found.found)
    assert told
    assert int(told[1]) == pytest.approx(-120, abs=10)


async def test_a_sidecar_that_runs_with_other_settings(running: Running) -> None:
    commit = {"commit": running.files.sidecar.commit.model_copy(update={"max_pending": 64})}
    running.files = replace(running.files, sidecar=running.files.sidecar.model_copy(update=commit))
    [found] = await running.examined()
    assert found.code == "running.sidecar_not_restarted"
    assert found.found == "64; the sidecar at work has None"


def answer_of(body: Iterable[bytes], pause: float = 0.0, patience: float = 30.0) -> Answer:
    """What the doctor makes of a server that sends these bytes, with pauses between them."""

    def talk() -> None:
        connection, _ = server.accept()
        with connection, contextlib.suppress(OSError):  # the doctor hangs up
            connection.recv(1000)
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            for piece in body:
                connection.sendall(piece)
                ended.wait(pause)

    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server, httpx.Client() as client:
        talker = threading.Thread(target=talk)
        talker.start()
        answer = ask(client, f"http://127.0.0.1:{server.getsockname()[1]}/metrics", patience=patience)
        ended.set()
        talker.join()
    return answer


@pytest.mark.parametrize(
    ("body", "pause", "patience", "error"),
    [
        (itertools.repeat(b" ", 400), 0.05, 0.5, "answers without end"),
        (itertools.repeat(b" " * 2**20, 100), 0.0, 30.0, "answers without end"),
        ([b"[" * 200_000], 0.0, 30.0, "answers no JSON"),
        ([b"\xff"], 0.0, 30.0, "answers no JSON"),
        ([b"7"], 0.0, 30.0, "answers no JSON object"),
    ],
    ids=["slowly", "much", "deep", "bytes", "a number"],
)
def test_answers_that_are_no_answer(body: Iterable[bytes], pause: float, patience: float, error: str) -> None:
    began = time.monotonic()
    assert answer_of(body, pause, patience).error == error
    assert time.monotonic() - began < 10


def test_a_host_that_can_be_none() -> None:
    assert connects("http://a..b/v1", {}) is not None


async def test_servers_that_are_something_else(plant: Plant) -> None:
    """Nothing that answers makes the doctor fail."""

    async def odd(scope, receive, send) -> None:
        if scope["type"] == "http":
            body = b'{"problems": [7, {"code": "x"}], "data": 3, "a/model_version": "x"}'
            await send({"type": "http.response.start", "status": 200, "headers": [(b"date", b"yesterday")]})
            await send({"type": "http.response.body", "body": body})

    async with serving(odd) as url:
        address = urlsplit(url)
        files = plant(
            Mistake(
                explorer={"explorer": {"proxy_port": address.port}},
                sidecar={
                    "SLIPSTREAM_LISTEN": address.netloc,
                    "SLIPSTREAM_PRODUCTION__BASE_URL": f"{url}/v1",
                    "SLIPSTREAM_EXPLORER__BASE_URL": url,
                },
            )
        )
        found = await asyncio.to_thread(examine, files, addresses=())
    assert set(codes(found)) <= {"files.production_is_the_sidecar", "files.production_is_the_explorer",
                                 "running.sidecar_not_restarted"}  # fmt: skip
