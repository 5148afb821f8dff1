"""`slipstream tune SCRIPT --to-trinity FILE`, and what Trinity's own code makes of the file."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from real_trinity import Installation
from scripted_engine import ScriptedEngine
from serving import serving

HERE = Path(__file__).parent
CLIENT = HERE.parents[1] / "client"
TASKS = {"train": ["two and two", "[cut] in the middle", "broken"], "test": ["three and three"]}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "tasks").mkdir()
    for split, questions in TASKS.items():
        rows = [json.dumps({"question": question}) for question in questions * (1 if split == "test" else 4)]
        (tmp_path / "tasks" / f"{split}.jsonl").write_text("\n".join(rows))
    for model in ("policy", "judge"):
        (tmp_path / model).mkdir()
        (tmp_path / model / "config.json").write_text('{"model_type": "llama", "max_position_embeddings": 2048}')
    return tmp_path


async def output(*command: str | Path, cwd: Path) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, cwd=cwd, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    stdout, stderr = await asyncio.wait_for(process.communicate(), 300)
    assert process.returncode == 0, stderr.decode()
    return stdout.decode()


async def written(folder: Path) -> Path:
    """The YAML, with the GPUs that Trinity would find on its cluster."""
    slipstream = Path(sys.executable).with_name("slipstream")
    said = await output(
        slipstream, "tune", HERE / "tuned_for_trinity.py", "--to-trinity", "trinity.yaml", str(folder), cwd=folder
    )
    assert "trinity run --config trinity.yaml" in said
    assert "the script went on" not in said
    path = folder / "trinity.yaml"
    assert "secret" not in path.read_text()
    tree = yaml.safe_load(path.read_text())
    cluster = folder / "on-a-cluster.yaml"
    cluster.write_text(yaml.safe_dump(tree | {"cluster": {"node_num": 1, "gpu_per_node": 7}}))
    return cluster


async def worked(
    installation: Installation, folder: Path, policy: ScriptedEngine, judge: ScriptedEngine, served: ScriptedEngine
) -> dict[str, Any]:
    """What a worker makes of it. A run's second answer is worth 1.0, 0.0, 1.0 and so on."""
    path = await written(folder)
    async with (
        serving(policy.app()) as policy_url,
        serving(judge.app()) as judge_url,
        serving(served.app()) as elsewhere,
    ):
        path.write_text(path.read_text().replace("http://127.0.0.1:9/v1", f"{elsewhere}/v1"))
        answer: dict[str, Any]
        answer, said = await asyncio.to_thread(
            installation.run, "run_tuned", path, policy_url, judge_url,
            folder=folder, path=[CLIENT], environment={"SERVED_API_KEY": "secret"},
        )  # fmt: skip
    assert "task two and two" in said  # what the workflow logs, in Trinity's log
    return answer


async def test_trinity_accepts_the_file_and_runs_the_workflow_in_it(installation: Installation, folder: Path) -> None:
    policy = ScriptedEngine(worth=(0.5, 1.0, 0.5, 0.0), model=str(folder / "policy"))
    judge, served = ScriptedEngine(model=str(folder / "judge")), ScriptedEngine(model="gpt")
    answer = await worked(installation, folder, policy, judge, served)

    assert answer["mode"] == "both"
    assert answer["job"] == str(folder / "checkpoints" / "AgentScope" / "contract")
    assert answer["monitor"] == str(folder / "checkpoints" / "AgentScope" / "contract" / "monitor")
    assert answer["algorithm"] == ["multi_step_grpo", "step_wise_grpo", 2e-6]
    assert answer["batch"] == [2, 4, 8]
    assert (answer["epochs"], answer["eval_interval"], answer["sync_style"]) == (3, 5, "explorer_driven")
    # What AgentScope's own tuner loses: the engine, the tasks and the trainer all have the sampling that was asked for.
    assert answer["rollout"] == {
        "temperature": 0.7, "top_p": 0.9, "enable_thinking": False, "max_response_tokens": 512
    }  # fmt: skip
    assert answer["auxiliary"] == {
        "temperature": 0.1, "top_p": 1.0, "enable_thinking": None, "max_response_tokens": 64
    }  # fmt: skip
    assert (answer["tasks"]["temperature"], answer["tasks"]["top_p"], answer["tasks"]["max_tokens"]) == (0.7, 0.9, 512)
    assert answer["trainer_temperature"] == 0.7

    # A run: two calls with the policy, each an experience, and one reward for both.
    good, cut, broken = answer["trained"][:3]
    assert good["runs"] == [2, 2], good["message"]
    steps = [(each["run"], each["step"], each["reward"], each["response"]) for each in good["experiences"]]
    assert steps == [
        (0, 0, 1.0, "worth 0.5"), (0, 1, 1.0, "worth1.0"), (1, 0, 0.0, "worth 0.5"), (1, 1, 0.0, "worth0.0")
    ]  # fmt: skip
    assert {each["tokens"] for each in good["experiences"]} == {2}
    assert {tuple(each["logprobs"]) for each in good["experiences"]} == {(-0.5, -0.5)}
    assert [each["metrics"] for each in good["experiences"][:2]] == [{}, {"reward": 1.0, "steps": 2, "length": 8}]
    # One whose answer was cut off, or whose workflow raised, is dropped whole.
    for failed, why in ((cut, "call 2 of 2"), (broken, "a tool broke")):
        assert (failed["runs"], failed["experiences"]) == ([0, 2], [])
        assert why in failed["message"]
    # An evaluation's reward can be seen.
    assert answer["evaluated"][0]["metrics"][0]["reward"] in (0.0, 1.0)

    thinking = {"chat_template_kwargs": {"enable_thinking": False}}
    sampling = {"temperature": 0.7, "top_p": 0.9, "max_tokens": 512, **thinking, "return_token_ids": True}
    assert all(sampling.items() <= chat.items() and chat["logprobs"] for chat in policy.chats)
    assert {(chat["temperature"], chat["max_tokens"]) for chat in judge.chats} == {(0.1, 64)}
    assert {(chat["top_p"], "temperature" in chat) for chat in served.chats} == {(0.5, False)}
    assert {headers["authorization"] for headers in served.headers} == {"Bearer secret"}
