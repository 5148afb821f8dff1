"""Online training of an agent by the articles' names, over the sidecar and its client.

The articles train inside the agent's process. Here the sidecar does: an agent's call is run again on the policy model,
runs are rewarded, a commit hands them to the Trainer, and a version goes to users in a rollout. So `train_step` is a
commit, and `update_agent_model` opens a rollout.
"""

from __future__ import annotations

import functools
import inspect
import threading
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import structlog

from slipstream.agent_training.configs import DpoConfig, PpoConfig, RLTrainingConfig
from slipstream.agent_training.jobs import Job, rl_job
from slipstream.agent_training.trajectories import FIELDS, trajectory

if TYPE_CHECKING:
    from slipstream_client import Reward, Rollout, TrainingRunner
    from slipstream_client.service import Committed

_log = structlog.get_logger(__name__)

_MOST_KEPT = 10_000
"""Trajectories that are in memory: they are kept for their number and for those who look, and delivered already."""


@dataclass(frozen=True)
class TrinityRFT:
    """The framework's configuration.

    Attributes:
        model_config: `base_model` and `lora_rank`.
        training_config: `learning_rate`, `batch_size`, `gradient_accumulation_steps`.
    """

    algorithm: Literal["ppo", "dpo", "rft"] = "ppo"
    model_config: Mapping[str, Any] = field(default_factory=dict)
    training_config: Mapping[str, Any] = field(default_factory=dict)

    def job(self, output: Path | None = None) -> Job:
        """Return the job: for `ppo` the overlay of the Trainer that learns from the sidecar's traffic, for `dpo` and
        `rft` a data set and what is trained on it.

        Raises:
            ConfigError, ValueError: a key is unknown, or cannot be said here; names it.
        """
        model = _known("model_config", self.model_config, {"base_model": None, "lora_rank": 8})
        training = _known(
            "training_config",
            self.training_config,
            {"learning_rate": 1e-5, "batch_size": 16, "gradient_accumulation_steps": 4},
        )
        rows = training["batch_size"] * training["gradient_accumulation_steps"]
        config = RLTrainingConfig(
            algorithm=self.algorithm,
            ppo_config=PpoConfig(vf_coef=0, kl_coef=0, num_rollouts=rows),  # neither of these was asked for
            dpo_config=DpoConfig(),
        )
        job = rl_job(config, model=model["base_model"], output=output)
        overlay = {
            name: dict(section) if isinstance(section, Mapping) else section for name, section in job.overlay.items()
        }
        overlay.setdefault("model", {})["lora_configs"] = [{"lora_rank": model["lora_rank"]}]
        overlay.setdefault("algorithm", {})["optimizer"] = {"lr": training["learning_rate"]}
        overlay.setdefault("buffer", {})["train_batch_size"] = rows
        return Job(job.data, overlay, job.notes)


class DataCollector:
    """Runs an agent and writes down what it did.

    Args:
        collect_fields: which of `messages`, `thoughts`, `tool_calls`, `rewards` and `user_feedback`; by default all.

    Raises:
        ValueError: a field is unknown.
    """

    def __init__(self, collect_fields: Mapping[str, bool] | None = None) -> None:
        wanted = dict.fromkeys(FIELDS, True) | dict(collect_fields or {})
        if unknown := wanted.keys() - set(FIELDS):
            raise ValueError(f"collect_fields: expected {', '.join(FIELDS)}, found {', '.join(sorted(unknown))}")
        self._fields = [name for name in FIELDS if wanted[name]]

    def collect(
        self,
        agent: Callable[[str], Any],
        user_input: str,
        user_feedback: Mapping[str, Any] | None = None,
        rewards: Mapping[str, float] | None = None,
    ) -> dict[str, Any]:
        """Have the agent do one task of its own at the sidecar, and post what the user thought of it.

        Args:
            agent: returns a text, or a mapping with `messages`, all of the conversation.
            user_feedback: `rating` from 1 to 5, and a `comment`.
            rewards: what is known of the answer, by component.

        Returns:
            The trajectory. `conversation_id` is the task's id at the sidecar.

        Raises:
            ValueError: the feedback cannot be used, or the agent is async.
        """
        from slipstream_client import feedback, mark

        task_id = f"conv-{uuid.uuid4().hex}"
        with mark(task_id=task_id):
            answer = agent(user_input)
        if inspect.iscoroutine(answer):
            answer.close()
            raise ValueError(
                "agent: expected a plain function, found an async one; give it as lambda: asyncio.run(...)"
            )
        found = dict(rewards or {})
        if user_feedback is not None:
            rating: Any = user_feedback.get("rating")
            feedback(task_id=task_id, rating=rating, comment=user_feedback.get("comment"), source="user")
            found["user_satisfaction"] = (rating - 1) / 4  # as the sidecar reads a rating
        return trajectory(task_id, _messages(user_input, answer), found, user_feedback, self._fields)


