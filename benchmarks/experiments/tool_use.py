"""Tool use: how much a small model learns of choosing a function and giving it the right arguments.

    PYTHONPATH=benchmarks .venv/bin/python -m experiments.tool_use --seed 1

A seed is the order of the training cases, and the sampling. Each takes about ten minutes on two cores; then the page's
part is written from all seeds that were run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from experiments import report
from experiments.arithmetic import rows
from experiments.tool_cases import Case, cases, fetch, split
from experiments.tool_scoring import Call, score
from slipstream import model as models
from slipstream_client.tuner import (
    AlgorithmConfig,
    DatasetConfig,
    JudgeOutput,
    TunerModelConfig,
    WorkflowOutput,
    tune,
)

NAME = "tool-use"
MEASURES = (
    report.Measure("tool", "tool accuracy"),
    report.Measure("arguments", "argument accuracy"),
    report.Measure("recall", "recall"),
    report.Measure("reward", "reward"),
)
_CASES, _RUNS = 6, 8  # of a training step
_LEARNING_RATE = 4e-5  # as the demo's
_TEMPERATURE = 0.5  # at 1.0 a model of this size writes no call to begin with
_MAX_TOKENS = 80

# One example of a call, and its function among those offered: without it the model calls functions that are not there.
_EXAMPLE_TOOL = {
    "type": "function",
    "function": {
        "name": "restaurant_book",
        "description": "Book a table.",
        "parameters": {
            "type": "object",
            "properties": {"restaurant": {"type": "string"}, "guests": {"type": "integer"}},
        },
    },
}
_EXAMPLE_CALL = {"name": "restaurant_book", "arguments": {"restaurant": "Luigi", "guests": 4}}
_BEGINNING = [
    {"role": "system", "content": "Answer every question with one call of a function from the list."},
    {"role": "user", "content": "Book a table for 4 at Luigi."},
    {"role": "assistant", "content": f"<tool_call>\n{json.dumps(_EXAMPLE_CALL)}\n</tool_call>"},
]


async def choose(task: dict[str, Any], model: Any) -> WorkflowOutput:
    """One request; the response is the calls of its answer."""
    completion = await model.async_client.chat.completions.create(
        model=model.model_name,
        messages=[*_BEGINNING, {"role": "user", "content": task["question"]}],
        tools=[*json.loads(task["tools"]), _EXAMPLE_TOOL],
        max_tokens=_MAX_TOKENS,
    )
    calls = [each.function for each in completion.choices[0].message.tool_calls or []]
    return WorkflowOutput(response=[(call.name, json.loads(call.arguments)) for call in calls])


def judge(task: dict[str, Any], response: list[Call]) -> JudgeOutput:
    scored = score(response, task["function"], json.loads(task["expected"]))
    return JudgeOutput(reward=scored.reward, metrics=asdict(scored))


def row(case: Case) -> dict[str, Any]:
    """A line of the dataset. What differs in form from case to case is JSON: a table has one type for a column."""
    return {
        "question": case.question,
        "function": case.function,
        "tools": json.dumps(case.tools),
        "expected": json.dumps(case.expected),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--held-out", type=int, default=64, help="cases that are measured on")
    parser.add_argument("--model", type=Path, default=report.OUTPUT / "model", help="where it is, or is to be put")
    arguments = parser.parse_args()
    model = models.fetch("smollm2", arguments.model)
    training, held_out = split(cases(fetch(report.OUTPUT / NAME)), arguments.held_out)
    report.keep(NAME, run(arguments.seed, arguments.steps, training, held_out, model))
    seeds = report.kept(NAME)
    drawn = report.chart(NAME, seeds, MEASURES, "Tool use")
    report.write_part(NAME, part(seeds, drawn))


def run(seed: int, steps: int, training: Iterable[Case], held_out: Sequence[Case], model: Path) -> report.Seed:
    folder = report.OUTPUT / NAME / f"seed-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    rows(folder / "cases" / "train.jsonl", map(row, training))
    rows(folder / "cases" / "test.jsonl", map(row, held_out))
    os.chdir(folder)  # checkpoints are written below
    began = time.monotonic()
    result = tune(
        workflow_func=choose,
        judge_func=judge,
        train_dataset=DatasetConfig(path="cases", split="train", total_steps=steps),
        eval_dataset=DatasetConfig(path="cases", split="test"),
        model=TunerModelConfig(
            model_path=str(model), max_model_len=768, max_tokens=_MAX_TOKENS, temperature=_TEMPERATURE
        ),
        algorithm=AlgorithmConfig(
            group_size=_RUNS, batch_size=_CASES, learning_rate=_LEARNING_RATE, eval_interval_steps=3
        ),
        project_name=NAME,
        experiment_name=f"seed-{seed}",
        concurrency=64,
        seed=seed,
    )
    versions = {each["version"]: {"reward": each["reward"], **each["metrics"]} for each in result.evaluations}
    counts = {
        "steps": len(result.steps),
        "runs": sum(each["runs"] for each in result.steps),
        "dropped": sum(each["dropped"] for each in result.steps),
        "held_out": len(held_out),
    }
    return report.Seed(seed, versions, time.monotonic() - began, counts)


def part(seeds: Sequence[report.Seed], drawn: str) -> list[str]:
    return [drawn, platform.machine()]


if __name__ == "__main__":
    main()
