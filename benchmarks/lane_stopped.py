"""Users while a version that answers them is stopped, or breaks: answers that failed, and the version's last one.

    python benchmarks/lane_stopped.py [--rate 500] [--share 0.5] [--workers 2] [--case CASE ...]

Production and the lane are in this process, and so are the users: each call is a session of its own, over a kept
connection, at a fixed rate. The sidecar is `slipstream serve`. In each case the version answers its share quietly for
some seconds; then it is stopped, or its lane breaks. An answer says who made it, and each is compared byte by byte.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import uvloop
from restart import ANSWER, PATIENCE, Deployment, message, production

QUIET, AFTER = 5.0, 5.0
"""Seconds of load before the event, and after its end."""
FIRST_BYTE = "500ms"
VERSION = 8
MARKER = "latest_state_dict_iteration.txt"

BY_LANE = ANSWER.replace(b'"m"', b'"v"')
MODELS = b'{"object":"list","data":[{"id":"v","object":"model"}]}'


def _answer(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


class LaneServer:
    """A lane that answers at once, until it is told to do otherwise.

    Args:
        job: the directory that it follows.

    Attributes:
        sent: what it sends to a chat completion; None hangs.
        asked: chat completions so far.
    """

    def __init__(self, job: Path) -> None:
        self._marker = job / MARKER
        self.sent: bytes | None = _answer(BY_LANE)
        self.asked = 0
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=4096)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def end(self) -> None:
        """End as a process does that is killed: its connections are closed, and new ones refused."""
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with suppress(OSError, asyncio.IncompleteReadError, RuntimeError, asyncio.CancelledError):
            while True:
                head, _ = await message(reader)
                if head.startswith(b"get"):
                    writer.write(_answer(self._metrics() if b"/metrics" in head.split(b"\r\n")[0] else MODELS))
                    continue
                self.asked += 1
                if self.sent is None:
                    await asyncio.Event().wait()
                    continue
                writer.write(self.sent)
        self._writers.discard(writer)
        writer.close()

    def _metrics(self) -> bytes:
        step = self._marker.read_text() if self._marker.exists() else "0"
        return b'{"rollout_0/model_version":%b}' % step.encode()


@dataclass
class Users:
    """Calls at a fixed rate.

    Attributes:
        answered: moment of the start, seconds, and whether the version answered, of each call with a right answer.
        failed: the others.
    """

    port: int
    rate: int
    answered: list[tuple[float, float, bool]] = field(default_factory=list)
    failed: int = 0
    over: bool = False
    _idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = field(default_factory=list)

    async def work(self) -> None:
        under_way: set[asyncio.Task[None]] = set()
        at, number = time.perf_counter(), 0
        while not self.over:
            task = asyncio.create_task(self._call(number))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
            at, number = at + 1 / self.rate, number + 1
            await asyncio.sleep(max(0.0, at - time.perf_counter()))
        await asyncio.gather(*under_way)
        for _, writer in self._idle:
            writer.close()

    async def _call(self, number: int) -> None:
        began = time.perf_counter()
        asked = b'{"model":"m","messages":[{"role":"user","content":"hello"}]}'
        try:
            async with asyncio.timeout(PATIENCE):
                reader, writer = (
                    self._idle.pop() if self._idle else await asyncio.open_connection("127.0.0.1", self.port)
                )
                writer.write(
                    b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
                    b"x-slipstream-session-id: %d\r\ncontent-length: %d\r\n\r\n%b" % (number, len(asked), asked)
                )
                head, body = await message(reader)
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            self.failed += 1
            return
        if not head.startswith(b"http/1.1 200") or body not in (ANSWER, BY_LANE):
            self.failed += 1
            return
        self.answered.append((began, time.perf_counter() - began, body == BY_LANE))
        self._idle.append((reader, writer))


Event = Callable[[LaneServer, httpx.AsyncClient], Awaitable[object]]


async def _killed(_: LaneServer, control: httpx.AsyncClient) -> None:
    (await control.post("/serving/kill")).raise_for_status()


async def _withdrawn(_: LaneServer, control: httpx.AsyncClient) -> None:
    (await control.post("/serving/share", json={"version": VERSION, "share": 0.0})).raise_for_status()


async def _aborted(_: LaneServer, control: httpx.AsyncClient) -> None:
    rollout = (await control.get("/rollouts")).raise_for_status().json()["rollouts"][0]["id"]
    (await control.post(f"/rollouts/{rollout}/abort", json={})).raise_for_status()


async def _hung(lane: LaneServer, _: httpx.AsyncClient) -> None:
    lane.sent = None


async def _failing(lane: LaneServer, _: httpx.AsyncClient) -> None:
    lane.sent = b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 2\r\n\r\nno"


async def _talking_rubbish(lane: LaneServer, _: httpx.AsyncClient) -> None:
    lane.sent = b"\x00\xff rubbish \r\n\r\n"


CASES: dict[str, tuple[str, Event]] = {
    "kill": ("`slipstream kill`", _killed),
    "share": ("a share of 0", _withdrawn),
    "abort": ("`slipstream rollout abort`", _aborted),
    "dead": ("the lane is killed", lambda lane, _: lane.end()),
    "hung": (f"the lane hangs (`first_byte_timeout: {FIRST_BYTE}`)", _hung),
    "500": ("the lane answers 500", _failing),
    "rubbish": ("the lane answers what is not HTTP", _talking_rubbish),
}


@dataclass
class Rig:
    """A sidecar with production, and a lane for the version."""

    lane: LaneServer
    deployment: Deployment
    control: httpx.AsyncClient

    async def ready(self) -> None:
        """Wait until the version is known and its lane can serve."""
        await until(self.control, f"/versions/{VERSION}", "version", VERSION)
        await until(self.control, "/serving", "ready", True)

    async def serve(self, path: str, **body: object) -> None:
        """Have the version answer a share of the users, by a request to this path."""
        (await self.control.post(path, json={"version": VERSION, **body})).raise_for_status()


@asynccontextmanager
async def running(workers: int, *, serves: bool = True, **sections: Any) -> AsyncIterator[Rig]:
    """`slipstream serve`, with `serving.mode: on` unless it is not to serve versions."""
    server = await asyncio.start_server(production, "127.0.0.1", 0, backlog=4096)
    with tempfile.TemporaryDirectory() as name:
        lane = LaneServer(Path(name) / "lane" / "job")
        lane_url = f"http://127.0.0.1:{await lane.start()}/v1"
        if serves:
            sections["serving"] = {
                "mode": "on",
                "checkpoints": str(_checkpoints(Path(name) / "job")),
                "lane": {"base_url": lane_url, "directory": str(Path(name) / "lane" / "job")},
                "first_byte_timeout": FIRST_BYTE,
            }
        store = f"sqlite+aiosqlite:///{name}/slipstream.db"
        deployment = Deployment(Path(name), server.sockets[0].getsockname()[1], workers, store, **sections)
        deployment.start("serve")
        try:
            await deployment.ready()
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{deployment.port}", timeout=60) as control:
                yield Rig(lane, deployment, control)
        finally:
            await deployment.end("serve")
            server.close()
            await lane.end()


async def measure(case: str, rate: int, share: float, workers: int) -> str:
    words, event = CASES[case]
    async with running(workers) as rig:
        await rig.ready()
        if case == "abort":
            await rig.serve("/rollouts", steps=[share])
        else:
            await rig.serve("/serving/share", share=share)
        await until(rig.control, "/serving", "share", share)
        users = Users(rig.deployment.port, rate)
        working = asyncio.create_task(users.work())
        await asyncio.sleep(QUIET)
        began = time.perf_counter()
        await event(rig.lane, rig.control)
        told = time.perf_counter()
        await asyncio.sleep(AFTER)
        users.over = True
        await working
        metrics = (await rig.control.get("/metrics")).text
    before = [each for each in users.answered if began - QUIET + 1 < each[0] < began]
    after = [each for each in users.answered if each[0] >= began]
    by_version = [start - began for start, _, version in users.answered if version and start >= began]
    late = sum(start > told and version for start, _, version in users.answered)
    fallbacks = sum(
        float(value)
        for value in re.findall(r"^slipstream_serving_fallbacks_total\{.*?\} (\S+)$", metrics, re.MULTILINE)
    )
    p99 = [statistics.quantiles([took for _, took, _ in part], n=100)[98] * 1000 for part in (before, after)]
    of_version = sum(version for _, _, version in before) / max(len(before), 1)
    return (
        f"| {words} | {len(users.answered) + users.failed} | {of_version:.2f} | **{users.failed}** "
        f"| {max(by_version, default=0.0) * 1000:.0f} ms | {late} | {fallbacks:.0f} | {(told - began) * 1000:.0f} ms "
        f"| {p99[0]:.1f} ms | {p99[1]:.1f} ms |"
    )


def _checkpoints(job: Path) -> Path:
    """A Trainer's directory with the version."""
    weights = job / f"global_step_{VERSION}" / "actor" / "huggingface"
    weights.mkdir(parents=True)
    (weights / "config.json").write_text("{}")
    (weights / "model.safetensors").write_text("weights")
    (job / f"global_step_{VERSION}" / "trained_on.json").write_text("{}")
    (job / MARKER).write_text(str(VERSION))
    return job


async def until(control: httpx.AsyncClient, path: str, name: str, value: object) -> None:
    """Wait for the training side, which looks at the Trainer's directory and asks the lane now and then."""
    async with asyncio.timeout(PATIENCE):
        while (await control.get(path)).json().get(name) != value:  # noqa: ASYNC110 - another process answers it
            await asyncio.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=500, help="calls a second")
    parser.add_argument("--share", type=float, default=0.5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--case", choices=CASES, action="append")
    given = parser.parse_args()
    print(
        "| what happens | calls | of the version before | failed | its last answer was asked for | asked for after the "
        "command's answer | fallbacks | the command takes | p99 before | p99 after |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for case in given.case or CASES:
        print(uvloop.run(measure(case, given.rate, given.share, given.workers)), flush=True)


if __name__ == "__main__":
    main()
