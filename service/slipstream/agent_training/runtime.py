"""An agent that is trained by the calls of its users, by the articles' name."""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

import structlog

from slipstream.agent_training.online import OnlineTrainer, TrinityRFT, known

if TYPE_CHECKING:
    from slipstream_client import Reward, TrainingRunner

_log = structlog.get_logger(__name__)

_NEVER = 10.0**9
"""Seconds between the runner's own commits: the runtime makes them."""


class RLRuntime:
    """Runs an agent for its users, and trains by their calls: each is run again on the policy model in the background.

    `async with RLRuntime(...) as runtime` in async programs, or `start` and `stop`.

    Args:
        agent: a function, plain or async.
        trainer_config: `algorithm` (for the Trainer's files), `train_interval` (calls between two training steps),
            `update_interval` (training steps between two looks for a version), `repeat_time` (runs of a call);
            `checkpoint_dir` is not read, since the Trainer's file says it.
        reward: gives a run its reward, as of `TrainingRunner`; None leaves it to the sidecar.

    Attributes:
        agent: to be called in the place of the one that was given.

    Raises:
        ValueError: a key is unknown.
    """

    def __init__(
        self,
        agent: Callable[..., Any],
        trainer_config: Mapping[str, Any] | None = None,
        reward: Callable[[Any], float | Reward] | None = None,
    ) -> None:
        from slipstream_client import SamplingRate, TrainingRunner

        defaults = {
            "algorithm": "ppo",
            "train_interval": 10,
            "update_interval": 100,
            "repeat_time": 4,
            "checkpoint_dir": None,
        }
        config = known("trainer_config", trainer_config or {}, defaults)
        for name in ("train_interval", "update_interval"):
            if isinstance(config[name], bool) or not isinstance(config[name], int) or config[name] < 1:
                raise ValueError(f"trainer_config.{name}: expected a number of 1 or more, found {config[name]!r}")
        self.trainer = OnlineTrainer(agent, TrinityRFT(config["algorithm"]), min_samples=config["train_interval"])
        self._update_interval: int = config["update_interval"]
        self._runner: TrainingRunner = TrainingRunner(
            SamplingRate(1.0), reward, repeat_time=config["repeat_time"], commit_interval=_NEVER
        )
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._ended = True
        self._calls = 0
        observed = self._runner.agent(agent)

        @functools.wraps(agent)
        def counted(*args: Any, **kwargs: Any) -> Any:
            answer = observed(*args, **kwargs)
            self._called()
            return answer

        @functools.wraps(agent)
        async def counted_async(*args: Any, **kwargs: Any) -> Any:
            answer = await observed(*args, **kwargs)
            self._called()
            return answer

        self.agent = counted_async if inspect.iscoroutinefunction(agent) else counted
        self._is_async = inspect.iscoroutinefunction(agent) or inspect.isasyncgenfunction(agent)

    def start(self) -> None:
        """Begin to run calls again, to train and to update, in the background.

        Raises:
            RuntimeError: the agent is async, and an event loop runs here. It would run again on another loop, and what
                belongs to this one (connection pools, locks) would break for users too.
        """
        if self._is_async and _in_event_loop():
            raise RuntimeError("an async agent runs again on the event loop of its program: `async with runtime`")
        self._runner.start()
        self._begin()

    def stop(self, timeout: float = 30.0) -> None:
        """Select no more calls, wait for the runs there are, and deliver them. Does nothing if it is not started.

        Args:
            timeout: seconds.

        Raises:
            RuntimeError: called from the event loop that the runs need; leave the block of `async with` instead.
        """
        if self._thread is not None:
            self._ended = True
            self._wake.set()
            self._thread.join(timeout)
            self._thread = None
        self._runner.stop(timeout)

    async def __aenter__(self) -> RLRuntime:
        await self._runner.__aenter__()
        self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)

    def _begin(self) -> None:
        self._ended = False
        self._thread = threading.Thread(target=self._work, name="rl-runtime", daemon=True)
        self._thread.start()

    def _called(self) -> None:
        if self._ended:
            return
        with self._lock:
            self._calls += 1
            self.trainer.buffer.append({"conversation_id": None, "call": self._calls})
            due = len(self.trainer.buffer) >= self.trainer.min_samples
        if due:
            self._wake.set()

    def _work(self) -> None:
        """Train and update beside the calls, which wait for neither."""
        from slipstream_client import SlipstreamError

        ended = False
        while not ended:
            self._wake.wait()
            self._wake.clear()
            ended = self._ended  # what was due before the end is done
            try:
                self._train()
            except SlipstreamError as error:  # the next interval tries again
                _log.warning("online_training_failed", reason=str(error))

    def _train(self) -> None:
        if self.trainer.train_step() is None or self.trainer.steps % self._update_interval:
            return
        if self.trainer.should_update():
            self.trainer.update_agent_model()


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
