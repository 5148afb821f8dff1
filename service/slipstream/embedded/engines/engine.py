"""The interface of an engine: token ids in, sampled tokens with their log probabilities out, new weights in between."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from slipstream.errors import SlipstreamError

MAX_WAITING = 1024  # answers; at 8192 tokens a prompt they hold 300 MB, and the last of them waits for minutes


class EngineError(SlipstreamError):
    """The model failed on this request."""


class EngineStopped(EngineError):
    """The engine is shutting down, or has ended."""


class EngineBusy(EngineError):
    """Too many requests wait; this one was not taken, and may come again later."""

    def __init__(self, waiting: int) -> None:
        super().__init__(f"{waiting} answers wait already, of at most {MAX_WAITING}: try again later")


@dataclass(frozen=True)
class Sampling:
    """Sampling fields that a request may set; the temperature is the configuration's.

    Args:
        max_tokens: the response ends after this many tokens at the latest.
        top_p: sample from the smallest set of tokens that has this much probability; 1 samples from all.
        top_logprobs: how many of the likeliest tokens to report at each position.
        seed: makes the response repeatable.
    """

    max_tokens: int
    top_p: float = 1.0
    top_logprobs: int = 0
    seed: int | None = None


@dataclass(frozen=True)
class Sampled:
    """One token; `logprob` and `top` are natural logs under softmax(logits / temperature)."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Step:
    """One token of a response; the last one carries why it is the last."""

    sampled: Sampled
    finish_reason: Literal["stop", "length"] | None
    model_version: int


class Engine(ABC):
    """Serves one model. All methods belong to one event loop, except `stop`, which blocks.

    A response is sampled by one version from its first token to its last: while new weights wait, no response starts,
    and they are put in place when the last running one has ended.
    """

    version = 0
    """The version in service; 0 is the model that the engine was loaded with."""

    @property
    @abstractmethod
    def alive(self) -> bool:
        """False once the engine can answer nothing any more."""

    @abstractmethod
    def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> AsyncGenerator[Step, None]:
        """Yields the response token by token. Closing the generator frees its place.

        Raises:
            EngineBusy: too many wait already.
            EngineError: the model failed, or is being stopped.
        """

    @abstractmethod
    def check_room(self, choices: int) -> None:
        """Call it before the answer to a request begins, while its status can still be chosen.

        Raises:
            EngineBusy: so many choices more than now cannot wait.
        """

    @abstractmethod
    async def stage(self, version: int, directory: Path) -> None:
        """Checks a version's weights and puts them in service as soon as no response runs.

        Args:
            directory: of a Hugging Face model, with safetensors.

        Raises:
            EngineError: they cannot be read, are not this model's, or hold a number that is not finite. The version
                before goes on.
        """

    @abstractmethod
    def stop(self) -> None:
        """Ends the engine; requests still running fail with EngineStopped."""
