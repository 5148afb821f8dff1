"""SecretMafia: how much a small model learns of being the mafia, against villagers that do not learn.

    PYTHONPATH=benchmarks .venv/bin/python -m experiments.secret_mafia --seed 1

A seed is the games that are trained on, and the sampling. Each takes about half an hour on two cores that are
shared; then the page's part is written from all seeds that were run.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from experiments import report
from experiments.mafia_game import MAFIA, PLAYERS, WEIGHTS, Game
from experiments.training import arguments, in_step, publish, trained
from slipstream.agent_training.games import wilson
from slipstream.local.model import SMOLLM2
from slipstream_client.tuner import AlgorithmConfig, TunerModelConfig, WorkflowOutput

NAME = "secret-mafia"
MEASURES = (
    report.Measure("won", "games won"),
    report.Measure("valid", "legal votes"),
    report.Measure("sensible", "votes for the village"),
    report.Measure("reward", "reward"),
)
_GAMES, _RUNS = 2, 6  # of a training step: so many deals of the roles, each played so often
_LEARNING_RATE = 4e-5  # as the demo's
_TEMPERATURE = 0.5  # at 1.0 a model of this size hardly writes a legal vote
_HELD_OUT = 1_000_000  # the first seed of the games that are measured on, far from those of training
_WORDS = {
    "won": "for the game won",
    "survived": "for the share of the mafia alive",
    "blamed": "for a villager voted out",
    "exposed": "for the share of the mafia voted out",
}
_TRIED = (
    ("prompts without an example of a vote", "15% of votes legal: games end after 5 turns, most players out for votes"),
    ("with an example, and six lines of what was heard", "67% of votes legal, 17 turns, 11 s a game"),
    ("shorter questions, and three lines: the setting", "66% of votes legal, 19 turns, 8 s a game"),
    ("the same, with a script in the mafia's place that votes for a villager", "16 of 16 games won"),
)
"""What was tried on the model as it was before this setting, and what came of it, for the page."""
_VOTE_TOKENS, _SPEECH_TOKENS = 8, 12


async def play(task: dict[str, Any], model: Any, auxiliary_models: dict[str, Any]) -> WorkflowOutput:
    """One game: the model that is tuned plays both of the mafia, the frozen one the village."""
    game = Game(task["seed"])
    while not game.done:
        player = model if game.is_mafia else auxiliary_models["villagers"]
        completion = await player.async_client.chat.completions.create(
            model=player.model_name,
            messages=game.prompt(),
            max_tokens=_VOTE_TOKENS if game.is_vote else _SPEECH_TOKENS,
        )
        game.act(completion.choices[0].message.content or "")
    score = game.score()
    return WorkflowOutput(reward=score.reward, metrics=asdict(score))


def main() -> None:
    given, model = arguments(__doc__, steps=6, held_out=32, what="games", measure_every=6)
    seed = run(given.seed, given.steps, given.held_out, given.measure_every, model)
    publish(NAME, seed, MEASURES, "SecretMafia, the mafia trained", part)


def run(seed: int, steps: int, held_out: int, measure_every: int, model: Path) -> report.Seed:
    config = TunerModelConfig(model_path=str(model), max_model_len=512, max_tokens=16, temperature=_TEMPERATURE)
    return trained(
        NAME,
        seed,
        [{"seed": 1000 * seed + number} for number in range(steps * _GAMES)],
        [{"seed": _HELD_OUT + number} for number in range(held_out)],
        steps,
        workflow_func=play,
        model=config,
        auxiliary_models={"villagers": config},
        algorithm=AlgorithmConfig(
            group_size=_RUNS, batch_size=_GAMES, learning_rate=_LEARNING_RATE, eval_interval_steps=measure_every
        ),
    )


def part(seeds: Sequence[report.Seed], drawn: str) -> list[str]:
    counts = seeds[0].counts
    worth = ", ".join(f"{weight:+g} {_WORDS[part]}" for part, weight in WEIGHTS.items())
    return [
        "## A game: SecretMafia",
        "",
        f"textarena's SecretMafia: {PLAYERS} players, of which {MAFIA} are the mafia and the others the village (a "
        "doctor, a detective, two villagers). The tuned model plays both of the mafia; the village is played by the "
        "model as it was, frozen. One round of discussion a day, and prompts cut to the role, the last three things "
        "heard and the question ([mafia_game.py](../benchmarks/experiments/mafia_game.py)), for so small a model. "
        f"The reward of a game, for all calls of the mafia in it: {worth}, brought into [0, 1]. "
        f"`tune` with multi_step_grpo, {SMOLLM2} on the embedded engine, at temperature "
        f"{_TEMPERATURE:g}. Written by",
        "",
        "```sh",
        *(f"PYTHONPATH=benchmarks .venv/bin/python -m experiments.secret_mafia --seed {seed.seed}" for seed in seeds),
        "```",
        "",
        drawn,
        "",
        *report.before_and_after(seeds, MEASURES),
        "",
        "| games won, with Wilson's 95% interval | " + " | ".join(f"seed {seed.seed}" for seed in seeds) + " |",
        "|---|" + "---|" * len(seeds),
        *(
            f"| version {version} | " + " | ".join(_interval(seed, version) for seed in seeds) + " |"
            for version in sorted({version for seed in seeds for version in seed.versions})
        ),
        "",
        "| step | " + " | ".join(f"games won in training, seed {seed.seed}" for seed in seeds) + " |",
        "|---|" + "---|" * len(seeds),
        *(
            f"| {step} | " + " | ".join(f"{seed.counts[in_step('won', step)]:.2f}" for seed in seeds) + " |"
            for step in range(1, int(counts["steps"]) + 1)
        ),
        "",
        f"- Each seed: {counts['steps']} training steps of {_GAMES} deals, {_RUNS} games each ({counts['runs']} games "
        f"in all, {counts['dropped']} dropped); measured on {counts['held_out']} other deals, the same for all seeds.",
        "- Where everyone votes at random, but legally, the mafia wins 65%; where it never votes for its own besides, "
        "98% (500 games each, no model).",
        f"- Machine: {os.cpu_count()} CPU cores ({platform.machine()}), no GPU, busy with other things too. One seed "
        f"took {report.spread([seed.seconds / 60 for seed in seeds], '.1f')} minutes.",
        "",
        "What moved: nothing that holds over both seeds. In seed 1 more of the mafia's votes became legal, more were "
        "for the village, and more games were won; in seed 2 each of these went the other way. All intervals overlap, "
        "and the two versions 0, which are the same weights in the same deals, differ by as much (0.44 and 0.66): 32 "
        "games tell little. Six steps are six changes of the weights, and the deals of a step differ so much that the "
        "column of training is mostly noise. The script at the end of the table below shows that there is something "
        "to be learned.",
        "",
        "In seed 1 the machine's memory ran out, beside other work, and the Trainer was killed; `tune` was called "
        "again and went on behind the third step. The minutes are those of both calls; they are 16 of CPU time, on "
        "cores with a load of 5 to 39.",
        "",
        "What was tried before, 16 games each:",
        "",
        "| what was tried | what came of it |",
        "|---|---|",
        *(f"| {tried} | {came} |" for tried, came in _TRIED),
        "",
    ]


def _interval(seed: report.Seed, version: int) -> str:
    if version not in seed.versions:
        return ""
    rate, games = seed.versions[version]["won"], seed.counts["held_out"]
    low, high = wilson(rate, games)
    return f"{rate:.2f} ({low:.2f} to {high:.2f})"


if __name__ == "__main__":
    main()
