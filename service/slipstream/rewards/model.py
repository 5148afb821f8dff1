"""The reward model: every configured calculator asked about a run, and their rewards made one."""

from __future__ import annotations

import asyncio
import inspect
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import structlog

from slipstream.errors import ConfigError, ScoringError
from slipstream.isolation import Isolation, NotFinished, Raised
from slipstream.metrics import Metrics
from slipstream.redaction.kinds import without_secrets
from slipstream.rewards.calculator import BuiltCalculator, NoBasis, Reward, checked, weighted_mean
from slipstream.rewards.calculators.given import NoFeedback, PostedFeedback
from slipstream.rewards.calculators.judge import JudgeCalculator
from slipstream.rewards.settings import CalculatorSpec, RewardsSettings
from slipstream.trajectory import Run
from slipstream.user_code.errors import UserErrors

_log = structlog.get_logger(__name__)

_THREADS = 2  # the built-in calculators are short; more threads would only compete with production for Python's lock


@dataclass(frozen=True, slots=True)
class _Component:
    place: str
    name: str
    weight: float
    optional: bool
    calculator: BuiltCalculator


class RewardModel:
    """Gives runs their rewards, as configured.

    The log has the first reward that is clipped and the first error of each kind; `metrics` counts all of them.

    Args:
        isolation: the processes of calculators that follow content, and of the user's own; without it, some of its own
            that end with this process.

    Raises:
        ConfigError: a calculator cannot be built; names its key.
    """

    def __init__(self, settings: RewardsSettings, metrics: Metrics, isolation: Isolation | None = None) -> None:
        self._own = None if isolation else Isolation()
        isolation = isolation or self._own or Isolation()
        self._clip = settings.clip
        self._metrics = metrics
        self._errors = UserErrors("reward_calculator_failed")
        self._clipping_logged = False
        self._components = [_component(index, spec, isolation) for index, spec in enumerate(settings.calculators)]
        for part in self._components:
            if isinstance(part.calculator, JudgeCalculator):
                part.calculator.tally = metrics.tokens
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="rewards")
        self.waits_for_feedback = any(isinstance(spec.parameters, PostedFeedback) for spec in settings.calculators)

    async def score(self, run: Run) -> Reward:
        """The weighted mean of the components, clipped; the breakdown has their values before that.

        Raises:
            ScoringError: a calculator failed, or there is none; says which and why. No reward is invented.
        """
        if not self._components:
            raise ScoringError("rewards.calculators is empty: nothing can be scored")
        mean = weighted_mean([(part.name, part.weight, await self._reward(part, run)) for part in self._components])
        if not math.isfinite(mean.value):  # each reward is finite, but sums of huge ones or of huge weights are not
            raise ScoringError(f"the weighted mean is {mean.value}, which is not finite")
        return Reward(self._clipped(mean.value), mean.breakdown)

    async def aclose(self) -> None:
        """Close connections and end threads and processes."""
        for component in self._components:
            await component.calculator.aclose()
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._own is not None:
            await asyncio.to_thread(self._own.close)

    def _clipped(self, value: float) -> float:
        lower, upper = self._clip
        if lower <= value <= upper:
            return value
        self._metrics.rewards_clipped.inc()
        if not self._clipping_logged:
            self._clipping_logged = True
            _log.warning("reward_clipped", reward=value, key="rewards.clip", clip=[lower, upper])
        return min(max(value, lower), upper)

    async def _reward(self, component: _Component, run: Run) -> Reward | None:
        """Ask one calculator; None if it is optional and has no basis."""
        try:
            return checked(await self._outcome(component.calculator, run))
        except NoBasis as error:
            if component.optional:
                return None
            raise NoBasis(f"{component.name}: {error}") from error
        except ScoringError as error:
            if not isinstance(error, NoFeedback):
                self._failed(Raised.of(error), component)
            raise ScoringError(f"{component.name}: {error}") from error
        except NotFinished as error:
            self._metrics.reward_errors.inc()
            _log.warning("reward_calculator_stopped", calculator=component.name, reason=str(error))
            raise ScoringError(f"{component.place}: {error}") from error
        except Exception as error:
            raised = error if isinstance(error, Raised) else Raised.of(error)
            self._failed(raised, component)
            told = without_secrets(raised.said)[:300]  # libraries quote headers, and the reason of a drop is stored
            raise ScoringError(f"{component.name}: {raised.kind}: {told}") from error

    def _failed(self, error: Raised, component: _Component) -> None:
        self._metrics.reward_errors.inc()
        self._errors.log(error, calculator=component.name)

    async def _outcome(self, calculator: BuiltCalculator, run: Run) -> Any:
        if inspect.iscoroutinefunction(calculator.calculate):
            return await calculator.calculate(run)
        return await asyncio.get_running_loop().run_in_executor(self._threads, calculator.calculate, run)


def _component(index: int, spec: CalculatorSpec, isolation: Isolation) -> _Component:
    try:
        calculator = spec.parameters.build(isolation)
    except ValueError as error:
        raise ConfigError(f"rewards.calculators.{index}.{spec.name}: {error}") from error
    place = f"rewards.calculators[{index}] ({spec.name})"
    return _Component(place, spec.component, spec.weight, spec.parameters.optional, calculator)
