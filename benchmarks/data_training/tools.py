"""Supervised training in function calls: tool and argument accuracy after so many epochs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from data_training import functions
from data_training.given import Figures, Given, spread, told
from data_training.rig import Rig

_CASES, _EPOCHS = 64, 5


async def run(given: Given, seed: int) -> dict[str, Any]:
    """Import right calls, train five epochs twice, and measure what is served before, between and after."""
    rig = Rig(given.folder("tools", seed), given.base, given.base, seed)
    held_out = functions.held_out_cases(given.output)
    figures: dict[str, Any] = {}

    async def measure(epochs: int) -> None:
        async with rig.serving() as url:
            figures[str(epochs)] = await functions.measure(url, rig.model, held_out)

    await measure(0)
    chats = rig.run_dir / "functions.jsonl"
    functions.write_chats(chats, functions.training_cases(given.output, seed, _CASES))
    await rig.imported(chats, label="functions")
    data = rig.written("functions.yaml", {}, epochs=_EPOCHS)
    rig.export(data)
    figures["trained"] = []
    for epochs in (_EPOCHS, 2 * _EPOCHS):
        figures["trained"].append(rig.train(data))
        await measure(epochs)
    return figures


_TITLES = {
    "called": "calls that can be read",
    "tool": "tool accuracy",
    "arguments": "argument accuracy",
    "recall": "recall",
}


def part(found: Sequence[Figures]) -> list[str]:
    """The page's part."""
    return [
        f"Function calls: supervised training of the base model on {_CASES} right calls (`multiple` of bfcl-eval "
        "2026.3.23), imported from a file for OpenAI's fine-tuning. Cases, prompt and measures are those of [tool use "
        "by reinforcement learning](results.md#tool-use), which hardly moved the choice of the function.",
        "",
        f"| on held-out cases, {len(found)} seeds | before | after {_EPOCHS} epochs | after {2 * _EPOCHS} epochs |",
        "|---|---|---|---|",
        *(
            f"| {title} | "
            + " | ".join(spread(each[str(epochs)][name] for each in found) for epochs in (0, _EPOCHS, 2 * _EPOCHS))
            + " |"
            for name, title in _TITLES.items()
        ),
        f"| training | | {spread((each['trained'][0] for each in found), '.0f')} s "
        f"| {spread((sum(each['trained']) for each in found), '.0f')} s |",
        "",
        told(
            "tools",
            "Means over 64 held-out cases, ± the standard deviation over seeds; no function of them is to be called "
            "in training.",
        ),
    ]
