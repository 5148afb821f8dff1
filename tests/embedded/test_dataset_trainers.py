"""Trainers of a data set compute as many rows at once as they were given, on any machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset  # type: ignore[import-untyped]
from tiny_model import save_byte_model
from transformers import MistralConfig, MistralForCausalLM

from slipstream.embedded import dataset_trainers, self_distillation
from slipstream.embedded.config import EngineConfig
from slipstream.embedded.dataset_trainers import TrainedRows, dataset_trainer, quiet
from slipstream.embedded.policy_model import load_policy
from slipstream.embedded.shared_prompts import NO_LOSS

PROMPT, ANSWER = [*range(5, 45)], [60, 61, 256]
ROWS: dict[str, dict[str, Any]] = {
    "sft": {"input_ids": [*PROMPT, *ANSWER], "labels": [*[NO_LOSS] * len(PROMPT), *ANSWER]},
    "dpo": {"prompt_ids": PROMPT, "chosen_ids": ANSWER, "rejected_ids": [62, 256]},
    "kto": {"prompt_ids": PROMPT, "completion_ids": ANSWER, "label": True},
    "sdpo": {"prompt_ids": PROMPT, "hinted_ids": PROMPT, "answer_ids": ANSWER, "correction_ids": [70]},
}


@pytest.fixture(scope="module")
def byte_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("bytes") / "model"
    save_byte_model(directory)
    return directory


def config(model: Path, folder: Path, algorithm: str, /, **sections: Any) -> EngineConfig:
    fields: dict[str, Any] = {
        "mode": "train",
        "checkpoint_root_dir": str(folder),
        "model": {"model_path": str(model), "max_model_len": 512, **sections.pop("model", {})},
        "algorithm": {"algorithm_type": algorithm, **sections.pop("algorithm", {})},
        "buffer": {"train_batch_size": 4},
        "trainer": {"dtype": "float32", **sections.pop("trainer", {})},
    }
    return EngineConfig.model_validate(fields)


def trained_rows(algorithm: str, count: int = 8) -> TrainedRows:
    longest = len(PROMPT) + len(ANSWER)
    return TrainedRows(Dataset.from_list([ROWS[algorithm]] * count), list(range(count)), longest, len(PROMPT))


def tokens_at_once(trainer: Any) -> list[int]:
    return [batch["input_ids"].numel() for batch in trainer.get_train_dataloader()]


@pytest.mark.filterwarnings("ignore:'pin_memory' argument")  # of GPUs that are not there
@pytest.mark.parametrize("algorithm", ["sft", "dpo", "kto", "sdpo"])
def test_a_step_has_as_many_rows_on_several_gpus_as_on_one(
    byte_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: Any
) -> None:
    monkeypatch.setattr(dataset_trainers, "device", lambda: torch.device("cuda"))
    monkeypatch.setattr(self_distillation, "device", lambda: torch.device("cpu"))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)  # by which transformers takes so many devices
    given = {"policy_loss_fn_args": {"distillation_answers": "given"}} if algorithm == "sdpo" else {}
    settings = config(byte_model, tmp_path, algorithm, algorithm=given)
    with quiet():
        trainer = dataset_trainer(
            settings, algorithm, load_policy(byte_model), trained_rows(algorithm), tmp_path, seed=0
        )
        assert len(trainer.get_train_dataloader()) == 2


def test_a_model_whose_rows_are_not_packed_computes_no_more_tokens_at_once(byte_model: Path, tmp_path: Path) -> None:
    settings = config(byte_model, tmp_path, "sft", trainer={"max_token_len_per_gpu": 128})
    windowed = MistralForCausalLM(
        MistralConfig(vocab_size=258, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4,
                      num_key_value_heads=2, max_position_embeddings=512, sliding_window=64)
    )  # fmt: skip
    policy = windowed, load_policy(byte_model)[1]
    with quiet():
        trainer = dataset_trainer(settings, "sft", policy, trained_rows("sft"), tmp_path, seed=0)
        assert tokens_at_once(trainer) == [128] * 4
        assert trainer.get_total_train_batch_size(trainer.args) == 4


def test_long_answers_of_a_teacher_are_computed_within_the_same_bound(
    byte_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config(byte_model, tmp_path, "sdpo", trainer={"max_token_len_per_gpu": 512})

    def answers(_: object, batch: dict[str, Any], *_more: object) -> list[list[int] | None]:
        return [[*[60] * 200, 256] if at else None for at in range(len(batch["hinted_ids"]))]

    monkeypatch.setattr(self_distillation._Teacher, "answers", answers)
    with quiet():
        trainer = dataset_trainer(settings, "sdpo", load_policy(byte_model), trained_rows("sdpo"), tmp_path, seed=0)
        assert max(tokens_at_once(trainer)) == 512
        assert trainer.get_total_train_batch_size(trainer.args) == 4
