"""Supervised and preference training by the real Trinity-RFT on a CPU: `make test-trinity-full`.

    python tests/trinity_full/train_datasets.py [--output DIR]

A store is filled with answers of production and scored runs of the policy. `slipstream dataset export` makes a
supervised data set and one of preferences in Trinity's format, and `slipstream train` trains on each with
`train.engine: trinity`, while the real Explorer serves the policy. Then the policy's own Trainer goes on with GRPO.
Exit code 0: the Explorer served version 1 and it answers as it was taught; version 2, and it prefers what was chosen;
and version 3, made by the Trainer with the learning rate of reinforcement learning.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import yaml
from full_stack import OVERLAYS, ROOT, enter, environment, in_namespaces, slipstream, trinity

DEMO = ROOT / "examples" / "demo"
sys.path[:0] = [str(DEMO), str(ROOT / "tests" / "support")]

from dataset_store import stored  # noqa: E402
from outcome import fresh, stopwatch  # noqa: E402
from services import Services, run_beside  # noqa: E402

from slipstream.errors import SlipstreamError  # noqa: E402
from slipstream.local.supervisor import Child  # noqa: E402

_EXPLORER = 8010  # a port of a namespace that is ours alone
_TASKS = 48
_ASKED = 24
_STEP_SECONDS = 1800.0
_CHOSEN, _REJECTED = "The colour is cobalt.", "The colour is amber."
_SIDECAR = {"datasets": {"directory": "datasets"}, "store": {"url": "sqlite+aiosqlite:///slipstream.db"}}
_DATA: dict[str, dict[str, Any]] = {
    "taught": {"kind": "sft", "sources": [{"production": {}}]},
    "preferred": {"kind": "preference", "pairs": {"from": ["runs"]}},
}
_TRAINING: dict[str, dict[str, Any]] = {
    "taught": {
        "algorithm": {"optimizer": {"lr": 1.0e-4}},
        "buffer": {"train_batch_size": 8, "total_epochs": 3},
        "trainer": {"save_interval": 9},
    },
    "preferred": {
        "algorithm": {"optimizer": {"lr": 5.0e-6}},
        "buffer": {"train_batch_size": 8, "total_epochs": 2},
        "trainer": {"save_interval": 6},
    },
}
_LEARNING_RATE = 4.0e-5  # of reinforcement learning, by overlay.yaml


class ProofError(Exception):
    """Something did not come about; the message says what."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=ROOT / "trinity-full-output")
    parser.add_argument("--model", type=Path, help="where the model is, or is to be put (default: OUTPUT/model)")
    arguments = parser.parse_args()
    output: Path = arguments.output.absolute()
    model: Path = arguments.model.absolute() if arguments.model else output / "model"
    if not enter(model):
        return 2
    run_dir = fresh(output / "datasets-run")
    say = stopwatch(time.monotonic())
    os.environ |= {"MODEL_PATH": str(model), "CHECKPOINT_ROOT_DIR": str(run_dir), "EXPLORER_PORT": str(_EXPLORER)}
    os.chdir(run_dir)
    asyncio.run(_fill(run_dir))
    (run_dir / "store.yaml").write_text(yaml.safe_dump(_SIDECAR))
    for name in _DATA:
        _export(run_dir, name)
        say((run_dir / "datasets" / name / "train.jsonl").read_text().splitlines()[0][:160])
    proof = Proof(run_dir, model, say)
    services = Services("", f"http://127.0.0.1:{_EXPLORER}/v1", "", (_explorer(),), run_dir / "services.log")
    say(f"starting the Explorer; its log is {services.log_path}")
    try:
        finished = asyncio.run(run_beside(services, proof.run()))
    except (SlipstreamError, ProofError) as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    if not finished:
        print("stopped", file=sys.stderr)
        return 1
    (output / "datasets.json").write_text(json.dumps(proof.found, indent=2) + "\n")
    say(json.dumps(proof.found))
    return 0


