"""The embedded Explorer: `slipstream explorer --config explorer.yaml`.

It speaks the HTTP of Trinity-RFT's serve mode: chat completions, models, feedback, commit, health, metrics. Where
Trinity would lose something it differs: rewards must be finite numbers, and the queue between feedback and commit is
in the database.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import jinja2
import structlog
from transformers import PreTrainedTokenizerBase

from slipstream.embedded.chat import prompt_ids
from slipstream.embedded.checkpoints import latest_version, weights_path
from slipstream.embedded.completions import ChatRequest, Completion
from slipstream.embedded.config import EngineConfig
from slipstream.embedded.engines.engine import Engine, EngineError
from slipstream.embedded.engines.loading import load_engine
from slipstream.embedded.experiences import ExperienceStore
from slipstream.errors import RequestError, error_body

log = structlog.get_logger(__name__)


class Explorer:
    """The parts that the routes use."""

    def __init__(self, config: EngineConfig, clock: Callable[[], float], vllm: Path | None = None) -> None:
        self.config = config
        self.algorithm = config.algorithm.online
        self.clock = clock
        buffer = config.buffer.trainer_input.experience_buffer
        self.store = ExperienceStore(config.database_url, buffer.name, clock)
        self.engine: Engine
        self.tokenizer: PreTrainedTokenizerBase
        log.info("loading the model", path=config.model.model_path)
        self.engine, self.tokenizer = load_engine(config, vllm)
        self.started_at = clock()
        self.requests = 0
        self._seen = 0

    def close(self) -> None:
        self.engine.stop()
        self.store.close()

    async def look_for_weights(self) -> None:
        """Hands a newer version to the engine. One that cannot be loaded is left out until a newer one is there."""
        job_dir = self.config.job_dir
        try:
            version = await asyncio.to_thread(latest_version, job_dir)
            if version is None or version <= self._seen:
                return
            self._seen = version
            await self.engine.stage(version, weights_path(job_dir, version))
        except Exception as error:  # whatever it is: no later version would be looked for
            log.error("new version not loaded, the old one serves on", version=self.engine.version, exc_info=error)

    async def follow_weights(self) -> None:
        while True:
            await asyncio.sleep(self.config.explorer.service_status_check_interval)
            await self.look_for_weights()

    def completion(self, request: ChatRequest) -> Completion:
        """The request, ready to run.

        Raises:
            RequestError: it cannot be carried out by this model.
        """
        model = self.config.model
        if request.model != model.model_path:
            message = f"model: expected {model.model_path!r}, found {request.model!r}"
            raise RequestError(message, param="model", status=404, code="model_not_found")
        if request.wanted_tools and not self.reads_tool_calls:
            message = "tools: need explorer.rollout_model.enable_auto_tool_choice and tool_call_parser: hermes"
            raise RequestError(message, param="tools", status=400)
        try:
            prompt = prompt_ids(self.tokenizer, request.messages, request.wanted_tools, request.chat_template_kwargs)
        except (jinja2.TemplateError, TypeError, ValueError) as error:  # half of a surrogate pair is a TypeError
            message = f"messages: the model's chat template or its tokenizer refuses them: {error}"
            raise RequestError(message, param="messages", status=400) from error
        longest = min(model.max_prompt_tokens or model.context_length, model.context_length - 1)
        if len(prompt) > longest:
            of_model = "model.max_model_len, which is --max-model-len of slipstream model serve"
            key = "model.max_prompt_tokens" if longest == model.max_prompt_tokens else of_model
            raise RequestError(
                f"messages: {len(prompt)} tokens, of at most {longest} for a prompt, by {key} "
                f"(the context length is {model.context_length} tokens)",
                param="messages",
                status=400,
                code="context_length_exceeded",
            )
        room = min(model.max_response_tokens or model.context_length, model.context_length - len(prompt))
        thinks = self.config.explorer.rollout_model.reasoning_parser is not None
        return Completion(request, prompt, room, self.tokenizer, self.clock(), thinks=thinks)

    @property
    def reads_tool_calls(self) -> bool:
        rollout = self.config.explorer.rollout_model
        return rollout.enable_auto_tool_choice and rollout.tool_call_parser == "hermes"

    async def answer(self, completion: Completion) -> dict[str, Any]:
        async with aclosing(completion.run(self.engine)) as entries:
            async for _ in entries:
                pass
        await self._record(completion)
        return completion.body()

    async def stream(self, completion: Completion) -> AsyncIterator[str]:
        """Server-sent events. What ends a choice is sent after it was recorded: feedback may follow at once."""
        ends = []
        try:
            async with aclosing(completion.run(self.engine)) as entries:
                async for entry in entries:
                    if entry["finish_reason"] is None:
                        yield _event(completion.chunk(entry))
                    else:
                        ends.append(entry)
        except EngineError as error:
            yield _event(error_body(str(error), kind="server_error"))
            return
        await self._record(completion)
        for entry in ends:
            yield _event(completion.chunk(entry))
        options = completion.request.stream_options
        if options is not None and options.include_usage:
            yield _event(completion.chunk(None))
        yield "data: [DONE]\n\n"

    async def _record(self, completion: Completion) -> None:
        if self.config.explorer.record_experiences:
            await asyncio.to_thread(self.store.record, completion.answers())

    def metrics(self) -> dict[str, int]:
        """Trinity's names. The counts of experiences and commits go on over restarts."""
        counts = self.store.counts()
        return {
            "rollout/model_0/total_request_count": self.requests,
            "rollout/model_0/model_version": self.engine.version,
            "rollout/total_experience_count": counts.recorded,
            "rollout/ready_experience_count": counts.ready,
            "explore_step_num": counts.commits,
        }


def _event(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n"
