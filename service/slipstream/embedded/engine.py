"""The policy model: one thread that decodes all requests together, and takes new weights between them."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import structlog
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils.logging import disable_progress_bar

from slipstream.embedded.batch import Batch
from slipstream.embedded.config import EngineConfig
from slipstream.embedded.model_directory import check_model_directory
from slipstream.embedded.prepacked import prepack
from slipstream.embedded.sampling import Sampled, Sampling, sample
from slipstream.errors import ConfigError, SlipstreamError

log = structlog.get_logger(__name__)

_MAX_ROWS = 64  # more rows still raise the tokens a second of a CPU, and each waits longer for its own
_PROMPT_TOKENS = 4096  # read at one time: about 5 s of a core for 135M parameters, while the other rows stand still
_CACHE_BYTES = 2 * 1024**3  # keys and values of all rows at their longest; what would not fit waits
_MAX_WAITING = 1024  # answers; at 8192 tokens a prompt they hold 300 MB, and the last of them waits for minutes


class EngineError(SlipstreamError):
    """The model failed on this request."""


class EngineStopped(EngineError):
    """The engine is shutting down."""


class EngineBusy(EngineError):
    """Too many requests wait; this one was not taken, and may come again later."""


@dataclass(frozen=True)
class Step:
    """One token of a response; the last one carries why it is the last."""

    sampled: Sampled
    finish_reason: Literal["stop", "length"] | None
    model_version: int


@dataclass(eq=False)
class _Sequence:
    prompt_ids: Sequence[int]
    sampling: Sampling
    source: random.Random
    deliver: Callable[[Step | EngineError], None]
    last_token: int = -1
    produced: int = 0
    finished: bool = False  # set by the model's thread, or by a caller who went away

    @property
    def most_tokens(self) -> int:
        return len(self.prompt_ids) + self.sampling.max_tokens


class Engine:
    """Serves one model. `generate` belongs to the event loop, `stage` to any thread, the model to its own thread.

    A response is sampled by one version from its first token to its last: while new weights are staged, no request
    starts, and they are put in place when the last running one has ended.

    Args:
        model: in evaluation mode.
        eos_ids: the tokens that end a response.
        seed: of the requests that bring no seed.
    """

    def __init__(self, model: PreTrainedModel, eos_ids: Sequence[int], temperature: float, seed: int) -> None:
        self.version = 0
        prepack(model)
        self._model = model
        self._eos_ids = frozenset(eos_ids)
        self._temperature = temperature
        self._seeds = random.Random(seed)  # noqa: S311 - sampling, not secrets
        self._batch = Batch(model)
        self._active: list[_Sequence] = []
        self._waiting: deque[_Sequence] = deque()
        self._staged: tuple[int, dict[str, Tensor]] | None = None
        self._stopping = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="policy-model", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> AsyncGenerator[Step, None]:
        """Yields the response token by token. A caller who stops listening frees the row.

        Raises:
            EngineBusy: too many wait already.
            EngineError: the model failed, or is being stopped.
        """
        loop = asyncio.get_running_loop()
        steps: asyncio.Queue[Step | EngineError] = asyncio.Queue()

        def deliver(step: Step | EngineError) -> None:
            loop.call_soon_threadsafe(steps.put_nowait, step)

        sequence = _Sequence(
            prompt_ids,
            sampling,
            random.Random(self._seeds.getrandbits(64) if sampling.seed is None else sampling.seed),  # noqa: S311
            deliver,
        )
        with self._changed:
            if self._stopping:
                raise EngineStopped("the Explorer is shutting down")
            self.check_room(1)
            self._waiting.append(sequence)
            self._changed.notify()
        try:
            while True:
                step = await steps.get()
                if isinstance(step, EngineError):
                    raise step
                yield step
                if step.finish_reason is not None:
                    return
        finally:
            sequence.finished = True
            with self._changed:
                if sequence in self._waiting:
                    self._waiting.remove(sequence)

    def check_room(self, choices: int) -> None:
        """Call it before the answer to a request begins, while its status can still say so.

        Raises:
            EngineBusy: so many choices more than now cannot wait.
        """
        if len(self._waiting) + choices > _MAX_WAITING:
            raise EngineBusy(f"{len(self._waiting)} answers wait already, of at most {_MAX_WAITING}: try again later")

    def stage(self, version: int, weights: Mapping[str, Tensor]) -> None:
        """Checks the weights and puts them in place as soon as no request runs; later ones replace what waits.

        Raises:
            EngineError: they are not this model's, or hold a number that is not finite; nothing was changed.
        """
        state = self._model.state_dict()
        held = {state[name].data_ptr() for name in weights if name in state}
        missing = [name for name, tensor in state.items() if name not in weights and tensor.data_ptr() not in held]
        unknown = [name for name in weights if name not in state]
        if missing or unknown:
            raise EngineError(f"version {version}: missing {missing[:3]}, unknown {unknown[:3]}")
        for name, tensor in weights.items():
            if tensor.shape != state[name].shape:
                raise EngineError(f"version {version}: {name}: expected {state[name].shape}, found {tensor.shape}")
            if not bool(torch.isfinite(tensor).all()):
                raise EngineError(f"version {version}: {name}: not all numbers are finite")
        with self._changed:
            self._staged = version, {name: tensor.to(state[name].dtype) for name, tensor in weights.items()}
            self._changed.notify()

    def stop(self) -> None:
        """Ends the thread; requests still running fail with EngineStopped."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        with torch.inference_mode():
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._stopping or self._waiting or self._active or self._staged)
                    if self._stopping:
                        break
                try:
                    self._turn()
                except Exception as error:
                    log.exception("the model failed; its requests fail with it", requests=len(self._active))
                    self._fail(EngineError(f"the model failed: {error}"))
            self._fail(EngineStopped("the Explorer is shutting down"))

    def _turn(self) -> None:
        self._let_go()
        if self._staged is None:
            self._admit()
        elif not self._active:
            self._swap()
        if self._active:
            self._advance(self._active, self._batch.step([sequence.last_token for sequence in self._active]))

    def _swap(self) -> None:
        with self._changed:
            staged, self._staged = self._staged, None
        if staged is not None:
            self.version, weights = staged
            state = self._model.state_dict()
            for name, tensor in weights.items():
                state[name].copy_(tensor)
            prepack(self._model)
            self._batch.forget()
            log.info("new version in service", version=self.version)

    def _admit(self) -> None:
        if not self._waiting:
            return
        joining: list[_Sequence] = []
        reading = self._batch.families
        longest = max((sequence.most_tokens for sequence in self._active), default=0)
        with self._changed:  # a caller who goes away takes his request out of the queue
            while self._waiting and len(self._active) + len(joining) < _MAX_ROWS:
                sequence = self._waiting[0]
                longest = max(longest, sequence.most_tokens)
                rows = len(self._active) + len(joining) + 1
                wider = reading.and_also(tuple(sequence.prompt_ids))
                too_large = rows * longest * self._batch.token_bytes > _CACHE_BYTES
                if (too_large and rows > 1) or (joining and wider.tokens > _PROMPT_TOKENS):
                    break
                reading = wider
                joining.append(self._waiting.popleft())
        if joining:
            self._active += joining
            self._advance(joining, self._batch.join([sequence.prompt_ids for sequence in joining]))
            self._let_go()

    def _advance(self, sequences: Sequence[_Sequence], logits: Tensor) -> None:
        chosen = sample(
            logits,
            self._temperature,
            [sequence.sampling for sequence in sequences],
            [sequence.source for sequence in sequences],
        )
        for sequence, sampled in zip(sequences, chosen, strict=True):
            sequence.last_token = sampled.token_id
            sequence.produced += 1
            reason: Literal["stop", "length"] | None = None
            if sampled.token_id in self._eos_ids:
                reason = "stop"
            elif sequence.produced >= sequence.sampling.max_tokens:
                reason = "length"
            sequence.finished = sequence.finished or reason is not None
            sequence.deliver(Step(sampled, reason, self.version))

    def _let_go(self) -> None:
        staying = [index for index, sequence in enumerate(self._active) if not sequence.finished]
        if len(staying) < len(self._active):
            self._batch.keep(staying)
            self._active = [self._active[index] for index in staying]

    def _fail(self, error: EngineError) -> None:
        failed = [*self._active, *(self._waiting if self._stopping else [])]
        self._active = []
        self._batch = Batch(self._model)
        for sequence in failed:
            sequence.deliver(error)


def load_engine(config: EngineConfig) -> tuple[Engine, PreTrainedTokenizerBase]:
    """The engine on the configuration's base model, version 0, and its tokenizer.

    Raises:
        ConfigError: `model.model_path` is no model directory, or its tokenizer has no chat template.
    """
    disable_progress_bar()  # type: ignore[no-untyped-call]
    path = check_model_directory(config.model.model_path)
    dtype = getattr(torch, config.explorer.rollout_model.dtype)
    tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
    if not tokenizer.chat_template:
        raise ConfigError(f"model.model_path: expected a tokenizer with a chat template, found none in {path}")
    model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype, local_files_only=True)
    model.eval()  # type: ignore[no-untyped-call]
    if model.config.max_position_embeddings < config.model.context_length:
        raise ConfigError(
            f"model.max_model_len: expected at most {model.config.max_position_embeddings} tokens, "
            f"the model's own, found {config.model.context_length}"
        )
    eos = model.generation_config.eos_token_id
    eos_ids = {tokenizer.eos_token_id, *(eos if isinstance(eos, list) else [eos])} - {None}
    return Engine(model, sorted(eos_ids), config.model.temperature, config.explorer.rollout_model.seed), tokenizer
