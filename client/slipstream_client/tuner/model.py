"""The model object that a workflow is given."""

from __future__ import annotations

import contextlib
from functools import cached_property
from typing import TYPE_CHECKING, Any

from slipstream_client.per_loop import per_loop

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAI

_KEY = "none"  # the SDK makes no client without; the gateway asks for none


class TunerModel:
    """A chat model behind an OpenAI-compatible address, bound to one run of a workflow.

    Use whichever suits: `client` and `async_client` of the openai SDK; `base_url` and `model_name` for another
    framework's client; or, with agentscope 1.x installed, the object itself in the place of a `ChatModelBase`, as in
    `ReActAgent(model=model)`.

    Attributes:
        base_url: answers chat completions for as long as the run goes on.
        model_name: what requests may call the model by.
        stream: whether agentscope streams; its users may change it.
    """

    def __init__(self, base_url: str, model_name: str, timeout: float) -> None:
        self.base_url = base_url
        self.model_name = model_name
        self.stream = False
        self._timeout = timeout

    @cached_property
    def client(self) -> OpenAI:
        """A client of the openai SDK. The gateway tries again where it helps, so the client does not."""
        import openai

        http = openai.DefaultHttpxClient(trust_env=False, verify=False, timeout=self._timeout)
        return openai.OpenAI(base_url=self.base_url, api_key=_KEY, max_retries=0, http_client=http)

    @cached_property
    def async_client(self) -> AsyncOpenAI:
        """The asynchronous twin of `client`. A plain workflow may use it in loops of its own, one after the other."""
        import openai

        http = per_loop(openai.DefaultAsyncHttpxClient)(trust_env=False, verify=False, timeout=self._timeout)
        return openai.AsyncOpenAI(base_url=self.base_url, api_key=_KEY, max_retries=0, http_client=http)

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Answer a call of agentscope's agents: messages and tools in, a `ChatResponse` out."""
        model = self._for_agentscope
        model.stream = self.stream
        return await model(*args, **kwargs)

    @cached_property
    def _for_agentscope(self) -> Any:
        from agentscope.model import OpenAIChatModel

        model: Any = OpenAIChatModel(model_name=self.model_name, api_key=_KEY, stream=False)
        model.client = self.async_client
        return model

    async def close(self) -> None:
        """Closes the clients that were made."""
        made = vars(self)
        if "client" in made:
            self.client.close()
        if "async_client" in made:
            with contextlib.suppress(RuntimeError):  # used in another event loop, which has ended
                await self.async_client.close()
