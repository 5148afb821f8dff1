"""What a test of the tuner needs: an Explorer whose commits make versions, a dataset, and the simplest workflow."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from scripted import ScriptedExplorer
from serving import serving
from starlette.requests import Request
from starlette.responses import Response

from slipstream_client import AlgorithmConfig, DatasetConfig, TuneResult, WorkflowOutput, tune


class LearningExplorer(ScriptedExplorer):
    """Each commit is a new version at once.

    Attributes:
        feedbacks: the bodies that it was sent, in their order.
        commits: how many it was asked for.
    """

    def __init__(self, answer: str = "policy says {n}") -> None:
        super().__init__(answer=answer)
        self.feedbacks: list[dict[str, Any]] = []
        self.commits = 0
        self.learns = True
        self.feedback_route = self._told
        self.commit_route = self._learned

    async def _told(self, request: Request) -> Response:
        self.feedbacks.append(await request.json())
        return await self._feedback(request)

    async def _learned(self, request: Request) -> Response:
        self.commits += 1
        response = await self._commit(request)
        self.version += self.learns
        return response

    @property
    def trained(self) -> list[dict[str, dict[int, list[str]]]]:
        """Of each commit, the msg_ids of each run of each group."""
        commits: list[dict[str, dict[int, list[str]]]] = []
        for experiences in self.committed:
            groups: dict[str, dict[int, list[str]]] = {}
            for each in experiences:
                groups.setdefault(each["task_id"], {}).setdefault(each["run_id"], []).append(each["msg_id"])
            commits.append(groups)
        return commits


def ask(model: Any, content: str = "hello", **fields: Any) -> Any:
    """One call of the model by the openai SDK."""
    return model.client.chat.completions.create(
        model=model.model_name, messages=[{"role": "user", "content": content}], **fields
    )


def one_call(task: dict[str, Any], model: Any) -> WorkflowOutput:
    """A workflow whose reward stands in the task."""
    ask(model, str(task["question"]))
    return WorkflowOutput(reward=task.get("reward", 0.5))


def dataset(folder: Path, tasks: Sequence[dict[str, Any]], **fields: Any) -> DatasetConfig:
    """A directory of jsonl with these tasks."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    return DatasetConfig(path=str(folder), **fields)


def questions(count: int) -> list[dict[str, Any]]:
    return [{"question": f"question {number}"} for number in range(count)]


async def tuned(
    explorer: ScriptedExplorer, workflow: Callable[..., Any] = one_call, *, size: int = 2, batch: int = 2, **fields: Any
) -> TuneResult:
    """`tune` against this Explorer, which the test's event loop serves meanwhile."""
    given = {} if "config_path" in fields else {"group_size": size, "batch_size": batch}
    given |= fields.pop("algorithm", {})
    async with serving(explorer.app()) as url:
        arguments = {
            "workflow_func": workflow,
            "explorer_url": url,
            "algorithm": AlgorithmConfig(**given) if given else None,
            "sync_timeout": 5.0,
            "experiment_name": "experiment",
            **fields,
        }
        return await asyncio.to_thread(lambda: tune(**arguments))
