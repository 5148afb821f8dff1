"""The engine on transformers: one thread that decodes all requests together, and takes new weights between them."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import structlog
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from slipstream.embedded.architecture import free_context, without_router_loss
from slipstream.embedded.config import EngineConfig
from slipstream.embedded.device import computes_in_bfloat16, device, limits
from slipstream.embedded.engines.batch import Batch
from slipstream.embedded.engines.engine import (
    MAX_WAITING,
    Engine,
    EngineBusy,
    EngineError,
    EngineStopped,
    Sampling,
    Step,
)
from slipstream.embedded.engines.sampling import sample
from slipstream.embedded.engines.weights import checked_weights
from slipstream.errors import ConfigError

log = structlog.get_logger(__name__)


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


class TransformersEngine(Engine):
    """Serves a model of transformers, which belongs to a thread of its own.

    Args:
        model: in evaluation mode.
        eos_ids: the tokens that end a response.
        seed: of the requests that bring no seed.
    """

    def __init__(self, model: PreTrainedModel, eos_ids: Sequence[int], temperature: float, seed: int) -> None:
        self._model = model
        self._limits = limits(model.device)
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
        if len(self._waiting) + choices > MAX_WAITING:
            raise EngineBusy(len(self._waiting))

    async def stage(self, version: int, directory: Path) -> None:
        weights = await asyncio.to_thread(self._in_its_precision, version, directory)
        with self._changed:
            self._staged = version, weights  # in place of those that still wait
            self._changed.notify()

    def _in_its_precision(self, version: int, directory: Path) -> dict[str, Tensor]:
        return {name: tensor.to(self._model.dtype) for name, tensor in checked_weights(version, directory, self._model)}

    def stop(self) -> None:
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
        self._remove_finished()
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
            self._batch.forget()
            log.info("new version in service", version=self.version)

    def _admit(self) -> None:
        if not self._waiting:
            return
        joining: list[_Sequence] = []
        reading: dict[tuple[int, ...], None] = {}  # equal prompts are read once
        longest = max((sequence.most_tokens for sequence in self._active), default=0)
        with self._changed:  # a caller who goes away takes his request out of the queue
            while self._waiting and len(self._active) + len(joining) < self._limits.rows:
                sequence = self._waiting[0]
                longest = max(longest, sequence.most_tokens)
                rows = len(self._active) + len(joining) + 1
                reading[tuple(sequence.prompt_ids)] = None
                too_large = rows * longest * self._batch.token_bytes > self._limits.cache_bytes
                if (too_large and rows > 1) or (joining and sum(map(len, reading)) > self._limits.prompt_tokens):
                    break
                joining.append(self._waiting.popleft())
        if joining:
            self._active += joining
            self._advance(joining, self._batch.join([sequence.prompt_ids for sequence in joining]))
            self._remove_finished()

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

    def _remove_finished(self) -> None:
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


def load_transformers_engine(config: EngineConfig, directory: Path, eos_ids: Sequence[int]) -> TransformersEngine:
    """Load version 0, the configuration's base model.

    Raises:
        ConfigError: the model has a state, or a window that is shorter than the context: the batch has neither.
    """
    rollout = config.explorer.rollout_model
    place = device()
    dtype = torch.bfloat16 if computes_in_bfloat16(rollout.dtype, place) else torch.float32
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=dtype, local_files_only=True)
    _check_attention(model, config.model.context_length)
    without_router_loss(model)
    model.to(place)  # type: ignore[arg-type]
    model.eval()  # type: ignore[no-untyped-call]
    return TransformersEngine(model, eos_ids, config.model.temperature, rollout.seed)


def _check_attention(model: PreTrainedModel, context: int) -> None:
    free = free_context(model)
    if free >= context:
        return
    instead = "slipstream explorer --vllm PYTHON serves such models"
    if free:
        raise ConfigError(
            f"model.max_model_len: expected at most {int(free)} tokens, the window of the model's attention, "
            f"found {context}; {instead}"
        )
    raise ConfigError(
        "model.model_path: expected a model whose layers attend to all tokens, found "
        f"{type(model).__name__}, whose layers keep a state or attend to a part; {instead}"
    )
