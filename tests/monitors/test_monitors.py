"""The real W&B and the real MLflow, as their users install them: `make test-monitors` sets the environment up."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from dataset_rows import dataset, provenance
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny_model import save_byte_model

from slipstream.datasets.folder import new_folder
from slipstream.datasets.row import Kind, Row
from slipstream.embedded.config import EngineConfig
from slipstream.embedded.experiences import Answer, ExperienceStore

PYTHON = Path(__file__).parents[2] / ".monitors-venv" / "bin" / "python"
READ = Path(__file__).with_name("read_runs.py")
WITHOUT_A_NETWORK = ["unshare", "-n", "bash", "-c", 'ip link set lo up && exec "$@"', "bash"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason="`make test-monitors` installs W&B and MLflow, and runs this"),
]


class Job:
    """A job with two committed batches, and a data set, whose metrics go to a monitor."""

    def __init__(self, folder: Path, **monitor: Any) -> None:
        save_byte_model(folder / "model")
        self.folder = folder
        fields: dict[str, Any] = {
            "mode": "train",
            "project": "shop",
            "name": "policy",
            "checkpoint_root_dir": str(folder / "checkpoints"),
            "model": {"model_path": str(folder / "model"), "max_model_len": 512},
            "algorithm": {"algorithm_type": "grpo", "optimizer": {"lr": 1e-4}},
            "buffer": {"train_batch_size": 4, "trainer_input": {"experience_buffer": {"max_read_timeout": 0.1}}},
            "trainer": {"dtype": "float32"},
            "monitor": monitor,
        }
        (folder / "trainer.yaml").write_text(yaml.safe_dump(fields))
        (folder / "sft.yaml").write_text("algorithm: {algorithm_type: sft}")
        config = EngineConfig.model_validate(fields)
        self.directory = config.job_dir
        store = ExperienceStore(config.database_url, "experience_buffer")
        for task in ("one", "two"):
            for run in range(4):
                store.record([Answer(f"{task}-{run}", np.arange(5), np.arange(3), np.full(3, -5.0), 0)])
                store.feedback([f"{task}-{run}"], float(run), task, run)
            store.commit("grpo")
        store.close()
        with new_folder(folder / "datasets", dataset()) as made:
            for number in range(8):
                question = [{"role": "user", "content": f"Question {number}?"}]
                made.add("train", Row(Kind.SFT, question, {"role": "assistant", "content": "Yes."}, provenance(number)))
            self.digest = made.publish({}).digest
        data = {
            "dataset": dataset().model_dump(mode="json", exclude_defaults=True),
            "train": {"overlays": ["sft.yaml"]},
        }
        (folder / "data.yaml").write_text(yaml.safe_dump(data))

    def run(self, *words: str, isolated: bool = True) -> str:
        """Run a command as a user would, in a network of its own. Returns its log."""
        done = subprocess.run(
            [*(WITHOUT_A_NETWORK if isolated else ()), str(PYTHON), "-m", "slipstream", "--log-format", "json", *words],
            cwd=self.folder, env={**os.environ, "HOME": str(self.folder)},
            capture_output=True, text=True, timeout=400, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout + done.stderr

    def trained(self) -> list[int]:
        return sorted(int(path.name.rpartition("_")[2]) for path in self.directory.glob("global_step_*"))


def runs(kind: str, where: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [str(PYTHON), str(READ), kind, where], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return sorted(found, key=lambda run: "dataset_digest" in str(run["tags"]) + str(run["settings"]))


TRAIN = ("train", "--config", "data.yaml", "--directory", "datasets")


def test_wandb_offline_has_the_steps_and_where_the_versions_come_from(tmp_path: Path) -> None:
    job = Job(tmp_path, monitor_type="wandb", monitor_args={"mode": "offline", "api_key": "k" * 40})
    job.run("trainer")
    job.run(*TRAIN)

    online, supervised = runs("wandb", str(job.directory / "monitor" / "wandb"))
    for run in (online, supervised):
        assert (run["project"], run["group"], run["name"], run["tags"]) == (
            "shop",
            "policy",
            "policy_trainer",
            ["trainer"],
        )
        assert "k" * 40 not in json.dumps(run)
    steps = {step: (values["train/version"], values["train/parent"]) for step, values in online["metrics"].items()}
    assert steps == {"1": (1, 0), "2": (2, 1)}
    assert online["metrics"]["1"]["train/reward_mean"] == 1.5
    assert online["settings"]["algorithm"]["algorithm_type"] == "grpo"
    assert (online["settings"]["started_from"], online["settings"]["version"]) == (0, 2)
    assert sorted(supervised["metrics"]) == ["1", "2"]
    assert supervised["metrics"]["1"]["train/loss"] > 0
    assert {name: supervised["settings"][name] for name in ("version", "parent", "dataset", "dataset_digest")} == {
        "version": 3, "parent": 2, "dataset": "support", "dataset_digest": job.digest,
    }  # fmt: skip
    assert job.trained() == [1, 2, 3]


def test_mlflow_s_local_store_has_the_steps_and_where_the_versions_come_from(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    job = Job(tmp_path, monitor_type="mlflow", monitor_args={"uri": uri})
    job.run("trainer")
    job.run(*TRAIN)

    online, supervised = runs("mlflow", uri)
    for run in (online, supervised):
        assert (run["project"], run["group"], run["name"], run["status"]) == (
            "shop",
            "policy",
            "policy_trainer",
            "FINISHED",
        )
    steps = {step: (values["train/version"], values["train/parent"]) for step, values in online["metrics"].items()}
    assert steps == {"1": (1, 0), "2": (2, 1)}
    assert online["settings"]["algorithm.optimizer.lr"] == "0.0001"
    assert online["tags"]["slipstream.version"] == "2"
    assert sorted(supervised["metrics"]) == ["1", "2"]
    said = {
        name: supervised["tags"][f"slipstream.{name}"] for name in ("version", "parent", "dataset", "dataset_digest")
    }
    assert said == {"version": "3", "parent": "2", "dataset": "support", "dataset_digest": job.digest}


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def moment(log: str, event: str) -> float:
    """When a line was logged, in Unix seconds."""
    [line] = [line for line in log.splitlines() if f'"event": "{event}"' in line]
    return datetime.fromisoformat(json.loads(line)["timestamp"]).timestamp()


@pytest.mark.parametrize(
    ("kind", "address", "more"), [("wandb", "base_url", {"api_key": "k" * 40}), ("mlflow", "uri", {})]
)
def test_training_does_not_wait_for_a_server_that_is_silent_or_away(
    tmp_path: Path, silent: str, kind: str, address: str, more: dict[str, str]
) -> None:
    for place, (url, isolated) in enumerate({silent: False, "http://127.0.0.1:9": True}.items()):
        folder = tmp_path / str(place)
        folder.mkdir()
        job = Job(folder, monitor_type=kind, monitor_args={address: url, **more})
        log = job.run("trainer", isolated=isolated)

        assert job.trained() == [1, 2]
        assert log.count("not all metrics reached the monitor") == 1
        assert log.count("the monitor failed") <= 1
        assert "k" * 40 not in log
        assert moment(log, "trainer ended") - moment(log, "no experiences for max_read_timeout") < 70
        board = EventAccumulator(str(job.directory / "monitor" / "tensorboard"))
        board.Reload()
        assert [event.step for event in board.Scalars("train/loss")] == [1, 2]
