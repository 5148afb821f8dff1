"""A look at each row as Trinity-RFT's formatter will tokenise it, so that no row fails there, or teaches nothing.

Trinity trains on whatever the template makes of a row (`buffer/schema/formatter.py` of 0.6.0): on an empty answer, if
the template leaves tool calls out; without the tools, if it knows none; on the end of a turn, if an answer speaks of
its token. It does not look at lengths: its Trainer fails on a row that is longer than `trainer.max_token_len_per_gpu`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from slipstream.datasets.special_tokens import special_texts
from slipstream.errors import ConfigError, SlipstreamError
from slipstream.trinity.side_job import Algorithm

_TOO_LONG = "longer than model.max_model_len"
_REFUSED = "refused by the model's template"
_NO_ANSWER = "an answer that the model's template leaves out"
_NO_TOOLS = "tools that the model's template leaves out"
_BLURRED = "a prompt that the model's template writes otherwise once it is answered"
_ALIKE = "two answers of the same tokens"
_SPECIAL = "an answer with a special token of the model"


class RowCheck:
    """Says why Trinity cannot be given a line, or None if it can.

    Args:
        training: the Trainer's file.
        model: the Hugging Face directory whose tokenizer is used.
        algorithm: of the data set's kind.

    Raises:
        ConfigError: `model` is no directory of a model with a chat template, or the template's file cannot be read.
        SlipstreamError: transformers is not installed.
    """

    def __init__(self, training: Mapping[str, Any], model: Path, algorithm: Algorithm) -> None:
        section = training["model"]
        self._algorithm = algorithm
        self._limit = _limit(section)
        self._tokenizer = _tokenizer(model)
        self._special = special_texts(self._tokenizer)
        self._options: dict[str, Any] = {"chat_template": _template(section)}
        if algorithm == "sft":
            self._options["enable_thinking"] = section.get("enable_thinking")
        if not (self._options["chat_template"] or self._tokenizer.chat_template):
            raise ConfigError(f"model.model_path: expected a tokenizer with a chat template, found none in {model}")

    def __call__(self, line: dict[str, Any]) -> str | None:
        from jinja2.exceptions import TemplateError

        try:
            return self._sft(line) if self._algorithm == "sft" else self._dpo(line)
        except (TemplateError, TypeError, ValueError, KeyError):
            return _REFUSED

    def _sft(self, line: Mapping[str, Any]) -> str | None:
        messages, tools = json.loads(line["messages"]), json.loads(line["tools"] or "null")
        *prompt, answer = messages
        if tools and self._ids(prompt, asks=True, tools=tools) == self._ids(prompt, asks=True):
            return _NO_TOOLS
        return self._answered(prompt, answer, tools)

    def _dpo(self, line: Mapping[str, Any]) -> str | None:
        (chosen,), (rejected,) = line["chosen"], line["rejected"]
        prompt = line["messages"]
        if self._ids([*prompt, chosen]) == self._ids([*prompt, rejected]):
            return _ALIKE
        return self._answered(prompt, chosen) or self._answered(prompt, rejected)

    def _answered(self, prompt: Sequence[Any], answer: Any, tools: Any = None) -> str | None:
        asked, whole = self._ids(prompt, asks=True, tools=tools), self._ids([*prompt, answer], tools=tools)
        if len(whole) > self._limit:
            return _TOO_LONG
        if whole[: len(asked)] != asked:
            return _BLURRED
        if whole == self._ids([*prompt, {"role": "assistant", "content": ""}], tools=tools):
            return _NO_ANSWER
        written = json.dumps(answer, ensure_ascii=False)
        return _SPECIAL if any(special in written for special in self._special) else None

    def _ids(self, messages: Sequence[Any], *, asks: bool = False, tools: Any = None) -> list[int]:
        ids: list[int] = self._tokenizer.apply_chat_template(
            list(messages), tools=tools, add_generation_prompt=asks, tokenize=True, return_dict=False, **self._options
        )
        return ids


def _limit(section: Mapping[str, Any]) -> int:
    """Return the tokens that prompt and answer may have together."""
    if section.get("max_model_len"):
        return int(section["max_model_len"])
    parts = section.get("max_prompt_tokens"), section.get("max_response_tokens")
    if not all(parts):
        raise ConfigError("model.max_model_len: expected a number of tokens, found none")
    return sum(int(part) for part in parts if part)


def _tokenizer(model: Path) -> Any:
    if not (model / "config.json").exists():
        raise ConfigError(f"model.model_path: expected the Hugging Face directory of a model, found {model}")
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise SlipstreamError(
            f"{error}: train.engine trinity runs in the environment of Trinity-RFT (docs/trinity.md)"
        ) from error
    return AutoTokenizer.from_pretrained(model)


def _template(section: Mapping[str, Any]) -> str | None:
    if section.get("custom_chat_template"):
        return str(section["custom_chat_template"])
    if path := section.get("chat_template_path"):
        try:
            return Path(path).read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"model.chat_template_path: expected a file that can be read, found {error}") from error
    return None
