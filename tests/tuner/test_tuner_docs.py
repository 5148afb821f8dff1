"""docs/tuner.md: its examples, as they stand there, and AgentScope's agent on the model object."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tuned import LearningExplorer, dataset, tuned

from slipstream_client import JudgeOutput

TASKS = [{"question": "What is 2 + 2?", "answer": "4"}, {"question": "What is 4 + 4?", "answer": "says"}]


def example(page: Path, number: int) -> dict[str, Any]:
    """What a Python block of the page defines."""
    block = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)[number]
    defined: dict[str, Any] = {"__name__": "example"}
    exec("from slipstream_client.tuner import TunerModel, WorkflowOutput\n" + block, defined)
    return defined


async def test_agentscope_s_agent_is_tuned(folder: Path, pytestconfig: pytest.Config) -> None:
    main = example(pytestconfig.rootpath / "docs" / "tuner.md", 1)
    explorer = LearningExplorer()
    data = dataset(folder / "my_dataset", TASKS)
    result = await tuned(explorer, main["workflow"], judge_func=main["judge"], train_dataset=data)
    assert (result.steps[0]["runs"], result.steps[0]["dropped"]) == (4, 0)
    asked = {chat["messages"][1]["content"][0]["text"] for chat in explorer.chats}
    assert asked == {task["question"] for task in TASKS}
    assert [each["reward"] for each in explorer.feedbacks][2:] == [1.0, 1.0]
    assert all(len(each["msg_ids"]) == 1 for each in explorer.feedbacks)


async def test_the_openai_sdk_alone_is_enough(folder: Path, pytestconfig: pytest.Config) -> None:
    main = example(pytestconfig.rootpath / "docs" / "tuner.md", 2)
    explorer = LearningExplorer()

    def judge(task: Any, response: Any) -> JudgeOutput:
        return JudgeOutput(reward=float(task["answer"] in response))

    data = dataset(folder / "my_dataset", TASKS[1:])
    result = await tuned(explorer, main["workflow"], judge_func=judge, train_dataset=data)
    assert result.steps[0]["reward"] == 1.0
