"""One client tried: its agent between a running sidecar and a production model, and what the store has afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
from dataclasses import asdict, dataclass, field
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families
from serving import serving, until
from sidecar_process import SidecarProcess

from matrix.client import Client
from matrix.production import ANSWER, WEATHER, greeting, production_app

LATE = (0, 5, 50)
"""Milliseconds between `[DONE]` and the end of production's answer."""
STREAMS = 20
"""Calls for each of them."""
_LIMIT = 420
"""Seconds for one process of an agent; with its environment on a cold disk some import for a minute."""


@dataclass
class Grouping:
    """How the calls of one request to the agent were captured."""

    calls: int
    tasks: int
    sessions: int


@dataclass
class Outcome:
    """What came of one client.

    Attributes:
        groupings: by mode.
        streams: captured calls of `STREAMS`, by milliseconds between `[DONE]` and the end.
    """

    client: str
    version: str
    groupings: dict[str, Grouping] = field(default_factory=dict)
    streams: dict[int, int] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1))

    @classmethod
    def read(cls, path: Path) -> Outcome:
        """The outcome that was saved there."""
        saved = json.loads(path.read_text())
        saved["groupings"] = {mode: Grouping(**grouping) for mode, grouping in saved["groupings"].items()}
        saved["streams"] = {int(late): captured for late, captured in saved["streams"].items()}
        return cls(**saved)


async def tried(client: Client, folder: Path) -> Outcome:
    """Run the client's agent in each of its modes.

    Raises:
        AssertionError: it failed or gave another answer than production.
    """
    outcome = Outcome(client.name, client.version)
    for mode in client.modes:
        (folder / mode).mkdir()
        questions = [WEATHER]
        if mode == "stream":
            questions += [greeting(number, late) for late in LATE for number in range(STREAMS)]
        captured = await _captured(client, mode, questions, folder / mode)
        weather = [ids for msg_id, ids in captured.items() if msg_id.startswith("weather-")]
        tasks, sessions = ({row[column] for row in weather} for column in (0, 1))
        outcome.groupings[mode] = Grouping(len(weather), len(tasks), len(sessions))
        if mode == "stream":
            for late in LATE:
                outcome.streams[late] = sum(msg_id.startswith(f"late-{late}-") for msg_id in captured)
    return outcome


async def _captured(client: Client, mode: str, questions: list[str], folder: Path) -> dict[str, tuple[str, str]]:
    """The task and session of each captured call of an agent's questions, by the answer's id."""
    answered: list[str] = []
    async with serving(production_app(answered)) as production_url:
        sidecar = SidecarProcess(folder, production_url, "http://127.0.0.1:9")
        await sidecar.start(ready=False)
        try:
            await sidecar.ready()
            await _run(client.command(mode, questions), client.environment(f"{sidecar.url}/v1", folder), len(questions))
            await _counted(sidecar, len(answered))
        finally:
            await sidecar.end(signal.SIGTERM)
    with contextlib.closing(sqlite3.connect(sidecar.store)) as store:
        rows = store.execute(
            "SELECT msg_id, task_id, session_id FROM calls JOIN tasks ON tasks.id = task_id"
        ).fetchall()
    return {msg_id.rpartition("/")[2]: (task, session) for msg_id, task, session in rows}


async def _run(command: list[str], environment: dict[str, str], questions: int) -> None:
    process = await asyncio.create_subprocess_exec(
        *command,
        env=environment,
        cwd=environment["HOME"],
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        process_group=0,
    )
    try:
        async with asyncio.timeout(_LIMIT):
            out, err = await process.communicate()
    except TimeoutError:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    said = out.decode().count(ANSWER)
    assert process.returncode == 0, err.decode()[-3000:]
    assert said >= questions, (
        f"{said} answers to {questions} questions:\n{out.decode()[-1500:]}\n{err.decode()[-1500:]}"
    )


async def _counted(sidecar: SidecarProcess, answers: int) -> None:
    """Wait until the sidecar has captured each answer, or counted why not."""
    counted: dict[str, float] = {}

    async def all_of_them() -> bool:
        families = list(text_string_to_metric_families((await control.get("/metrics")).text))
        for name in ("slipstream_calls_captured", "slipstream_calls_not_captured"):
            samples = [sample for family in families if family.name == name for sample in family.samples]
            counted[name] = sum(sample.value for sample in samples if sample.name.endswith("_total"))
        return sum(counted.values()) >= answers

    async with httpx.AsyncClient(base_url=sidecar.url, timeout=30) as control:
        try:
            await until(all_of_them, 60)
        except TimeoutError as error:
            raise AssertionError(f"production gave {answers} answers, the sidecar counts {counted}") from error
