from __future__ import annotations

from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from transformers import TrainerControl, TrainerState, TrainingArguments


def run(tmp_path: Path, chosen: list[float]) -> tuple[str | None, dict[str, float]]:
    """The warning and the summary after steps in which the chosen answers had these log-ratios."""
    from slipstream.embedded.dataset_metrics import StepMetrics
    from slipstream.embedded.monitor.board import Board

    metrics = StepMetrics(lambda step: Board(tmp_path, step), beta=0.1)
    arguments = TrainingArguments(str(tmp_path), use_cpu=True)
    state, control = TrainerState(max_steps=len(chosen)), TrainerControl()
    metrics.on_train_begin(arguments, state, control)
    for step, ratio in enumerate(chosen, 1):
        state.global_step = step
        logs = {"loss": 0.5, "rewards/chosen": 0.1 * ratio, "rewards/rejected": -1.0, "logps/chosen": -20.0 + ratio}
        metrics.on_log(arguments, state, control, logs)
    metrics.close()
    return metrics.warning, metrics.summary()


def test_a_collapse_of_the_chosen_answers_is_seen_and_warned_of(tmp_path: Path) -> None:
    warning, summary = run(tmp_path, [-0.5 * step for step in range(20)])

    assert warning is not None
    assert "the chosen answers have become unlikely: by step" in warning
    assert summary["chosen_log_ratio"] == pytest.approx(-7.25)
    assert summary["rejected_log_ratio"] == pytest.approx(-10)
    board = EventAccumulator(str(tmp_path))
    board.Reload()
    assert [event.value for event in board.Scalars("train/chosen_logprob")] == [-20 - 0.5 * step for step in range(20)]


def test_chosen_answers_that_stay_are_no_collapse(tmp_path: Path) -> None:
    for chosen in ([0.5] * 20, [-9.0, *[0.0] * 19], [-2.0] * 20, [-1.0] * 3):
        assert run(tmp_path, chosen)[0] is None