class OnlineTrainer:
    """Gathers trajectories, and has the sidecar train and update.

    Args:
        agent: is left as it is: its calls go to the sidecar.
        framework: for the Trainer's files; `job()` of it.
        min_samples: trajectories between two training steps.
        check_after_updates: versions that must have come before there is one to update to.
        clip: range of rewards, as `rewards.clip` of the sidecar, which refuses others.

    Attributes:
        buffer: trajectories since the last training step.
        steps: training steps that were made.
    """

    def __init__(
        self,
        agent: object = None,
        framework: TrinityRFT | None = None,
        min_samples: int = 16,
        check_after_updates: int = 1,
        clip: tuple[float, float] = (0.0, 1.0),
    ) -> None:
        from slipstream_client import HotUpdater

        if min_samples < 1:
            raise ValueError(f"min_samples: expected 1 or more, found {min_samples}")
        self.framework = framework or TrinityRFT()
        self.min_samples = min_samples
        self.buffer: deque[Mapping[str, Any]] = deque(maxlen=_MOST_KEPT)
        self.steps = 0
        self._clip = clip
        self._updater = HotUpdater(agent, {"check_after_updates": check_after_updates})

    def add_trajectory(self, trajectory: Mapping[str, Any]) -> None:
        """Add a trajectory, and post its `reward`, or else its `total_reward`, as feedback: on the answers in `msg_ids`
        if it has them, else on the task of its `conversation_id`. It is cut to `clip`.

        Feedback on an answer of production is kept for data sets; what the policy is trained on are its own answers.

        Raises:
            ValueError: it names neither, or the reward is no number.
        """
        from slipstream_client import feedback

        reward = trajectory.get("reward", trajectory.get("total_reward"))
        if reward is not None:
            reward = min(max(reward, self._clip[0]), self._clip[1])
            if trajectory.get("msg_ids"):
                feedback(msg_ids=trajectory["msg_ids"], reward=reward, source="trainer")
            else:
                feedback(task_id=trajectory.get("conversation_id"), reward=reward, source="trainer")
        self.buffer.append(trajectory)

    def train_step(self) -> Committed | None:
        """Deliver what is rewarded to the Trainer, if there are `min_samples` trajectories.

        Returns:
            The commit; None if there are too few, and nothing was done.

        Raises:
            SidecarAway: it was not delivered; the trajectories are kept.
        """
        from slipstream_client import commit, flush

        gathered = len(self.buffer)
        if gathered < self.min_samples:
            return None
        flush()
        committed = commit()
        for _ in range(gathered):  # more may have come meanwhile
            self.buffer.popleft()
        self.steps += 1
        return committed

    def should_update(self) -> bool:
        """Return whether there is a version that users were not answered by yet.

        Raises:
            SidecarAway, SidecarRefused: the sidecar did not say.
        """
        return self._updater.has_new_model()

    def update_agent_model(self, **plan: Any) -> Rollout:
        """Open a rollout of the newest version. The sidecar takes it to all users, or back, by what is proven.

        Raises:
            SidecarAway, SidecarRefused: it was not opened; 409 `rollout_open` while another one is on its way.
        """
        return self._updater.rollout_update(**plan)


class RLRuntime:
    """Runs an agent for its users, and trains by their calls: each is run again on the policy model in the background.

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
        config = _known("trainer_config", trainer_config or {}, defaults)
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

    def start(self) -> None:
        """Begin to run calls again, to train and to update, in the background."""
        self._runner.start()
        self._ended = False
        self._thread = threading.Thread(target=self._work, name="rl-runtime", daemon=True)
        self._thread.start()

    def stop(self, timeout: float = 30.0) -> None:
        """Select no more calls, wait for the runs there are, and deliver them. Does nothing if it is not started.

        Args:
            timeout: seconds.
        """
        if self._thread is None:
            return
        self._ended = True
        self._wake.set()
        self._thread.join(timeout)
        self._thread = None
        self._runner.stop(timeout)

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

        while not self._ended:
            self._wake.wait()
            self._wake.clear()
            try:
                if self.trainer.train_step() is None or self.trainer.steps % self._update_interval:
                    continue
                if self.trainer.should_update():
                    self.trainer.update_agent_model()
            except SlipstreamError as error:  # the next interval tries again
                _log.warning("online_training_failed", reason=str(error))


_NEVER = 10.0**9
"""Seconds between the runner's own commits: the runtime makes them."""


def _messages(user_input: str, answer: Any) -> Sequence[Mapping[str, Any]]:
    if isinstance(answer, Mapping) and isinstance(answer.get("messages"), Sequence):
        messages: Sequence[Mapping[str, Any]] = answer["messages"]
        return messages
    return [{"role": "user", "content": user_input}, {"role": "assistant", "content": str(answer)}]


def _known(name: str, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    if unknown := given.keys() - defaults.keys():
        raise ValueError(f"{name}: expected {', '.join(defaults)}, found {', '.join(sorted(unknown))}")
    return {**defaults, **given}
