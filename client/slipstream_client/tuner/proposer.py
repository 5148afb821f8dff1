"""The language model that writes prompts."""

from __future__ import annotations

import os
from typing import Any

from slipstream_client.tuner.errors import TunerError

_PROVIDERS = {
    "openai": (None, "OPENAI_API_KEY"),
    "dashscope": ("https://dashscope.aliyuncs.com/compatible-mode/v1", "DASHSCOPE_API_KEY"),
}
"""The address of an OpenAI-compatible API and the variable with its key, by the first word of `lm_model_name`."""


class Proposer:
    """Answers a prompt about prompts: called by gepa, which goes on where it fails, so its failures are kept here.

    Args:
        name: of the model; with `provider/` in front where `base_url` is None.
        base_url: of an OpenAI-compatible API.
        api_key: None: the variable of the provider.

    Raises:
        ValueError: it cannot be told where the model is served, or the key is missing.
    """

    def __init__(self, name: str, base_url: str | None = None, api_key: str | None = None) -> None:
        import openai

        self._model = name
        if base_url is None:
            provider, slash, self._model = name.partition("/")
            if not slash or provider not in _PROVIDERS:
                known = " or ".join(f"{each}/..." for each in _PROVIDERS)
                raise ValueError(f"lm_model_name: expected {known}, found {name!r}; any other needs lm_base_url")
            base_url, variable = _PROVIDERS[provider]
            api_key = api_key or os.environ.get(variable)
            if not api_key:
                raise ValueError(f"lm_api_key: missing, and {variable} is not set")
        self._client = openai.OpenAI(base_url=base_url, api_key=api_key or "EMPTY")
        self._answered = False
        self._error: Exception | None = None

    def __call__(self, prompt: str | list[dict[str, Any]]) -> str:
        try:
            answer = self._client.chat.completions.create(
                model=self._model, messages=[{"role": "user", "content": str(prompt)}]
            )
            text = answer.choices[0].message.content
            if not text:
                raise TunerError(f"{self._model} answered without a text")
        except Exception as error:
            self._error = error
            raise
        self._answered = True
        return text

    def close(self) -> None:
        self._client.close()

    def must_have_answered(self) -> None:
        """Raises TunerError: it was asked, and always failed."""
        if self._error is not None and not self._answered:
            raise TunerError(f"lm_model_name: {self._model} never answered: {self._error}") from self._error
