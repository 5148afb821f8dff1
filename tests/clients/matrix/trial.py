"""One client tried: its agent before a running sidecar, and what the store and the Explorer have afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

import httpx
from prometheus_client.parser import text_string_to_metric_families
from scripted import ScriptedExplorer
from serving import serving, until
from sidecar_process import SidecarProcess

from matrix.client import Client
from matrix.production import Production
from matrix.said import in_chat
from matrix.script import ANSWER, WEATHER, greeting

LATE = (0, 5, 50)
"""Milliseconds between the last event and the end of production's answer."""
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
        streams: captured calls of `STREAMS`, by milliseconds between the last event and the end.
        run: calls of the request, of all modes, whose conversation the policy was asked to go on.
    """

    client: str
    version: str
    groupings: dict[str, Grouping] = field(default_factory=dict)
    streams: dict[int, int] = field(default_factory=dict)
    run: int = 0

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1))

    @classmethod
    def read(cls, path: Path) -> Outcome:
        """The outcome that was saved there."""
        saved = json.loads(path.read_text())
        saved["groupings"] = {mode: Grouping(**grouping) for mode, grouping in saved["groupings"].items()}
        saved["streams"] = {int(late): captured for late, captured in saved["streams"].items()}
        return cls(**saved)


class _Call(NamedTuple):
    """One captured call, and whether the policy was asked the same."""

    task: str
    session: str
    was_run: bool


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
        weather = [call for msg_id, call in captured.items() if "weather-" in msg_id]
        tasks, sessions = {call.task for call in weather}, {call.session for call in weather}
        outcome.groupings[mode] = Grouping(len(weather), len(tasks), len(sessions))
        outcome.run += sum(call.was_run for call in weather)
        if mode == "stream":
            for late in LATE:
                outcome.streams[late] = sum(f"late-{late}-" in msg_id for msg_id in captured)
    return outcome


async def _captured(client: Client, mode: str, questions: list[str], folder: Path) -> dict[str, _Call]:
    """The captured calls of an agent's questions, by the answer's id."""
    production, explorer = Production(), ScriptedExplorer()
    async with serving(production.app()) as production_url, serving(explorer.app()) as explorer_url:
        sidecar = SidecarProcess(folder, production_url, explorer_url, **_SELECTS_ALL, **client.sidecar)
        await sidecar.start(ready=False)
        try:
            await sidecar.ready()
            await _run(client.command(mode, questions), client.environment(sidecar.url, folder), len(questions))
            await _counted(sidecar, len(production.asked))
            rows = _stored(sidecar)
            runnable = sum(problem is None for *_, problem in rows)
            with contextlib.suppress(TimeoutError):  # what is missing is counted
                await until(lambda: len(explorer.chats) >= runnable, 30)
        finally:
            await sidecar.end(signal.SIGTERM)
    asked = [in_chat(chat) for chat in explorer.chats]
    return {
        msg_id: _Call(task, session, production.conversations[msg_id] in asked) for msg_id, task, session, _ in rows
    }


_SELECTS_ALL = {
    "selection": {"sampling": {"rate": 1.0}},
    "rewards": {"calculators": [{"constant": {"value": 0.5}}]},
}


def _stored(sidecar: SidecarProcess) -> list[tuple[str, str, str, str | None]]:
    """The id, the task, the session and the problem of each call."""
    query = "SELECT msg_id, task_id, session_id, problem FROM calls JOIN tasks ON tasks.id = task_id"
    with contextlib.closing(sqlite3.connect(sidecar.store)) as store:
        return [(msg_id.rpartition("/")[2], *rest) for msg_id, *rest in store.execute(query).fetchall()]


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
