"""The `math` calculator: mathematical equality with a reference, decided by math-verify in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from typing import Annotated

from pydantic import Field

from slipstream.config.units import PositiveDuration
from slipstream.errors import ScoringError
from slipstream.rewards.calculator import Parameters
from slipstream.rewards.calculators.reference import reference_texts
from slipstream.rewards.registry import calculator
from slipstream.trajectory import Run

START_TIMEOUT = 60.0  # seconds; importing SymPy takes about one, or many on a busy machine


@calculator("math")
class Math(Parameters):
    """1 where the answer equals the reference as mathematics, otherwise 0: 1/2, 0.5 and \\frac{1}{2} are the same."""

    key: Annotated[str, Field(min_length=1)] = "reference"
    timeout: PositiveDuration = 5.0

    def build(self) -> MathCalculator:
        return MathCalculator(self)


class MathCalculator:
    """Keeps one worker process, started at the first run and again after one that had to be stopped."""

    def __init__(self, parameters: Math) -> None:
        self._parameters = parameters
        self._process: subprocess.Popen[str] | None = None
        self._one_at_a_time = threading.Lock()

    def calculate(self, run: Run) -> float:
        references = reference_texts(run, self._parameters.key)
        with self._one_at_a_time:
            if self._process is None:
                self._process = self._started()
            question = json.dumps([references, run.text])
            answer = self._line(self._process, question, self._parameters.timeout)
            if answer is None:
                self._stop()
                raise ScoringError(f"the answer could not be checked within {self._parameters.timeout:g} s")
        equal = json.loads(answer)
        if equal is None:
            raise ScoringError(f"metadata.{self._parameters.key} cannot be read as mathematics")
        return float(equal)

    async def aclose(self) -> None:
        self._stop()

    def _started(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "slipstream.rewards.math_worker"]
        process = subprocess.Popen(  # noqa: S603 - our own module, no shell
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # SymPy's errors quote the answer, which does not belong in a log
            encoding="utf-8",
        )
        if self._line(process, None, START_TIMEOUT) is None:
            _end(process)
            raise ScoringError(f"`{' '.join(command)}` did not start")
        return process

    @staticmethod
    def _line(process: subprocess.Popen[str], question: str | None, timeout: float) -> str | None:
        """The process's next line, after asking the question; None if it does not come in time or the process dies."""
        assert process.stdin is not None
        assert process.stdout is not None
        overdue = threading.Timer(timeout, process.kill)
        overdue.start()
        try:
            if question is not None:
                process.stdin.write(question + "\n")
                process.stdin.flush()
            return process.stdout.readline() or None
        except OSError:
            return None
        finally:
            overdue.cancel()

    def _stop(self) -> None:
        if self._process is not None:
            _end(self._process)
            self._process = None


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()
