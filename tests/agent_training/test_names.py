"""The names of the agent-training articles, and the classes that stand for themselves."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slipstream import agent_training
from slipstream.agent_training.aliases import dpo_alias, evaluate_alias, sft_alias
from slipstream.agent_training.configs import RLTrainingConfig
from slipstream.agent_training.dialog_data import (
    AgentDialogProcessor,
    AgentSFTFormatter,
    CoresetSelector,
    OnlineContinualLearner,
)
from slipstream.agent_training.evaluators import AgentTrainingEvaluator, BenchmarkSample, ToolUseEvaluator
from slipstream.agent_training.games import GameTrainer, MultiAgentGame, evaluate_win_rate
from slipstream.agent_training.reward_model import AgentRewardModel
from slipstream.agent_training.trainers import AgentRLTrainer, model_directory
from slipstream.agent_training.usage import AgentTrainingUsage
from slipstream.datasets.config import Dataset
from slipstream.datasets.dialogs import Dialog, Turn
from slipstream.datasets.folder import new_folder
from slipstream.datasets.row import Kind, Provenance, Row, Source
from slipstream.errors import ConfigError

ROOT = Path(__file__).parents[2]
TURNS = (
    Turn("user", "Rain in Rome?"),
    Turn("assistant", "I look it up."),
    Turn("tool", tool_id="weather", arguments={"city": "Rome"}, result="rain"),
    Turn("assistant", "Yes."),
)
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
NEEDS = {"ToolRetriever": "torch"}


def test_each_name_is_there_and_in_the_docs() -> None:
    page = (ROOT / "docs" / "agent-training.md").read_text()
    missing = [name for name in agent_training.__all__ if f"`{name}" not in page]
    assert not missing
    assert all(getattr(agent_training, name) is not None for name in agent_training.__all__ if name not in NEEDS)
    assert dir(agent_training) == sorted(agent_training.__all__)
    with pytest.raises(AttributeError, match="no attribute 'AgentSFT'"):
        _ = agent_training.AgentSFT


def test_a_dialog_is_two_texts_and_a_chat() -> None:
    tools = {"weather": {"type": "function", "function": {"name": "weather", "description": "The weather"}}}
    formatter = AgentSFTFormatter(tools)
    dialog = Dialog(TURNS, target_tools=("weather", "unknown"), metadata={"from": "test"})
    found = formatter.format_dialog(dialog)

    assert "- weather: The weather" in found["input"]
    assert "Rain in Rome?" in found["input"]
    assert found["output"] == (
        '<think>I look it up.</think>\n<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>\n'
        "<tool_result>rain</tool_result>\nYes."
    )
    assert (found["task_type"], found["metadata"]) == ("tool_selection", {"from": "test"})
    chat = formatter.as_chat(dialog)
    assert [message["role"] for message in chat["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert chat["tools"] == [tools["weather"]]


def processed(count: int) -> Any:
    dialogs = [
        Dialog(
            (Turn("user", f"q {number}"), Turn("assistant", f"answer {number}")),
            metadata={"loss": float(number), "reward": float(number % 2)},
            dialog_id=str(number),
        )
        for number in range(count)
    ]
    return AgentDialogProcessor().process_all(dialogs)


def test_dialogs_are_selected_by_their_losses_but_wrong_ones_are_not() -> None:
    pytest.importorskip("numpy")
    found = CoresetSelector("loss_topk", 3).select(processed(10), embed=_one_direction)

    assert [dialog.loss for dialog in found] == [5.0, 7.0, 9.0]
    assert len(CoresetSelector("random", 3).select(processed(10))) == 3
    unmeasured = AgentDialogProcessor().process_all([Dialog(TURNS), Dialog(TURNS)])
    with pytest.raises(ValueError, match="found none of dialog 0: measure them"):
        CoresetSelector("hybrid", 1).select(unmeasured, embed=_one_direction)


def _one_direction(texts: Sequence[str]) -> Any:
    import numpy as np

    return np.ones((len(texts), 2), dtype=np.float32)


def test_what_was_new_is_replayed_later() -> None:
    learner = OnlineContinualLearner(buffer_size=100, replay_ratio=0.5)

    assert sorted(learner.mix([1, 2, 3])) == [1, 2, 3]
    assert sorted(learner.mix([4, 5, 6])) == [1, 2, 3, 4, 5, 6]
    with pytest.raises(ValueError, match=r"replay_ratio: .* found 1"):
        OnlineContinualLearner(replay_ratio=1)


class Benchmark:
    """Three cases, of which the last has no right answer to contain."""

    def iter_samples(self, split: str) -> Iterator[BenchmarkSample]:
        assert split == "test"
        yield BenchmarkSample("Rain in Rome?", target_tools=["weather"], reference="yes")
        yield BenchmarkSample("Book it", target_tools=[{"book": {"id": [7]}}])
        yield BenchmarkSample("Hello")


class Model:
    """Calls the weather whatever it is asked."""

    def generate(self, instruction: str) -> str:
        return (
            '<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call><tool_result>r</tool_result>Yes.'
        )


def test_a_model_is_evaluated_by_the_five_metrics() -> None:
    found = AgentTrainingEvaluator(Benchmark()).evaluate(Model())

    assert list(found) == [
        "tool_selection_accuracy", "plan_success_rate", "step_efficiency", "timing_precision", "end_to_end_success",
    ]  # fmt: skip
    assert found["tool_selection_accuracy"]["mean"] == pytest.approx(1 / 3, abs=1e-5)
    assert found["plan_success_rate"] == {
        "mean": 0.5, "std": pytest.approx(0.5**0.5, abs=1e-5), "count": 2, "standard_error": pytest.approx(0.5),
    }  # fmt: skip
    assert found["end_to_end_success"]["count"] == 3
    with pytest.raises(ValueError, match="found 'bleu'"):
        AgentTrainingEvaluator(Benchmark()).evaluate(Model(), metrics=["bleu"])


def test_tool_use_is_evaluated_for_an_agent() -> None:
    cases = [
        {"input": "Rome", "tool_calls": [{"name": "weather", "arguments": {"city": "Rome"}}]},
        {"input": "Oslo", "tool_calls": [{"name": "weather", "arguments": {"city": "Oslo"}}]},
    ]
    found = ToolUseEvaluator().evaluate(lambda city: Model().generate(city), cases)
    assert found == {"tool_accuracy": 1.0, "arg_accuracy": 0.5, "recall": 0.5}
    assert ToolUseEvaluator().evaluate(str, []) == {"tool_accuracy": None, "arg_accuracy": None, "recall": None}


def test_pairs_are_the_best_and_the_worst_answer(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    answers = {"six times seven": ["41", "it is 42", "40", "42, I think"], "tie": ["1", "2"], "unknown": ["a", "b"]}
    trainer = AgentRLTrainer(
        RLTrainingConfig(),
        None,
        str(tmp_path),
        AgentRewardModel(),
        sample=lambda prompt, count: answers[prompt][:count],
    )
    pairs = trainer.generate_preference_pairs(
        ["six times seven", "tie", "unknown"], 4, [{"answer": "42"}, {"answer": "3"}, {}]
    )

    (pair,) = pairs
    assert (pair["prompt"], pair["chosen_score"] > pair["rejected_score"]) == ("six times seven", True)
    assert "42" in pair["chosen"]
    assert "42" not in pair["rejected"]
    with pytest.raises(ValueError, match="num_samples: expected 2 or more"):
        trainer.generate_preference_pairs(["tie"], 1)


def test_the_model_of_a_stage_is_found(tmp_path: Path) -> None:
    job = tmp_path / "out" / "project" / "policy"
    model = job / "global_step_3" / "actor" / "huggingface"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")
    (job / "latest_state_dict_iteration.txt").write_text("3")

    assert model_directory(tmp_path / "out") == model_directory(model) == model
    with pytest.raises(ConfigError, match="expected a model directory, or checkpoints of one job; found none"):
        model_directory(tmp_path / "other")
    other = tmp_path / "out" / "project" / "second"
    other.mkdir()
    (other / "latest_state_dict_iteration.txt").write_text("1")
    with pytest.raises(ConfigError, match=r"of one job; found .*policy, .*second"):
        model_directory(tmp_path / "out")


def test_the_articles_commands(tmp_path: Path) -> None:
    sft = sft_alias("agent_sft:train", tmp_path / "out", "models/qwen", 2, '{"planning": 0.5, "tool_selection": 0.5}')
    assert sft.data is not None
    assert sft.data.dataset.task_weights == {"multi_step_planning": 1, "tool_selection": 1}
    assert sft.overlay["buffer"]["total_epochs"] == 2
    assert sft.overlay["model"]["model_path"] == "models/qwen"
    (tmp_path / "config.json").write_text("{}")
    dpo = dpo_alias("pairs:train", tmp_path / "out", tmp_path, beta=0.2, num_samples=8)
    assert dpo.overlay["algorithm"]["policy_loss_fn_args"]["beta"] == 0.2
    assert "set it to 8" in dpo.notes[-1]
    assert evaluate_alias("policy", "agent_benchmark:test", "tool_accuracy,efficiency") == [
        "evaluate", "--model", "policy", "--held-out", "datasets/agent_benchmark",
        "--metrics", "tool_accuracy,step_efficiency",
    ]  # fmt: skip
    assert evaluate_alias("version:3", "bfcl:multiple")[3:] == ["--benchmark", "bfcl:multiple"]
    with pytest.raises(ConfigError, match=r"--model: expected policy, .* found the folder"):
        evaluate_alias(str(tmp_path), "agent_benchmark:test")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"data": "a:dev"}, "--data: expected NAME:train"),
        ({"data": "a", "task_weights": "{"}, "--task-weights: expected a JSON object"),
        ({"data": "a", "task_weights": '{"planning": -1}'}, "--task-weights: .* found {"),
        ({"data": "a", "epochs": 0}, "num_epochs"),
    ],
)
def test_options_that_cannot_be_used_are_named(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        sft_alias(output=tmp_path, **options)


def test_data_by_what_it_is_for(tmp_path: Path) -> None:
    origin = Provenance(
        task="t", session="s", tenant="default", source=Source.POLICY, models=("version:1",), rewards=(1.0,)
    )
    prompt = [{"role": "user", "content": "Rain?"}]
    calls = [{"id": "call_0", "type": "function", "function": {"name": "weather", "arguments": "{}"}}]
    with new_folder(tmp_path, dataset("agent_sft", sources=[{"policy": {}}])) as folder:
        folder.add("train", Row(Kind.SFT, prompt, {"role": "assistant", "content": "Yes."}, origin))
        called = {"role": "assistant", "content": "", "tool_calls": calls}
        folder.add("held_out", Row(Kind.SFT, prompt, called, origin, tools=[WEATHER]))
        folder.publish({})
    with new_folder(tmp_path, dataset("agent_pairs", kind="preference", pairs={})) as folder:
        better, worse = ({"role": "assistant", "content": text} for text in ("Yes.", "No."))
        folder.add("train", Row(Kind.PREFERENCE, prompt, better, replace(origin, rewards=(1.0, 0.0)), rejected=worse))
        folder.publish({})
    usage = AgentTrainingUsage(tmp_path)

    assert [row["completion"][0]["content"] for row in usage.get_sft_data()] == ["Yes."]
    assert [row["rejected"][0]["content"] for row in usage.get_preference_data()] == ["No."]
    (case,) = usage.iter_samples("test")
    assert (case.instruction, case.target_tools) == ("Rain?", calls)
    with pytest.raises(ValueError, match="split: expected train, dev, test, found 'all'"):
        next(usage.get_sft_data("all"))
    with pytest.raises(ValueError, match="agent_pairs: expected a data set of kind sft, found preference"):
        next(AgentTrainingUsage(tmp_path, {"sft": "agent_pairs"}).get_sft_data())


def dataset(name: str, **fields: Any) -> Dataset:
    return Dataset.model_validate({"name": name, **fields})


class Draw:
    """A game of two players: the wolf wins with an even seed."""

    def __init__(self, seed: int) -> None:
        self.player = "first"
        self.done = False
        self._seed = seed

    def role(self, player: str) -> str:
        return "wolf" if player == "first" else "villager"

    def prompt(self) -> list[dict[str, str]]:
        return [{"role": "user", "content": f"{self.player}, your turn"}]

    def act(self, said: str) -> None:
        self.done, self.player = self.player == "second", "second"

    def score(self, role: str) -> dict[str, float]:
        won = float(self._seed % 2 == 0)
        return {"team_win": won if role == "wolf" else 1 - won, "individual_survive": 1.0}


def test_games_are_played_and_their_winner_counted() -> None:
    agents = {"wolf_1": lambda prompt: "howl", "villager_1": lambda prompt: "hide"}
    game = MultiAgentGame({"wolf": 1, "villager": 1}, agents, Draw)
    first = game.run_episode()
    (trajectory,) = GameTrainer(["wolf_1"], "wolf").trajectories(first)

    assert [said for _, said in first.turns["wolf_1"]] == ["howl"]
    assert trajectory["turns"][0]["messages"][-1] == {"role": "assistant", "content": "howl"}
    assert trajectory["rewards"]["worth"] == trajectory["total_reward"] == 15
    assert 0 <= trajectory["reward"] <= 1
    json.dumps(trajectory)
    rate = evaluate_win_rate(game, "wolf", episodes=100)
    assert (rate.rate, rate.episodes) == (0.5, 100)
    assert 0.4 < rate.low < 0.5 < rate.high < 0.6
    with pytest.raises(ValueError, match=r"agents: expected 2 named wolf_\.\.\., found 1"):
        MultiAgentGame({"wolf": 2, "villager": 1}, agents, Draw)
