"""`algorithm_type: mix` in `trainer.yaml`: which data set, and how many of its rows in a step.

The keys are Trinity-RFT's (0.6.0, `trinity.algorithm.sample_strategy.mix_sample_strategy`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from slipstream.embedded.config import EngineConfig, problem
from slipstream.embedded.section import Count, Section
from slipstream.errors import ConfigError

_BUFFERS = "buffer.trainer_input.auxiliary_buffers"
_STRATEGY = "algorithm.sample_strategy_args"


class DataSelector(Section):
    """Order of the rows: as in the file, or drawn anew for each time that it is gone through."""

    selector_type: Literal["sequential", "shuffle"] = "sequential"
    seed: Count = 42


class DatasetBuffer(Section):
    """A data set of kind sft that `slipstream dataset export` made; `path` is its folder.

    It is gone through again and again, for as long as experiences come. (Trinity-RFT's Trainer ends after
    `total_epochs`, which has no effect here.)
    """

    path: Annotated[str, Field(min_length=1)]
    storage_type: Literal["file"] = "file"
    split: Literal["train"] = "train"
    schema_type: Literal["sft"] | None = None
    data_selector: DataSelector = DataSelector()


@dataclass(frozen=True)
class Mix:
    """A data set, and its share of a step.

    Attributes:
        key: of the data set's path in the file, for errors.
        path: the folder of the data set.
        shuffles: whether the order of its rows is drawn.
        seed: of that order.
        rows: for so many `experiences`, as Trinity-RFT divides `buffer.train_batch_size`.
    """

    key: str
    path: Path
    shuffles: bool
    seed: int
    rows: int
    experiences: int

    def rows_beside(self, experiences: int) -> int:
        """Return how many rows a step has beside so many experiences: whole groups may be more than a batch asks for,
        and what is left after a quiet time is less. The share stays; it is rounded up."""
        return -(-experiences * self.rows // self.experiences)


def mix_of(config: EngineConfig) -> Mix | None:
    """Return what is mixed into training; None for other algorithms than `mix`.

    Raises:
        ConfigError: the file names no data set that can be mixed in, or no share that leaves an experience.
    """
    if config.algorithm.algorithm_type != "mix":
        return None
    strategy, there = config.algorithm.sample_strategy_args, config.buffer.trainer_input.auxiliary_buffers
    name = strategy.sft_dataset_name
    if name not in there:
        raise ConfigError(
            f"{_BUFFERS}: expected the data set {name!r}, which {_STRATEGY}.sft_dataset_name names (overlays/mix.yaml "
            f"says both), found {', '.join(map(repr, there)) or 'none'}"
        )
    try:
        buffer = DatasetBuffer.model_validate(there[name])
    except ValidationError as error:
        raise ConfigError(*(f"{_BUFFERS}.{name}.{problem(each)}" for each in error.errors())) from error
    size = config.buffer.train_batch_size
    rows = math.ceil(strategy.expert_data_ratio * size)
    if rows >= size:
        raise ConfigError(
            f"{_STRATEGY}.expert_data_ratio: expected a share that leaves an experience in a batch of {size} "
            f"(buffer.train_batch_size), found {strategy.expert_data_ratio:g}, which makes {rows} rows"
        )
    selector = buffer.data_selector
    return Mix(
        key=f"{_BUFFERS}.{name}.path",
        path=Path(buffer.path).absolute(),
        shuffles=selector.selector_type == "shuffle",
        seed=selector.seed,
        rows=rows,
        experiences=size - rows,
    )
