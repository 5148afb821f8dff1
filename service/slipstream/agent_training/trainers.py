"""Trainers of the articles: each writes the files of a job and runs `slipstream train` on them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypedDict

import httpx
import structlog

from slipstream.agent_training.configs import AgentSFTConfig, RLTrainingConfig
from slipstream.agent_training.jobs import Job, rl_job, sft_job
from slipstream.agent_training.reward_model import ComputedReward
from slipstream.errors import ConfigError, ScoringError, SlipstreamError
from slipstream.trajectory import answer_message, message_text
from slipstream.trinity.checkpoint_files import VERSION_MARKER, marked, step_directory
from slipstream.trinity.document import load_document
from slipstream.trinity.job import job_directory

_log = structlog.get_logger(__name__)

_DEPTH = 4
"""Folders between a checkpoint directory and a job in it: project, group, name."""

Sample = Callable[[str, int], Sequence[str]]
"""Answers a prompt so many times."""


class Rewards(Protocol):
    """A reward model, as much of it as pairs need."""

    def compute_reward(
        self, query: str, response: str, ground_truth: Mapping[str, Any], execution_trace: Sequence[Mapping[str, Any]]
    ) -> ComputedReward:
        """Compute the reward of an answer."""


class PreferencePair(TypedDict):
    """The best and the worst answer to a prompt."""

    prompt: str
    chosen: str
    rejected: str
    chosen_score: float
    rejected_score: float


class _Trainer:
    """A job in a directory of its own.

    Args:
        directory: of the job's files.
        trainer: the Trainer's file, whose job gets the new version.
        datasets: the folder of data sets.
    """

    def __init__(self, job: Job, directory: Path, trainer: Path, datasets: Path) -> None:
        if job.data is not None:
            train = job.data.train.model_copy(update={"trainer": trainer.absolute()})
            job = Job(job.data.model_copy(update={"train": train}), job.overlay, job.notes)
        self.job = job
        self._directory = directory
        self._trainer = trainer
        self._datasets = datasets

    def train(self) -> None:
        """Train, and make a new version of the policy.

        Raises:
            SlipstreamError: it failed; its own words are on stderr.
        """
        for note in self.job.notes:
            _log.info("training_note", note=note)
        self.job.run(self._directory, self._datasets)

    def save_model(self, path: str | Path) -> Path:
        """Copy the newest version of the job as a Hugging Face model directory.

        Raises:
            ConfigError: a configuration file cannot be read.
            SlipstreamError: there is no version, or something else is at the path.
        """
        path = Path(path)
        if path.exists():
            raise SlipstreamError(f"{path}: expected nothing there, found a file or a folder")
        overlay = self.job.write(self._directory).parent / "overlay.yaml"
        found = _newest(job_directory(load_document(self._trainer, [overlay])))
        part = path.with_name(f"{path.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        shutil.copytree(found, part)
        part.rename(path)
        return path


class AgentSFTTrainer(_Trainer):
    """Supervised training on a data set of the sidecar.

    Args:
        labels: of the data set's rows, by which shares of tasks become weights; None before it is made.
    """

    def __init__(
        self,
        config: AgentSFTConfig | None = None,
        directory: str | Path = "agent-training",
        trainer: str | Path = "trainer.yaml",
        datasets: str | Path = "datasets",
        labels: Iterable[Sequence[str]] | None = None,
    ) -> None:
        self.config = config or AgentSFTConfig()
        super().__init__(sft_job(self.config, labels=labels), Path(directory), Path(trainer), Path(datasets))

    def prepare_datasets(self) -> Path:
        """Write the files, and return the path of `data.yaml`. Coreset and replay are parts of it: `slipstream train`
        carries them out."""
        return self.job.write(self._directory)


class AgentLoRATrainer(AgentSFTTrainer):
    """The same under the articles' other name: adapters are what `lora_r` of the configuration says."""

    prepare_data = AgentSFTTrainer.prepare_datasets


