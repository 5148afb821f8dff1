"""Trinity's real code as a process of its own, seen from a test."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import yaml
from ports import free_port
from serving import until

PYTHON = Path(__file__).parents[2] / ".trinity-venv" / "bin" / "python"
_HERE = Path(__file__).parent
_SERVE = _HERE / "serve_trinity.py"


class TrainerRow(NamedTuple):
    """One experience in the Trainer's table: what Trinity would train on."""

    task_id: str | None
    run_id: int
    msg_id: str
    reward: float | None
    model_version: int
    advantage: float | None
    response_tokens: int


class Installation:
    """The process that has imported Trinity and forks services and programs (see `serve_trinity`).

    Args:
        folder: where Hugging Face's reader copies data sets to, and what a program wrote on stderr is kept.
    """

    def __init__(self, folder: Path) -> None:
        self._errors = folder / "errors.log"
        self._process = subprocess.Popen(
            [str(PYTHON), str(_SERVE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=os.environ | {"HF_DATASETS_CACHE": str(folder / "data-sets"), "HF_HUB_OFFLINE": "1"},
        )  # fmt: skip
        self._answer()

    def run(
        self,
        program: str,
        *arguments: str | Path,
        given: str = "",
        folder: Path = _HERE,
        path: Sequence[Path] = (),
        environment: Mapping[str, str] | None = None,
    ) -> tuple[Any, str]:
        """Run a program of this folder as `python program.py ARGUMENTS` would, with Trinity imported already.

        Args:
            given: on its standard input.
            folder: that it runs in.
            path: folders that it imports from, too.

        Returns:
            The JSON in the last line that it printed, and all that it printed.
        """
        printed: str = self.order(
            do="run", program=str(_HERE / f"{program}.py"), arguments=list(map(str, arguments)), input=given,
            folder=str(folder), path=list(map(str, path)), environment=dict(environment or {}),
            errors=str(self._errors),
        )["printed"]  # fmt: skip
        *_, last = ["", *printed.splitlines()]
        assert last.startswith(("{", "[")), f"{program} failed: {self._errors.read_text()[-4000:]}"
        return json.loads(last), printed

    def order(self, **order: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        # Trinity prints on stdout what it has to say while it is imported
        line = next((line for line in self._process.stdout if line.startswith("{")), None)
        assert line is not None, "Trinity could not be imported: see the output above"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        self._process.communicate(timeout=30)


class RealTrinity:
    """One Explorer with its directories, which stay over its restarts.

    Args:
        engines: URLs of its engines.
        algorithm: whose advantages the pipeline computes.
        sync_timeout: seconds, after which also a chat is a 504.
        sections: what else the configuration says, by section.
    """

    def __init__(
        self,
        installation: Installation,
        folder: Path,
        engines: Sequence[str],
        *,
        algorithm: str = "grpo",
        sync_timeout: float = 60,
        **sections: dict[str, Any],
    ) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.log = folder / "trinity.log"
        self._installation = installation
        self._engines = list(engines)
        self._pid: int | None = None
        self._config = folder / "explorer.yaml"
        self._job = folder / "checkpoints" / "contract" / "real"
        self._buffer = folder / "buffer.db"
        self.history_file = self._job / "buffer" / "proxy_history.db"
        model = folder / "model"
        model.mkdir(parents=True)
        (model / "config.json").write_text('{"model_type": "llama", "max_position_embeddings": 2048}')
        config = {
            "mode": "serve",
            "project": "contract",
            "group": "",
            "name": "real",
            "checkpoint_root_dir": str(folder / "checkpoints"),
            "algorithm": {"algorithm_type": algorithm, "repeat_times": 2},
            "model": {
                "model_path": str(model),
                "max_model_len": 2048,
                "max_prompt_tokens": 1024,
                "max_response_tokens": 1024,
                "temperature": 1.0,
            },
            "cluster": {"node_num": 1, "gpu_per_node": 8},
            "buffer": {
                "train_batch_size": 2,
                "trainer_input": {
                    "experience_buffer": {
                        "name": "experiences",
                        "storage_type": "sql",
                        "path": f"sqlite:///{self._buffer}",
                        "max_retry_times": 1,
                    }
                },
            },
            "explorer": {
                "rollout_model": {
                    "engine_type": "vllm",
                    "engine_num": len(self._engines),
                    "tensor_parallel_size": 1,
                    "enable_openai_api": True,
                },
                "service_status_check_interval": 1,
                "min_running_model_num": 0,
                "listen_address": "127.0.0.1",
                "proxy_port": port,
                "eval_on_startup": False,
            },
            "synchronizer": {"sync_method": "checkpoint", "sync_timeout": sync_timeout},
            "monitor": {"monitor_type": "tensorboard"},
        }
        for section, keys in sections.items():
            config[section] = {**config.get(section, {}), **keys}
        self._config.write_text(yaml.safe_dump(config))

    async def start(self) -> None:
        order = {"do": "serve", "config": str(self._config), "engines": self._engines, "log": str(self.log)}
        self._pid = (await asyncio.to_thread(self._installation.order, **order))["pid"]
        async with httpx.AsyncClient(base_url=self.url) as client:

            async def ready() -> bool:
                assert self._alive(), f"Trinity did not start: {self.log.read_text()[-2000:]}"
                with contextlib.suppress(httpx.TransportError):
                    return (await client.get("/health")).status_code == 200
                return False

            await until(ready, 60)

    async def kill(self) -> None:
        """`kill -9`: what it had in memory is gone."""
        if self._pid is not None and self._alive():
            os.kill(self._pid, signal.SIGKILL)
            await until(lambda: not self._alive())

    async def restart(self) -> None:
        await self.kill()
        await self.start()

    def publish(self, version: int) -> None:
        """A Trainer has written these weights: every engine is to load them, one that serves no more meanwhile."""
        (self._job / "latest_state_dict_iteration.txt").write_text(str(version))

    def trained(self) -> list[TrainerRow]:
        """What reached the Trainer's table, in the order of arrival."""
        found = self._installation.order(do="read", database=str(self._buffer), table="experiences")
        return [TrainerRow(**row) for row in found["experiences"]]

    def history(self) -> list[dict[str, Any]]:
        """The table of recorded chats: msg_id, task_id, run_id, reward, consumed of each."""
        with _opened(self.history_file) as database:
            database.row_factory = sqlite3.Row
            rows = database.execute("SELECT * FROM proxy_history ORDER BY id").fetchall()
        return [dict(row) for row in rows]

    def forget(self) -> None:
        """Every recorded chat is gone, as with a history that was wiped."""
        with _opened(self.history_file) as database:
            database.execute("DELETE FROM proxy_history")
            database.execute("DELETE FROM proxy_history_blob")

    @contextlib.contextmanager
    def failing_commits(self) -> Iterator[None]:
        """Meanwhile the Trainer's table takes no row: the pipeline fails, as it does on a full disk."""
        with _opened(self._buffer) as database:
            database.execute(
                "CREATE TRIGGER full BEFORE INSERT ON experiences BEGIN SELECT RAISE(ABORT, 'disk full'); END"
            )
        try:
            yield
        finally:
            with _opened(self._buffer) as database:
                database.execute("DROP TRIGGER full")

    @contextlib.contextmanager
    def locked_history(self) -> Iterator[None]:
        """Meanwhile another process writes to the table of recorded chats, and the Explorer cannot."""
        with _opened(self.history_file) as database:
            database.execute("BEGIN EXCLUSIVE")
            yield

    def _alive(self) -> bool:
        assert self._pid is not None
        try:
            os.kill(self._pid, 0)
        except ProcessLookupError:
            return False
        return True


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    database = sqlite3.connect(path, timeout=10)
    try:
        with database:
            yield database
    finally:
        database.close()
