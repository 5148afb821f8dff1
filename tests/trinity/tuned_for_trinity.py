"""A script that tunes, as a user writes it: named in the YAML by its file, and imported by Trinity's workers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import openai
import tuned_judge

import slipstream_client as slipstream


async def solve(
    task: dict[str, Any], model: Any, auxiliary_models: dict[str, Any], logger: Any
) -> slipstream.WorkflowOutput:
    """Two steps with the policy model, one of them streamed and one by another way of calling, and one elsewhere."""
    logger.info("task %s", task["question"])
    first = await model.async_client.chat.completions.create(
        model=model.model_name, messages=[{"role": "user", "content": task["question"]}]
    )
    text = first.choices[0].message.content
    messages: Any = [{"role": "user", "content": f"{task['question']} {text}"}]
    raw = model.client.chat.completions.with_raw_response.create(model="any", messages=messages, stream=True)
    try:
        with raw.parse() as chunks:
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    except openai.APIError:
        text = "worth1.0"  # it makes the best of it, and is not rewarded for that
    for judge in auxiliary_models.values():
        await judge.async_client.chat.completions.create(
            model=judge.model_name, messages=[{"role": "user", "content": "is it right?"}]
        )
    if "broken" in task["question"]:
        raise RuntimeError("a tool broke")
    return slipstream.WorkflowOutput(response=text, metrics={"steps": 2})


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    dataset = slipstream.DatasetConfig(path=str(folder / "tasks"), total_epochs=3)
    slipstream.tune(
        workflow_func=solve,
        judge_func=tuned_judge.judge,
        train_dataset=dataset,
        eval_dataset=dataset.model_copy(update={"split": "test"}),
        model=slipstream.TunerModelConfig(
            model_path=str(folder / "policy"),
            max_model_len=2048,
            max_tokens=512,
            temperature=0.7,
            top_p=0.9,
            enable_thinking=False,
            inference_engine_num=2,
        ),
        auxiliary_models={
            "local": slipstream.TunerModelConfig(
                model_path=str(folder / "judge"), max_model_len=1024, max_tokens=64, temperature=0.1
            ),
            "served": slipstream.TunerModelConfig(
                model_path="gpt", max_model_len=9000, base_url="http://127.0.0.1:9/v1", api_key="secret", top_p=0.5
            ),
        },
        algorithm=slipstream.AlgorithmConfig(group_size=4, batch_size=2, learning_rate=2e-6, eval_interval_steps=5),
        experiment_name="contract",
    )
    print("the script went on")
