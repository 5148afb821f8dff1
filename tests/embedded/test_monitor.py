"""Metrics on their way to a server that fails, is slow or is not there: training does not notice."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slipstream.embedded.config import EngineConfig
from slipstream.embedded.monitor import delivery
from slipstream.embedded.monitor.delivery import Delivery
from slipstream.embedded.monitor.run import Lineage, run_of
from slipstream.errors import ConfigError


class Server:
    """A run of a monitor; `fails` says of each attempt whether it does, and `away` how often it cannot be opened."""

    def __init__(self, away: int = 0, fails: Callable[[int], bool] = lambda _: False) -> None:
        self.steps: list[int] = []
        self.tags: list[int | None] = []
        self.attempts = self.opened = 0
        self.closed = False
        self.reached = threading.Event()
        self.goes_on = threading.Event()
        self.goes_on.set()
        self._away, self._fails = away, fails

    def open(self) -> Server:
        self.opened += 1
        if self.opened <= self._away:
            raise ConnectionError("nothing listens")
        return self

    def log(self, values: dict[str, float], step: int) -> None:
        self.attempts += 1
        self.reached.set()
        assert self.goes_on.wait(30)
        if self._fails(self.attempts):
            raise TimeoutError("too slow")
        self.steps.append(step)

    def tag(self, lineage: Lineage) -> None:
        self.tags.append(lineage.version)

    def close(self) -> None:
        self.closed = True


def put(queue: Delivery, *steps: int) -> None:
    for step in steps:
        queue.put(lambda sink, step=step: sink.log({"train/loss": 0.5}, step))  # type: ignore[misc]


def warnings(capsys: pytest.CaptureFixture[str]) -> list[str]:
    said = capsys.readouterr()
    return [line for line in (said.out + said.err).splitlines() if "the monitor failed" in line or "not all" in line]


def test_each_step_arrives_once_in_order_though_the_server_comes_late_and_fails(
    capsys: pytest.CaptureFixture[str],
) -> None:
    server = Server(away=3, fails=lambda attempt: attempt in (2, 3))
    queue = Delivery("wandb", server.open, pause=0.001)
    put(queue, 1, 2, 3)
    queue.put(lambda sink: sink.tag(Lineage(0, 3)))
    assert server.reached.wait(30)
    put(queue, 4)
    done = threading.Event()
    queue.put(lambda sink: done.set())
    assert done.wait(30)
    queue.close()

    assert (server.steps, server.tags, server.closed) == ([1, 2, 3, 4], [3], True)
    failures = warnings(capsys)
    assert len(failures) == 2, "once for each time that it was away, not once for each attempt"
    assert "ConnectionError: nothing listens" in failures[0]
    assert "TimeoutError: too slow" in failures[1]


def test_a_step_that_is_refused_again_and_again_does_not_keep_the_others_waiting() -> None:
    server = Server(fails=lambda attempt: attempt <= 5)
    queue = Delivery("mlflow", server.open, pause=0.001)
    put(queue, 1, 2)
    done = threading.Event()
    queue.put(lambda sink: done.set())
    assert done.wait(30)
    queue.close()

    assert server.steps == [2]


def test_nobody_waits_for_a_server_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(delivery, "_MOST", 3)
    server = Server()
    server.goes_on.clear()
    queue = Delivery("mlflow", server.open)
    put(queue, 1)
    assert server.reached.wait(30)
    put(queue, *range(2, 10))  # returns at once: it would hang here
    queue.close(0.01)

    [said] = warnings(capsys)
    assert "not all metrics reached the monitor: TensorBoard's files have them" in said
    server.goes_on.set()


def config(folder: Path, kind: str, **arguments: Any) -> EngineConfig:
    return EngineConfig.model_validate(
        {
            "mode": "train",
            "project": "shop",
            "name": "job",
            "checkpoint_root_dir": str(folder),
            "model": {"model_path": "/model", "max_model_len": 512, "hidden_key": "s3cret"},
            "buffer": {"trainer_input": {"experience_buffer": {"path": "postgresql://me:s3cret@db/x"}}},
            "monitor": {"monitor_type": kind, "monitor_args": arguments or None},
        }
    )


def test_a_run_says_what_is_trained_and_no_secret(tmp_path: Path) -> None:
    settings = config(tmp_path, "wandb", api_key="s3cret", password="s3cret")
    run = run_of(settings, Lineage(4, dataset="support", digest="d1"))

    assert (run.project, run.group, run.name) == ("shop", "job", "job_trainer")
    assert run.settings["algorithm"]["optimizer"]["lr"] == 1e-6
    assert run.lineage.said() == {"parent": 4, "dataset": "support", "dataset_digest": "d1"}
    assert "s3cret" not in repr(run) + repr(settings.monitor)


@pytest.mark.parametrize("kind", ["wandb", "mlflow"])
def test_a_library_that_is_missing_is_named_with_its_key_and_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    from slipstream.embedded.trainer import train

    monkeypatch.setitem(sys.modules, kind, None)
    with pytest.raises(
        ConfigError, match=rf"monitor\.monitor_type: {kind}: expected .* pip install 'slipstream-sidecar\[{kind}\]'"
    ):
        train(config(tmp_path, kind))
