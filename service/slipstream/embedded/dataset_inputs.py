"""Inputs of a run on a data set: its rows, its weights, and the trainer over both."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from transformers import AutoConfig, AutoTokenizer
from transformers.trainer import Trainer

from slipstream.datasets.row import Row
from slipstream.datasets.trained_dataset import TrainedDataset
from slipstream.embedded import checkpoints
from slipstream.embedded.algorithm import DatasetAlgorithm
from slipstream.embedded.config import EngineConfig
from slipstream.embedded.dataset_trainers import TrainedRows, dataset_trainer
from slipstream.embedded.device import device
from slipstream.embedded.engines.loading import ending_ids
from slipstream.embedded.policy_model import export_dtype, load_policy, quantization
from slipstream.embedded.row_tokens import RowTokenizer
from slipstream.embedded.token_table import TokenTable, write_table
from slipstream.errors import ConfigError


def weights_of(config: EngineConfig, version: int) -> Path:
    """Return the model directory of a version; 0 is the base model.

    Raises:
        CheckpointError: there are no weights of that version.
    """
    return checkpoints.weights_path(config.job_dir, version) if version else Path(config.model.model_path)


def table_of(
    config: EngineConfig, dataset: TrainedDataset, rows: Iterable[Row], weights: Path, folder: Path
) -> TokenTable:
    """Tokenise the rows of a data set for the model in `weights`, into a folder.

    Raises:
        ConfigError: its tokenizer has no chat template, or one for conversations with tools alone.
        RunError: no row can be trained on.
    """
    return write_table(rows, dataset.kind, row_tokenizer(config, weights), dataset.task_weights, folder)


def row_tokenizer(config: EngineConfig, weights: Path) -> RowTokenizer:
    """Return the tokenizer of rows for the model in `weights`.

    Raises:
        ConfigError: its tokenizer has no chat template, or one for conversations with tools alone.
    """
    tokenizer = AutoTokenizer.from_pretrained(weights)
    if not tokenizer.chat_template:
        raise ConfigError(f"model.model_path: expected a tokenizer with a chat template, found none in {weights}")
    if isinstance(tokenizer.chat_template, dict) and "default" not in tokenizer.chat_template:
        raise ConfigError(
            f"model.model_path: expected a chat template for conversations without tools, found "
            f"{', '.join(tokenizer.chat_template)} alone in {weights}"
        )
    ending = ending_ids(weights, tokenizer, AutoConfig.from_pretrained(weights))
    return RowTokenizer(tokenizer, ending, config.model.context_length)


def trainer_of(
    config: EngineConfig, algorithm: DatasetAlgorithm, weights: Path, data: TrainedRows, output_dir: Path, seed: int
) -> Trainer:
    """Load the weights that training starts from, and build the trainer over them.

    Raises:
        ConfigError: a setting cannot be trained with; names the key.
    """
    bits = quantization(config)
    options: dict[str, Any] = {} if bits is None else {"quantization_config": bits}
    if config.model.lora_configs and not options:  # what is not trained needs no more than what it is exported in
        options["dtype"] = export_dtype(config, device())
    return dataset_trainer(config, algorithm, load_policy(weights, **options), data, output_dir, seed)
