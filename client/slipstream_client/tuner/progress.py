"""Progress of a tuning, in its folder, so that it goes on there after it was stopped or killed.

    open ──deliver──▶ sending ──settle──▶ open, one step further

What is to be told to the Explorer is written down before the first of it is told. After a crash it is told again as a
whole, which has no effect twice (the first reward of an answer wins), then committed. A step that was not yet written
down is run again, with new runs.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from slipstream_client.tuner.errors import TunerError
from slipstream_client.tuner.explorer import Feedback

_FILE = "tuner.json"
_LOCK = ".tuner.lock"
_LOCK_WITHIN = 30.0  # seconds: what a killed tuning leaves behind ends itself in 10


class Progress:
    """One experiment's, held by one process at a time.

    Args:
        folder: of the experiment.
        configuration: what must stay as it is from one call of `tune` to the next; JSON values.

    Raises:
        TunerError: another process tunes this experiment, or it was begun with another configuration; the fields are
            named. Or the folder cannot be written to.
    """

    def __init__(self, folder: Path, configuration: Mapping[str, Any]) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(folder / _LOCK)
        except OSError as error:
            raise TunerError(
                f"the experiment's folder cannot be written to, {error}: start where `checkpoints` can be made, or "
                "name another checkpoint_root_dir in the file of config_path"
            ) from error
        self._path = folder / _FILE
        self._said: dict[str, Any] = {
            "configuration": configuration, "steps": [], "evaluations": [], "sending": None
        }  # fmt: skip
        if self._path.exists():
            before = json.loads(self._path.read_text(encoding="utf-8"))
            if changed := _changed(before["configuration"], json.loads(json.dumps(configuration))):
                self.close()
                raise TunerError(
                    f"{folder} was begun with another configuration ({'; '.join(changed)}): give it as it was, or tune "
                    "under another experiment_name"
                )
            self._said = before

    @property
    def lock(self) -> int:
        """The lock's file descriptor: a child that inherits it holds the experiment until it has ended as well."""
        return self._lock

    @property
    def step(self) -> int:
        """Steps that have ended."""
        return len(self.steps)

    @property
    def steps(self) -> list[dict[str, Any]]:
        """Return the record of each step, in order."""
        steps: list[dict[str, Any]] = self._said["steps"]
        return steps

    @property
    def evaluations(self) -> list[dict[str, Any]]:
        """Return the record of each evaluation, in order; `step` says after which."""
        evaluations: list[dict[str, Any]] = self._said["evaluations"]
        return evaluations

    @property
    def sending(self) -> tuple[list[Feedback], dict[str, Any]] | None:
        """Return the feedback that is to be sent to the Explorer, and the step that it ends; None if nothing is on its
        way."""
        sending = self._said["sending"]
        if sending is None:
            return None
        return [Feedback(**{**each, "msg_ids": tuple(each["msg_ids"])}) for each in sending["feedback"]], sending[
            "step"
        ]

    def deliver(self, feedback: Sequence[Feedback], step: Mapping[str, Any]) -> None:
        """Writes down what is about to be told."""
        self._write(sending={"feedback": [asdict(each) for each in feedback], "step": step})

    def take_back(self) -> None:
        """Forget the feedback that was refused: the step is to be run again."""
        self._write(sending=None)

    def settle(self, step: Mapping[str, Any]) -> None:
        """The step is committed, and what came of it is served."""
        self._write(steps=[*self.steps, step], sending=None)

    def evaluated(self, evaluation: Mapping[str, Any]) -> None:
        self._write(evaluations=[*self.evaluations, evaluation])

    def close(self) -> None:
        os.close(self._lock)

    def _write(self, **changed: Any) -> None:
        """As one atomic, durable act: after a crash there is what was before, or this."""
        self._said = {**self._said, **changed}
        partial = self._path.with_suffix(".partial")
        with partial.open("w", encoding="utf-8") as file:
            json.dump(self._said, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self._path)


def _locked(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    deadline = time.monotonic() + _LOCK_WITHIN
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(descriptor)
                raise TunerError(f"experiment_name: {path.parent} is being tuned by another process") from None
            time.sleep(0.1)
        else:
            return descriptor


def _changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    return [
        f"{name}: {before.get(name)!r} before, {now.get(name)!r} now"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    ]
