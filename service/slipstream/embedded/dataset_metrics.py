"""Metrics of training on a data set: for the monitor, in the log and in `trained_on.json`."""

from __future__ import annotations

import math
import statistics
import time
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

import structlog
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from slipstream.embedded.monitor.board import Board
from slipstream.embedded.monitor.run import Lineage

log = structlog.get_logger(__name__)

_LAST = 10
"""Steps that a metric of the end is the mean of: one step's batch says little."""

_COLLAPSED = math.log(10)
"""Nats an answer by which the chosen answers may become less likely, before a warning: to a tenth.

DPO only asks that the chosen answer gains on the rejected one, and it may reach that by making both unlikely
(arXiv:2402.13228), which a rising margin does not show.
"""


class StepMetrics(TrainerCallback):
    """Metrics of each step.

    Args:
        opened: opens the board of this run, for what is written from a step on.
        beta: of DPO and KTO, whose implicit rewards are beta times a log-ratio; None for others.
    """

    def __init__(self, opened: Callable[[int], Board], beta: float | None) -> None:
        self.warning: str | None = None
        self._opened = opened
        self._board: Board | None = None
        self._beta = beta
        self._first: dict[str, float] = {}
        self._last: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=_LAST))
        self._began = time.perf_counter()

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        for line in state.log_history:  # of the steps before a kill
            self._note(line)
        self._board = self._opened(state.global_step + 1)
        self._began = time.perf_counter()

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **_: Any,
    ) -> None:
        if not logs or "loss" not in logs:  # the summary at the end
            return
        values = self._note(logs)
        if self._board is not None:
            self._board.log(values, state.global_step)
        log.info(
            "trained",
            step=state.global_step,
            of=state.max_steps,
            **{name: round(values[name], 4) for name in ("loss", "margin", "chosen_log_ratio") if name in values},
            seconds=round(time.perf_counter() - self._began, 1),
        )
        self._warn(state)

    def published(self, lineage: Lineage) -> None:
        """Note the version that was made of the run."""
        if self._board is not None:
            self._board.published(lineage)

    def close(self) -> None:
        """End the board's run."""
        if self._board is not None:
            self._board.close()

    def summary(self) -> dict[str, float]:
        """Return the mean of each metric over the last steps, and the loss of the first one."""
        found = {name: statistics.fmean(values) for name, values in self._last.items()}
        return found | {f"first_{name}": value for name, value in self._first.items() if name == "loss"}

    def _note(self, logs: dict[str, Any]) -> dict[str, float]:
        if "loss" not in logs:
            return {}
        values = self._named(logs)
        for name, value in values.items():
            self._first.setdefault(name, value)
            self._last[name].append(value)
        return values

    def _named(self, logs: dict[str, Any]) -> dict[str, float]:
        """Return TRL's values under our names, with the log-ratios to the reference in nats an answer."""
        values = {
            ours: float(logs[theirs])
            for theirs, ours in _NAMES.items()
            if isinstance(logs.get(theirs), int | float) and math.isfinite(logs[theirs])
        }
        if self._beta:
            for answers in ("chosen", "rejected"):
                if f"rewards/{answers}" in logs:
                    values[f"{answers}_log_ratio"] = float(logs[f"rewards/{answers}"]) / self._beta
        return values

    def _warn(self, state: TrainerState) -> None:
        ratios = self._last.get("chosen_log_ratio")
        if self.warning is not None or not ratios or (len(ratios) < _LAST and state.global_step < state.max_steps):
            return
        ratio = statistics.fmean(ratios)
        if ratio < -_COLLAPSED:
            self.warning = (
                f"the chosen answers have become unlikely: by step {state.global_step} each has {math.exp(ratio):.2g} "
                "of the probability that it had, in the mean; a smaller learning rate, a larger "
                "policy_loss_fn_args.beta, fewer epochs, or supervised training on the chosen answers first"
            )
            log.warning(self.warning)


_NAMES = {
    "loss": "loss",
    "grad_norm": "grad_norm",
    "learning_rate": "learning_rate",
    "entropy": "entropy",
    "mean_token_accuracy": "token_accuracy",
    "logps/chosen": "chosen_logprob",
    "logps/rejected": "rejected_logprob",
    "rewards/margins": "margin",
    "rewards/accuracies": "pair_accuracy",
    "kl": "kl",
}
