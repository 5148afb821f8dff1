"""A second task after a first one: what the first one loses, with and without replay of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from data_training import distil, functions
from data_training.given import Figures, Given, spread, told
from data_training.rig import HELD_OUT, Rig

SHARES = (0.0, 0.05, 0.3)
_CASES, _EPOCHS = 96, 2


async def run(given: Given, seed: int) -> dict[str, Any]:
    """Train the version of `distil` (which runs first if it did not yet) on function calls, with shares of its rows."""
    first = given.known("distil", seed)
    if first is None:
        first = {"seed": seed, **await distil.run(given, seed)}
        given.keep("distil", seed, first)
    assert given.teacher is not None
    held_out = functions.held_out_cases(given.output)
    figures: dict[str, Any] = {"first": first["after"]}
    for share in SHARES:
        rig = Rig(given.folder("replay", seed) / str(share), given.base, given.teacher, seed)
        rig.take_datasets(given.folder("distil", seed), job=True)
        if share == SHARES[0]:
            async with rig.serving() as url:
                figures["before"] = await functions.measure(url, rig.model, held_out)
        chats = rig.run_dir / "functions.jsonl"
        functions.write_chats(chats, functions.training_cases(given.output, seed, _CASES))
        await rig.imported(chats, label="functions")
        replayed = {"replay": {"datasets": ["distil"], "ratio": share}} if share else {}
        data = rig.written("functions.yaml", replayed, epochs=_EPOCHS)
        rig.export(data)
        trained = rig.train(data)
        async with rig.serving() as url:
            figures[str(share)] = {
                "first": (await rig.answered(url)).reward,
                "trained": trained,
                **await functions.measure(url, rig.model, held_out),
            }
    return figures


def part(found: Sequence[Figures]) -> list[str]:
    """The page's part."""
    before = found[0]["before"]
    lines = [
        f"Replay: the version of the distillation above is trained on a second task, {_CASES} function calls of the "
        f"Berkeley Function Calling Leaderboard, {_EPOCHS} times each, with shares of rows of the first task.",
        "",
        "| share of replay | first task, " + ", ".join(f"seed {each['seed']}" for each in found) + " | mean "
        "| calls that can be read | right function | arguments | training |",
        "|---|---|---|---|---|---|---|",
        f"| before | {', '.join(format(each['first'], '.2f') for each in found)} "
        f"| {spread(each['first'] for each in found)} | {before['called']:.2f} | {before['tool']:.2f} "
        f"| {before['arguments']:.2f} | |",
    ]
    for share in SHARES:
        each_share = [each[str(share)] for each in found]
        values = {name: spread(each[name] for each in each_share) for name in ("first", "called", "tool", "arguments")}
        lines.append(
            f"| {share:g} | {', '.join(format(each['first'], '.2f') for each in each_share)} | {values['first']} "
            f"| {values['called']} | {values['tool']} | {values['arguments']} "
            f"| {spread((each['trained'] for each in each_share), '.0f')} s |"
        )
    return [
        *lines,
        "",
        told(
            "replay --teacher MODEL",
            f"The first task's rewards are means over {HELD_OUT} held-out tasks; function calls are means over 64 "
            "held-out cases, of which no function is to be called in training.",
        ),
    ]