class Proof:
    """What is done beside the running Explorer, and what was found."""

    def __init__(self, run_dir: Path, model: Path, say: Callable[[str], None]) -> None:
        self._folder = run_dir
        self._job = run_dir / "full" / "policy"
        self._model = model
        self._say = say
        self._explorer = httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{_EXPLORER}", timeout=_STEP_SECONDS, trust_env=False
        )
        self.found: dict[str, Any] = {}

    async def run(self) -> None:
        await self._served(0)
        self.found["version 0"] = await self._asked()
        await self._commit(8)
        for version, name in enumerate(_DATA, 1):
            began = time.monotonic()
            await self._train(name)
            self.found[f"seconds of {name}"] = round(time.monotonic() - began)
            began = time.monotonic()
            await self._served(version)
            self.found[f"seconds until version {version} was served"] = round(time.monotonic() - began)
            self.found[f"version {version}"] = await self._asked()
            said = json.loads((self._job / f"global_step_{version}" / "trained_on.json").read_text())
            self.found[f"trained_on.json of version {version}"] = said
        self._judge()
        await self._reinforce()
        await self._explorer.aclose()

    async def _served(self, version: int) -> None:
        """Wait until the Explorer serves a version."""
        deadline = time.monotonic() + _STEP_SECONDS
        while time.monotonic() < deadline:
            try:
                metrics = (await self._explorer.get("/metrics")).json()
                if metrics["rollout/model_0/model_version"] == version:
                    self._say(f"the Explorer serves version {version}")
                    return
            except (httpx.HTTPError, KeyError, ValueError):
                pass
            await asyncio.sleep(1)
        raise ProofError(f"the Explorer did not serve version {version}")

    async def _asked(self) -> dict[str, int]:
        """Ask about what no row was about, and count the answers of each kind."""
        texts = [await self._chat(f"about held-out {number}") for number in range(_ASKED)]
        told = {
            "chosen": sum(_CHOSEN in text for text in texts),
            "rejected": sum(_REJECTED in text for text in texts),
            "asked": _ASKED,
        }
        self._say(f"{told}; the first: {texts[0][:80]!r}")
        return told

    async def _chat(self, question: str) -> str:
        answer = (await self._post(question))["choices"][0]["message"]["content"]
        return str(answer)

    async def _post(self, question: str) -> dict[str, Any]:
        body = {"model": str(self._model), "messages": [{"role": "user", "content": question}], "max_tokens": 24}
        for _ in range(60):  # 500 while its one engine loads
            answer = await self._explorer.post("/v1/chat/completions", json=body)
            if answer.is_success:
                found: dict[str, Any] = answer.json()
                return found
            await asyncio.sleep(1)
        raise ProofError(f"the Explorer answers {answer.status_code}: {answer.text[:300]}")

    async def _commit(self, count: int) -> None:
        """Have the Explorer record so many answers, in groups of eight with rewards of 0 and 1."""
        for number in range(count):
            each = str((await self._post(f"about {number // 8}"))["id"])
            told = {"msg_ids": [each], "reward": number % 2, "task_id": f"task-{number // 8}", "run_id": number % 8}
            (await self._explorer.post("/feedback", json=told)).raise_for_status()
        (await self._explorer.post("/commit", json={})).raise_for_status()

    async def _train(self, name: str) -> None:
        """Run `slipstream train` on "another host" that shares the disk."""
        command = (*slipstream(), "train", "--config", str(self._folder / f"{name}.yaml"), "--directory", "datasets")
        process = await asyncio.create_subprocess_exec(
            *in_namespaces(command), env=os.environ | dict(environment("trainer")), stdout=subprocess.PIPE
        )
        out, _ = await process.communicate()
        self._say(out.decode().strip().replace("\n", "; "))
        if name == "taught" and "8 experiences of earlier versions are discarded" not in out.decode():
            raise ProofError("expected 8 experiences of version 0 to be discarded")
        if process.returncode != 0:
            raise ProofError(f"slipstream train on {name} ended with {process.returncode}")

    def _judge(self) -> None:
        before, taught, preferred = (self.found[f"version {version}"] for version in range(3))
        if before["chosen"] + before["rejected"] or taught["chosen"] + taught["rejected"] < 0.8 * _ASKED:
            raise ProofError(f"supervised training: {before} became {taught}")
        if preferred["chosen"] <= taught["chosen"] or preferred["chosen"] < 0.8 * _ASKED:
            raise ProofError(f"preference training: {taught} became {preferred}")

    async def _reinforce(self) -> None:
        """Give the policy's own Trainer a batch: it goes on from version 2, with its own learning rate."""
        await self._commit(32)
        overlay = self._folder / "three-steps.yaml"
        overlay.write_text("trainer: {total_steps: 3}\n")
        child: Child = trinity("trainer", (overlay,))
        with (self._folder / "trainer.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *child.command, env=os.environ | dict(child.environment), stdout=log, stderr=log
            )
            await process.wait()
        if process.returncode != 0:
            raise ProofError(f"the policy's Trainer ended with {process.returncode}: {self._folder / 'trainer.log'}")
        await self._served(3)
        text = (self._folder / "trainer.log").read_text(errors="replace")
        rate = re.findall(r"actor/lr['\"]?[ :=]+([0-9.e+-]+)", text)
        self.found["version 3"] = {"learning rate": rate[-1] if rate else None}
        if not rate or abs(float(rate[-1]) - _LEARNING_RATE) > 1e-9:
            raise ProofError(f"the Trainer went on with the learning rate {rate}, expected {_LEARNING_RATE}")


async def _fill(folder: Path) -> None:
    """Answers of production, half of each kind; and runs of the policy, of which one kind has the reward."""
    async with stored(folder) as store:
        for number in range(_TASKS):
            await store.task(
                str(number),
                (_CHOSEN, _REJECTED)[number % 2],
                runs=[(_CHOSEN, 1.0), (_REJECTED, 0.0)],
                session=f"session {number}",
            )


def _export(folder: Path, name: str) -> None:
    overlay = folder / f"{name}-training.yaml"
    overlay.write_text(yaml.safe_dump(_TRAINING[name]))
    algorithm = {"taught": "sft", "preferred": "dpo"}[name]
    data: Mapping[str, Any] = {
        "dataset": {"name": name, "format": "trinity", **_DATA[name]},
        "train": {
            "engine": "trinity",
            "trainer": str(ROOT / "trainer.yaml"),
            "overlays": [*map(str, OVERLAYS), str(ROOT / "overlays" / f"{algorithm}.yaml"), str(overlay)],
        },
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(data))
    command = [sys.executable, "-m", "slipstream", "dataset", "export", "--data", str(path), "--config", "store.yaml"]
    subprocess.run(command, check=True, cwd=folder)


def _explorer() -> Child:
    return trinity("explorer", (), ready_url=f"http://127.0.0.1:{_EXPLORER}/health")


if __name__ == "__main__":
    sys.exit(main())
