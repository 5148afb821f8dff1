"""Asking the policy: chat completions of the Explorer, as `trinity-contract.md` says they are."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from slipstream.capture.completion import flaw_of, msg_id_of
from slipstream.dialects.allowed_tools import is_among_some, narrowed
from slipstream.dialects.thoughts import without_thoughts
from slipstream.errors import AnswerLost, ExplorerAway, ExplorerError, ExplorerRefused, ExplorerUnavailable
from slipstream.explorer.calls import SHORT, ExplorerCalls, counter
from slipstream.http.connect import ClientTls
from slipstream.memory.parsing import ParseMemory

_KNOWN_FIELDS = (
    "messages", "tools", "tool_choice", "parallel_tool_calls", "response_format", "max_tokens",
    "max_completion_tokens", "stop", "temperature", "reasoning_effort", "chat_template_kwargs",
)  # fmt: skip
"""Fields of a captured request that go to the policy's engine (vLLM's chat completions). The others are for production
(`metadata`, `user`, `service_tier`, ...), and would be refused or leak. Of those that the engine understands too,

- `seed` would make all runs of a group one and the same answer, and a group of equal rewards teaches nothing;
- `logit_bias` names tokens by their ids in production's tokenizer, which are other words of the policy's, or none;
- with `top_p`, `presence_penalty` or `frequency_penalty` the engine records the logprobs of the distribution that they
  leave, and the Trainer computes those of the model itself: their ratio is not 1 even before the first step."""

_OF_CASES = ("top_p", "presence_penalty", "frequency_penalty", "seed")
"""Fields of a case beside those: its answers are judged and not trained on."""

_UNHANDLED = "Internal Server Error"
"""The body with which Trinity's server answers if its own code raised; an engine's 500 has the engine's words."""


class ExplorerClient(ExplorerCalls):
    """Asks the policy.

    Args:
        base_url: such as `http://127.0.0.1:8010`.
        parsing: the memory for answers while they are read.
        model: the policy's model name; None asks the Explorer, once and again when it no longer knows that name.
        chat_timeout: seconds for one chat completion, to the answer's last byte.
        connect_timeout: seconds.
    """

    def __init__(
        self,
        base_url: str,
        parsing: ParseMemory,
        *,
        model: str | None,
        chat_timeout: float,
        connect_timeout: float,
        tls: ClientTls | None = None,
    ) -> None:
        super().__init__(base_url, parsing, connect_timeout=connect_timeout, longest=chat_timeout, tls=tls)
        self._model = self._configured_model = model
        self._chat_timeout = chat_timeout

    async def model(self) -> str:
        """The policy's model name.

        Raises:
            ExplorerAway: it cannot be had now, which is no run's fault: each can be sent once the list is there.
        """
        if self._model is None:
            try:
                models = (await self._call("GET", "/v1/models", SHORT)).get("data")
            except ExplorerError as error:
                raise ExplorerAway(str(error), status=error.status, said=error.said) from error
            first = models[0] if isinstance(models, list) and models else None
            if not isinstance(first, dict) or not isinstance(first.get("id"), str):
                raise ExplorerAway("the Explorer's /v1/models names no model")
            self._model = first["id"]
        return self._model

    async def renamed(self, asked: str | None) -> bool:
        """Return whether the Explorer now lists another name than the one with which a request was made.

        Raises:
            ExplorerAway: it cannot be had now.
        """
        if self._configured_model is not None:
            return False
        if self._model == asked:  # else another request has found out already
            self._model = None
        return await self.model() != asked

    @asynccontextmanager
    async def chat(self, request: bytes) -> AsyncIterator[dict[str, Any]]:
        """Ask for one chat completion and check that it is one: an id, and one choice with a message. It is in memory
        that is reserved for it until the block ends.

        Args:
            request: JSON.

        Raises:
            ExplorerAway: nobody was there to answer. Trinity's only engine is away for each reload, and chats get 500.
            AnswerLost: the Explorer could not record the answer (Trinity says 500 to an empty completion), or it is not
                whole.
        """
        before = await self._handed_on()  # only a count from before can tell, so it is asked for each chat
        async with AsyncExitStack() as memory:
            try:
                answered = self._answered("POST", "/v1/chat/completions", self._chat_timeout, request)
                answer = await memory.enter_async_context(answered)
            except ExplorerRefused as error:
                if error.status == 404 and self._configured_model is None:  # it serves another model since a restart
                    self._model = None
                    raise ExplorerUnavailable(str(error), status=error.status, said=error.said) from error
                raise
            except ExplorerUnavailable as error:
                if error.status != 500:
                    raise
                if before is not None and await self._handed_on() == before:
                    raise ExplorerAway(f"{error}, without an engine", status=error.status, said=error.said) from error
                if error.said == _UNHANDLED:
                    raise AnswerLost(str(error), status=error.status, said=error.said) from error
                raise
            _check(answer)
            yield answer

    async def _handed_on(self) -> int | None:
        """Return how many chats an engine was given so far, or None if the Explorer does not tell.

        Raises:
            ExplorerAway: it does not answer this either.
        """
        try:
            body = await self._call("GET", "/metrics", SHORT)
            counts = [counter(body, name) for name in body if name.endswith("/total_request_count")]
        except ExplorerUnavailable as error:
            raise ExplorerAway(str(error), status=error.status, said=error.said) from error
        except (ExplorerRefused, TypeError, ValueError, OverflowError):
            return None
        return sum(counts) if counts else None


def _check(answer: Mapping[str, Any]) -> None:
    """
    Raises:
        ExplorerRefused: it is no completion with one choice.
        AnswerLost: it is not whole.
    """
    choices = answer.get("choices")
    if msg_id_of(answer) is None:
        raise ExplorerRefused("the Explorer's answer has no id")
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        raise ExplorerRefused("the Explorer's answer has not exactly one choice")
    if not isinstance(choices[0].get("message"), dict):
        raise ExplorerRefused("the Explorer's answer has no message")
    if (flaw := flaw_of(choices)) is not None:
        raise AnswerLost(f"the engine broke its answer off: {flaw}")


def shadow_request(captured: Mapping[str, Any], model: str) -> dict[str, Any]:
    """The request that repeats a captured one on the policy: one whole answer, under the policy's name, and sampled as
    training assumes it (without `seed`, `logit_bias`, `top_p` and penalties). The thoughts in its messages are another
    model's, and are left out."""
    request = _repeated(captured, model)
    return request | {"messages": without_thoughts(request["messages"])}


def case_request(asked: Mapping[str, Any], model: str) -> dict[str, Any]:
    """The request that asks a case of an evaluation: as `shadow_request`, with the thoughts, the seed, `top_p` and the
    penalties that the case has, as its agent would send them. Not its `logit_bias`, which is of another tokenizer."""
    return {**_repeated(asked, model), **_kept(asked, _OF_CASES)}


def _repeated(request: Mapping[str, Any], model: str) -> dict[str, Any]:
    return {**_kept(request, _KNOWN_FIELDS), "model": model, "n": 1, "stream": False}


def agent_request(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The request that an agent itself makes of the policy, without the policy's name: as many answers as it wants,
    streamed or not. As in `shadow_request`, what would change how they are sampled is left out."""
    return _kept(asked, (*_KNOWN_FIELDS, "n", "stream", "stream_options"))


def _kept(request: Mapping[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    kept = {name: request[name] for name in fields if request.get(name) is not None}
    return (narrowed(kept) or kept) if is_among_some(kept.get("tool_choice")) else kept