class AgentRLTrainer(_Trainer):
    """Learning from rewards, from a model that was trained before.

    Args:
        base_model_path: is not read: the model that is trained is the reference too, as it was before.
        sft_model_path: a Hugging Face model directory, or a directory of checkpoints, whose newest version is taken.
        sample: answers prompts, for `generate_preference_pairs`; `chat_sampler` asks a server.

    Raises:
        ConfigError: a key cannot be said here, or there is no model.
    """

    def __init__(
        self,
        config: RLTrainingConfig,
        base_model_path: str | None,
        sft_model_path: str,
        reward_model: Rewards,
        sample: Sample | None = None,
        directory: str | Path = "agent-training",
        trainer: str | Path = "trainer.yaml",
        datasets: str | Path = "datasets",
    ) -> None:
        del base_model_path
        self.config = config
        self.reward_model = reward_model
        self._sample = sample
        job = rl_job(config, model=str(model_directory(Path(sft_model_path))))
        super().__init__(job, Path(directory), Path(trainer), Path(datasets))

    def generate_preference_pairs(
        self,
        prompts: Sequence[str],
        num_samples: int = 4,
        ground_truths: Sequence[Mapping[str, Any]] | None = None,
    ) -> list[PreferencePair]:
        """Answer each prompt several times, and pair the best answer with the worst one. A prompt whose answers are all
        worth the same makes no pair, nor does one whose answers cannot be scored, which is logged.

        Args:
            ground_truths: of each prompt, for the reward model. That of the articles has no basis without.

        Raises:
            ValueError: there is no `sample`, fewer than two samples, or another number of ground truths.
        """
        if self._sample is None:
            raise ValueError("sample: expected a function that answers prompts, such as chat_sampler(url, model)")
        if num_samples < 2:
            raise ValueError(f"num_samples: expected 2 or more, found {num_samples}")
        truths = ground_truths if ground_truths is not None else [{}] * len(prompts)
        if len(truths) != len(prompts):
            raise ValueError(f"ground_truths: expected {len(prompts)}, found {len(truths)}")
        found = []
        for prompt, truth in zip(prompts, truths, strict=True):
            answers = self._sample(prompt, num_samples)
            try:
                scores = [self.reward_model.compute_reward(prompt, each, truth, [])["total"] for each in answers]
            except ScoringError as error:
                _log.warning("prompt_without_a_pair", reason=str(error))
                continue
            best, worst = max(zip(scores, answers, strict=True)), min(zip(scores, answers, strict=True))
            if best[0] > worst[0]:
                found.append(
                    PreferencePair(
                        prompt=prompt, chosen=best[1], rejected=worst[1], chosen_score=best[0], rejected_score=worst[0]
                    )
                )
        return found


def chat_sampler(url: str, model: str, temperature: float = 1.0, timeout: float = 300.0) -> Sample:
    """Return a function that asks a server of OpenAI's API, such as a sidecar's facade (`http://sidecar:8100/explorer`).

    Args:
        timeout: seconds for one answer.

    Returns:
        A function that raises httpx.HTTPError if the server does not answer.
    """

    def sample(prompt: str, count: int) -> list[str]:
        body = {"model": model, "messages": [{"role": "user", "content": prompt}], "temperature": temperature}
        with httpx.Client(timeout=timeout, trust_env=False) as client:
            found = []
            for _ in range(count):
                response = client.post(f"{url.rstrip('/')}/v1/chat/completions", json=body)
                response.raise_for_status()
                found.append(message_text(answer_message(response.json())))
            return found

    return sample


def model_directory(path: Path) -> Path:
    """Return the Hugging Face model directory at a path: that itself, or the newest version of the only job below it.

    Raises:
        ConfigError: there is none, or several jobs.
    """
    if (path / "config.json").is_file():
        return path
    patterns = ["/".join([*["*"] * depth, VERSION_MARKER]) for depth in range(_DEPTH)]
    jobs = sorted(marker.parent for pattern in patterns for marker in path.glob(pattern))
    if len(jobs) != 1:
        told = ", ".join(map(str, jobs)) or "none"
        raise ConfigError(f"{path}: expected a model directory, or checkpoints of one job; found {told}")
    return _newest(jobs[0])


def _newest(job: Path) -> Path:
    version = marked(job, VERSION_MARKER)
    directory = step_directory(job, version or 0) / "actor" / "huggingface"
    if not version or not (directory / "config.json").is_file():
        raise ConfigError(f"{job}: expected a version with a Hugging Face directory, found none")
    return directory
