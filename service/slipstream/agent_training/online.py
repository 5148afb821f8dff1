"""Online training of an agent by the articles' names, over the sidecar and its client.

The articles train inside the agent's process. Here the sidecar does: an agent's call is run again on the policy model,
runs are rewarded, a commit hands them to the Trainer, and a version goes to users in a rollout. So `train_step` is a
commit, and `update_agent_model` opens a rollout.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from slipstream.agent_training.configs import DpoConfig, PpoConfig, RLTrainingConfig
from slipstream.agent_training.jobs import Job, rl_job

if TYPE_CHECKING:
    from slipstream_client import Rollout
    from slipstream_client.service import Committed

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
        model = known("model_config", self.model_config, {"base_model": None, "lora_rank": 8})
        training = known(
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
        alone = "model.lora_configs needs the embedded engine: Trinity-RFT's Explorer answers without adapters"
        return Job(job.data, overlay, [*job.notes, alone] if self.algorithm == "ppo" else job.notes)


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


def known(name: str, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys that are given, with the defaults of the others.

    Raises:
        ValueError: a key is unknown.
    """
    if unknown := given.keys() - defaults.keys():
        raise ValueError(f"{name}: expected {', '.join(defaults)}, found {', '.join(sorted(unknown))}")
    return {**defaults, **given}
