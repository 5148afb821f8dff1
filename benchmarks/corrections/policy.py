"""A policy in this process: it answers tasks of the demo, and learns from what was said about its answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, PreTrainedModel, PreTrainedTokenizerBase

from corrections.user import TOOLS, Answered, Task, Words, answered, correction, prompt, words
from slipstream.datasets.row import Kind
from slipstream.datasets.trained_dataset import TrainedDataset
from slipstream.embedded import checkpoints
from slipstream.embedded.chat import Message, Tool, prompt_ids
from slipstream.embedded.config import EngineConfig
from slipstream.embedded.engines.loading import ending_ids
from slipstream.embedded.experiences import Experience
from slipstream.embedded.learning import Learner
from slipstream.embedded.policy_model import load_policy
from slipstream.embedded.supervised import train_rows

_LONGEST = 48  # tokens of an answer, as in the demo
_TOGETHER = 16


class Answering:
    """Samples answers as the embedded Explorer does: its prompts, temperature 1, nothing cut from the distribution."""

    def __init__(self, weights: Path, model: PreTrainedModel | None = None) -> None:
        loaded, self.tokenizer = load_policy(weights)
        self._model = loaded if model is None else model
        self._ending = ending_ids(weights, self.tokenizer, AutoConfig.from_pretrained(weights))

    def answers(
        self, tasks: Sequence[Task], seed: int, prompts: Sequence[Sequence[Any]] | None = None
    ) -> tuple[list[Answered], list[Experience]]:
        """Answer each task once, with the token ids and their log-probabilities.

        Args:
            prompts: messages for each task; None for the agent's.
        """
        self._model.eval()
        torch.manual_seed(seed)
        found: list[Answered] = []
        experiences: list[Experience] = []
        asking = [_prompt_ids(self.tokenizer, said) for said in prompts or [prompt(task) for task in tasks]]
        for first in range(0, len(tasks), _TOGETHER):
            some = slice(first, first + _TOGETHER)
            for task, (asked, ids, logprobs) in zip(tasks[some], self._sampled(asking[some]), strict=True):
                found.append(answered(task, str(self.tokenizer.decode(ids, skip_special_tokens=True))))
                number = len(experiences)
                reward = found[-1].score.reward
                experiences.append(
                    Experience(number, str(number), None, 0, reward, None, asked, ids, logprobs, 0)  # type: ignore[arg-type]
                )
        return found, experiences

    def _sampled(self, prompts: Sequence[list[int]]) -> list[tuple[list[int], list[int], list[float]]]:
        width, pad = max(map(len, prompts)), self._ending[0]
        made: Any = self._model.generate(  # type: ignore[operator]
            input_ids=torch.tensor([[pad] * (width - len(ids)) + ids for ids in prompts]),
            attention_mask=torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in prompts]),
            max_new_tokens=_LONGEST, do_sample=True, temperature=1.0, top_k=0, top_p=1.0, eos_token_id=self._ending,
            pad_token_id=pad, return_dict_in_generate=True, output_logits=True,
        )  # fmt: skip
        logprobs = torch.stack(made.logits, dim=1).float().log_softmax(-1)
        sampled = made.sequences[:, width:]
        chosen = logprobs.gather(2, sampled[..., None])[..., 0]
        rows = []
        for ids, row, values in zip(prompts, sampled.tolist(), chosen.tolist(), strict=True):
            length = next((at + 1 for at, token in enumerate(row) if token in self._ending), len(row))
            rows.append((ids, row[:length], values[:length]))
        return rows


def _prompt_ids(tokenizer: PreTrainedTokenizerBase, said: Sequence[Any]) -> list[int]:
    messages = [Message.model_validate(message) for message in said]
    return prompt_ids(tokenizer, messages, [Tool.model_validate(tool) for tool in TOOLS])


class ByNumber:
    """Learns from the reward of each answer alone: the embedded engine's `ppo`, single samples against their mean."""

    def __init__(self, base: Path, folder: Path, learning_rate: float) -> None:
        config = _config(base, folder, "ppo", learning_rate, 1, {})
        self._learner = Learner(config, base, folder / "trl")
        self.policy = Answering(base, self._learner._model)

    def learn(self, given: Sequence[Answered], experiences: Sequence[Experience]) -> int:
        """Take one step on a batch. Returns the answers that it learned from."""
        self._learner.accumulate(experiences)
        self._learner.update()
        return len(experiences)


class ByWords:
    """Learns from what users said of wrong answers, by `slipstream train`'s own way to a version."""

    def __init__(self, base: Path, folder: Path, learning_rate: float, how: Words, loss: dict[str, Any]) -> None:
        self._config = _config(base, folder, "sdpo", learning_rate, 8, loss)
        self._how = how
        self._rounds = 0
        self.policy = Answering(base)

    def learn(self, given: Sequence[Answered], experiences: Sequence[Experience]) -> int:
        """Train a version on the corrections. Returns how many there were."""
        said = [(each, words(each, self._how)) for each in given]
        rows = [correction(at, each, text) for at, (each, text) in enumerate(said) if text is not None]
        self._rounds += 1
        if rows:
            done = train_rows(
                self._config, rows, TrainedDataset("words", f"round {self._rounds}", Kind.CORRECTION, seed=self._rounds)
            )
            assert done.version is not None, "nothing stops it"
            self.policy = Answering(checkpoints.weights_path(self._config.job_dir, done.version))
        return len(rows)


def _config(
    base: Path, folder: Path, algorithm: str, learning_rate: float, batch: int, loss: dict[str, Any]
) -> EngineConfig:
    return EngineConfig.model_validate(
        {
            "mode": "train",
            "checkpoint_root_dir": str(folder),
            "model": {"model_path": str(base), "max_model_len": 768, "max_response_tokens": 64, "temperature": 1.0},
            "algorithm": {
                "algorithm_type": algorithm,
                "optimizer": {"lr": learning_rate, "weight_decay": 0.0},
                "policy_loss_fn_args": loss,
            },
            "buffer": {"train_batch_size": batch},
            "trainer": {"max_checkpoints_to_keep": 1, "gradient_checkpointing": False},
        }
    )
