"""The three Explorers of the schedules, each with what can be seen of it from outside: what had effect."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sqlite3
import sys
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import httpx
import yaml
from durable_explorer import history_of, journal_of
from ports import free_port
from serving import serving

from chaos.processes import Process

ROOT = Path(__file__).parents[3]
SUPPORT = ROOT / "tests" / "support"
TRINITY = ROOT / "tests" / "trinity"
TINY = ROOT / ".cache" / "models" / "tiny"


@dataclass(frozen=True, slots=True)
class Effect:
    """One experience that a commit handed to the Trainer.

    Attributes:
        commit: which; None where the Explorer does not say.
    """

    commit: int | None
    group_id: str | None
    run_id: int
    msg_id: str
    reward: float | None


class Explorer(Protocol):
    """A process that serves the policy model.

    Attributes:
        alive: whether it runs; it is started again where it does not, unless `held`.
        history: the database of its recorded chats, where it has one as Trinity's.
    """

    held: int
    history: Path | None

    @property
    def port(self) -> int: ...
    @property
    def alive(self) -> bool: ...
    async def start(self) -> None: ...
    async def kill(self) -> None: ...
    def signal(self, number: signal.Signals) -> None: ...
    def effects(self) -> list[Effect]: ...


def available(kind: str) -> bool:
    return kind != "trinity" or (ROOT / ".trinity-venv" / "bin" / "python").exists()


@asynccontextmanager
async def explorer(kind: str, folder: Path, rng: random.Random) -> AsyncIterator[Explorer]:
    """The Explorer of that kind, not started yet."""
    if kind == "trinity":
        async with _trinity(folder) as made:
            yield made
    elif kind == "embedded":
        yield _Embedded(folder)
    else:
        yield _Scripted(folder)


def answers(url: str) -> Any:
    """What says whether a server answers at `url`, whatever it answers."""

    async def answered() -> bool:
        try:
            async with httpx.AsyncClient(timeout=2) as client:
                return (await client.get(url)).status_code < 500
        except httpx.HTTPError:
            return False

    return answered


class _Scripted(Process):
    """Trinity's contract by script, with a journal."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._journal = folder / "explorer.journal"
        self.history = history_of(self._journal)
        command = (sys.executable, str(SUPPORT / "durable_explorer.py"), str(self.port), str(self._journal))
        super().__init__(command, answers(f"http://127.0.0.1:{self.port}/health"), folder / "explorer.log")

    def effects(self) -> list[Effect]:
        commits = (event["experiences"] for event in journal_of(self._journal) if event["event"] == "committed")
        return [
            Effect(number, one["task_id"], one["run_id"], one["msg_id"], one["reward"])
            for number, commit in enumerate(commits)
            for one in commit
        ]


class _Embedded(Process):
    """`slipstream explorer`, on a model that answers nonsense in no time."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.history = None
        self._buffer = folder / "experiences.db"
        config = folder / "explorer.yaml"
        config.write_text(
            yaml.safe_dump(
                {
                    "mode": "serve",
                    "project": "chaos",
                    "name": "job",
                    "checkpoint_root_dir": str(folder / "checkpoints"),
                    "model": {"model_path": str(TINY), "max_model_len": 1024, "max_response_tokens": 16},
                    "algorithm": {"algorithm_type": "grpo"},
                    "buffer": {
                        "trainer_input": {
                            "experience_buffer": {
                                "name": "experiences",
                                "storage_type": "sql",
                                "path": f"sqlite:///{self._buffer}",
                            }
                        }
                    },
                    "explorer": {"listen_address": "127.0.0.1", "proxy_port": self.port},
                }
            )
        )
        command = (sys.executable, "-m", "slipstream", "explorer", "--config", str(config))
        super().__init__(command, answers(f"http://127.0.0.1:{self.port}/health"), folder / "explorer.log")

    def effects(self) -> list[Effect]:
        with contextlib.closing(sqlite3.connect(self._buffer)) as database:
            query = "SELECT commit_id, task_id, run_id, msg_id, reward FROM experiences ORDER BY id"
            return [Effect(*row) for row in database.execute(query)]


class _Trinity:
    """Trinity's real code, without Ray and with a scripted engine behind it."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.history = real.history_file
        self.held = 0

    @property
    def port(self) -> int:
        return int(self._real.url.rpartition(":")[2])

    @property
    def alive(self) -> bool:
        return self._real._pid is None or bool(self._real._alive())

    async def start(self) -> None:
        await self._real.start()

    async def kill(self) -> None:
        await self._real.kill()

    def signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._real._pid, number)

    def effects(self) -> list[Effect]:
        return [Effect(None, row.task_id, row.run_id, row.msg_id, row.reward) for row in self._real.trained()]


@asynccontextmanager
async def _trinity(folder: Path) -> AsyncIterator[_Trinity]:
    from real_trinity import Installation, RealTrinity
    from scripted_engine import ScriptedEngine

    installation = await asyncio.to_thread(Installation, folder)
    try:
        async with serving(ScriptedEngine().app()) as engine:
            # 2 s: a chat of a stopped engine is a 504 by then
            real = RealTrinity(installation, folder / "trinity", [engine], sync_timeout=2)
            yield _Trinity(real)
            await real.kill()
    finally:
        await asyncio.to_thread(installation.close)


def prepare_tiny_model() -> None:
    """Write the model directory of the embedded Explorer, once for all schedules."""
    if TINY.exists():
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tiny_model import fetch_tokenizer, save_tiny_model

        beside = TINY.with_name(f"tiny.{os.getpid()}")
        save_tiny_model(beside, fetch_tokenizer(TINY.with_name("smollm2-tokenizer")))
        with contextlib.suppress(OSError):  # another made it meanwhile
            beside.rename(TINY)
