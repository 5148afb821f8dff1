"""Checkpoints of a run on a data set, and its end between two steps."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from slipstream.embedded.dataset_run import mark_whole

_SAVE_SECONDS = 300
"""Between two checkpoints, at most: what a kill takes. One is 12 bytes a parameter, and the one before stays."""


class DurableSteps(TrainerCallback):
    """Saves checkpoints, marks those that are whole, and ends training between two steps when it is to stop.

    Args:
        interval: steps between two checkpoints; 0 leaves it to the clock.
    """

    def __init__(self, stop: threading.Event, interval: int) -> None:
        self._stop = stop
        self._interval = interval
        self._saved = time.monotonic()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        due = self._interval and state.global_step % self._interval == 0
        if self._stop.is_set():
            due = control.should_training_stop = True
        if due or time.monotonic() - self._saved > _SAVE_SECONDS:
            control.should_save = True

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        mark_whole(Path(args.output_dir or "") / f"checkpoint-{state.global_step}")
        self._saved = time.monotonic()
