"""Losses and embeddings of rows under the policy that training goes on from, for the choice of a coreset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from slipstream.datasets.coreset import RowScores
from slipstream.datasets.row import Kind, Row
from slipstream.datasets.trained_dataset import parent_of
from slipstream.embedded import checkpoints
from slipstream.embedded.config import EngineConfig
from slipstream.embedded.dataset_inputs import row_tokenizer, weights_of
from slipstream.embedded.device import device
from slipstream.embedded.policy_model import load_policy
from slipstream.embedded.row_scores import row_scores
from slipstream.embedded.row_tokens import LeftOut
from slipstream.errors import ConfigError


class PolicyScores:
    """Scores rows by one forward pass each.

    Args:
        start: the version that training goes on from.

    Raises:
        ConfigError, CheckpointError: its weights cannot be loaded.
    """

    def __init__(self, config: EngineConfig, start: Literal["latest", "base"] | int) -> None:
        self._config = config
        self._weights = weights_of(config, parent_of(start, checkpoints.latest_version(config.job_dir) or 0))

    def __call__(self, rows: Sequence[Row]) -> RowScores:
        """Score rows. One that cannot be trained on counts as known and as like all others: it is left out later.

        Raises:
            ConfigError: the rows are of another kind than `sft`, whose loss is not that of one answer; or none of them
                can be trained on.
        """
        if rows and rows[0].kind is not Kind.SFT:
            raise ConfigError(
                f"dataset.coreset.strategy: expected random for kind {rows[0].kind}; the others go by the loss of one "
                "answer, which kind sft has"
            )
        tokenizer = row_tokenizer(self._config, self._weights)
        tokens = [tokenizer.tokens(row) for row in rows]
        there = [(place, each) for place, each in enumerate(tokens) if not isinstance(each, LeftOut)]
        if not there:
            raise ConfigError("dataset.coreset: expected rows that can be trained on, found none")
        policy, _ = load_policy(self._weights)
        model: Any = policy
        scores = row_scores(model.to(device()), [(each.prompt, each.answer) for _, each in there])
        losses = np.zeros(len(rows), np.float32)
        embeddings = np.tile(scores.embeddings.mean(axis=0), (len(rows), 1))
        places = [place for place, _ in there]
        losses[places], embeddings[places] = scores.losses, scores.embeddings
        return RowScores(losses, embeddings)
