"""The redactor: JSON values without what the rules find in them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from slipstream.isolation import Isolation
from slipstream.jsontext import to_json
from slipstream.redaction.data_urls import DATA_URL, DataUrl
from slipstream.redaction.data_urls import SIGNS as DATA_URL_SIGNS
from slipstream.redaction.escapes import percent_unescaped
from slipstream.redaction.kinds import KINDS
from slipstream.redaction.rules import RedactionFailed, RedactRule, Step, step_of
from slipstream.redaction.suspects import Suspects

_HIDDEN = "hidden"
"""Beside the kinds: texts that one string alone does not show, in parts of a message or in data URLs."""


def _nested(depth: int) -> str:
    """The pattern of JSON in which each bracket that opens closes again; anything, if it is deeper than that."""
    if depth == 0:
        return "(?s:.*)"
    return rf'(?:[^"\[\]{{}}]|"(?:[^"\\]|\\.)*"|[\[{{]{_nested(depth - 1)}[\]}}])*'


_HIDDEN_SIGNS = (rf',\s*\{{{_nested(8)}"text"\s*:', *DATA_URL_SIGNS)
"""A part of a message with a text, behind another part; a data URL with a text. What stands before the text in its part
is told from the end of the part, so that messages of one part each, and tools, are no sign: reading such a chat of
200 KB takes 5 ms, and this 0.8."""

_MAX_URLS = 2
"""Data URLs within data URLs that are looked into."""

_FIELD = re.compile("[a-z_]{1,64}")
"""Names of fields, of the chat completions API and others. They stay, so that a rule of one's own cannot break them."""

_ID = re.compile("redacted-[0-9a-f]{32}")

_TOKEN_FIELDS = ("logprobs", "token_ids")
_PROMPT_FIELDS = ("prompt_logprobs", "prompt_token_ids")
"""Fields of an answer that spell its text, or its prompt's, once more, token by token (OpenAI's and vLLM's names)."""


class Redactor:
    """Replaces what the rules find in strings by `[redacted:name]`, in the rules' order.

    Where a hook fails on a text, nothing of that text is let through.

    Args:
        isolation: the processes of hooks; without it, some that end with this process.
    """

    def __init__(self, rules: Sequence[RedactRule], isolation: Isolation | None = None) -> None:
        pool = (isolation or Isolation()).user
        self._steps = [step_of(rule, pool) for rule in rules]

    def redact(self, value: Any, *, strict: bool = False) -> Any:
        """A copy of a JSON value with its strings and keys redacted; numbers and structure stay as they are. Where
        there is nothing to redact, it is the value that was given.

        Args:
            strict: raise RedactionFailed for a text on which a hook failed, instead of putting `[redacted:name]` in the
                place of all of it.
        """
        return _Walk(self._steps, strict).redacted(value) if self._steps else value

    def redact_answer(self, answer: Mapping[str, Any], *, prompt_redacted: bool = False) -> dict[str, Any]:
        """The same for a chat completion. Where anything of it was redacted, its `logprobs` go, which would spell it.

        Args:
            prompt_redacted: something of its request was redacted, so what spells the prompt goes too.

        Raises:
            RedactionFailed: a hook failed on one of its texts.
        """
        whole = dict(answer)
        redacted = self.redact(whole, strict=True)
        return _without_tokens(redacted, answer_redacted=redacted is not whole, prompt_redacted=prompt_redacted)

    def redact_id(self, name: str) -> str:
        """A name that a caller chose for a session or a task; one that holds something to be redacted is replaced by
        `redacted-` and a hash of it, the same one each time, so that it still names one thing.

        Raises:
            RedactionFailed: a hook failed on it.
        """
        if _ID.fullmatch(name) or self.redact(name, strict=True) == name:
            return name
        return "redacted-" + hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()

    @property
    def signs(self) -> Mapping[str, Iterable[str]] | None:
        """For each kind its signs, as `Suspects` wants them; None where there are rules of one's own."""
        return None if any(step.kind is None for step in self._steps) else self._kind_signs()

    def redact_json(
        self, value: Any, text: bytes | None = None, *, answer: bool = False, prompt_redacted: bool = False
    ) -> tuple[Any, bytes]:
        """The same, and as JSON too. Where there is nothing to redact, which takes a few microseconds to see, the
        value is the one that was given, and so is the text.

        Args:
            text: the value as JSON in UTF-8, where that is at hand.
            answer, prompt_redacted: it is a chat completion, as in `redact_answer`.

        Raises:
            RedactionFailed: a hook failed on one of its texts.
        """
        suspected = {None} if text is None else self._suspects.within(text)
        if text is None or None in suspected:
            text = to_json(value)  # which escapes no sign of a built-in kind, unless a string does
            suspected = self._suspects.within(text)
        if _HIDDEN in suspected:
            for hidden in _hidden_texts(value):
                suspected |= self._suspects.within(to_json(hidden))
        steps = [step for step in self._steps if step.kind is None or None in suspected or step.kind in suspected]
        redacted = _Walk(steps, True).redacted(value) if steps else value
        if answer and isinstance(redacted, dict):
            redacted = _without_tokens(redacted, answer_redacted=redacted is not value, prompt_redacted=prompt_redacted)
        return (value, text) if redacted is value else (redacted, to_json(redacted))

    @cached_property
    def _suspects(self) -> Suspects:
        return Suspects(self._kind_signs())

    def _kind_signs(self) -> dict[str, tuple[str, ...]]:
        signs = {step.kind: KINDS[step.kind].signs for step in self._steps if step.kind}
        return signs | {_HIDDEN: _HIDDEN_SIGNS} if self._steps else signs


class _Walk:
    """One way through a JSON value."""

    def __init__(self, steps: Sequence[Step], strict: bool) -> None:
        self._steps = steps
        self._strict = strict

    def redacted(self, value: Any) -> Any:
        """A redacted copy of the value, or the value itself where nothing changes."""
        root, changed = [value], False
        pending: list[tuple[Any, str]] = [(root, "")]
        while pending:  # no recursion: a caller decides how deep its JSON is
            node, name = pending.pop()
            if isinstance(node, dict):
                changed |= self._keys(node)
            else:
                changed |= self._split(node)
            items: Iterable[tuple[Any, Any]] = node.items() if isinstance(node, dict) else enumerate(node)
            for key, child in items:
                field = _name_of(node, key) if isinstance(node, dict) else name
                if isinstance(child, str):
                    node[key] = self._value(field, child)
                    changed |= node[key] != child
                elif isinstance(child, dict | list):
                    node[key] = child.copy()
                    pending.append((node[key], field))
        return root[0] if changed else value

    def _keys(self, node: dict[str, Any]) -> bool:
        """Redact the keys of an object in its place; returns whether one changed."""
        names = {key: key if _FIELD.fullmatch(key) else self._text(key) for key in node}
        if all(key == name for key, name in names.items()):
            return False
        items = list(node.items())
        node.clear()
        for key, child in items:
            name, number = names[key], 1
            while name in node:  # two secrets are two keys
                number += 1
                name = f"{names[key]} {number}"
            node[name] = child
        return True

    def _split(self, node: list[Any]) -> bool:
        """Take out of the parts of a message, in their place, what begins in one and ends in another."""
        changed = False
        parts = _parts(node)
        if len(parts) < 2:
            return False
        for step in self._steps:
            texts = [node[index]["text"] for index in parts]
            for index, old, new in zip(parts, texts, step.redact_split(texts), strict=True):
                if new != old:
                    node[index] = {**node[index], "text": new}
                    changed = True
        return changed

    def _value(self, name: str, value: str) -> str:
        """The value of a field, redacted."""
        for step in self._steps:
            if name and step.is_value(name, value):
                return step.label
        return self._text(value)

    def _text(self, text: str) -> str:
        try:
            return self._with_urls(text, 0)
        except RedactionFailed as error:
            if self._strict:
                raise
            return error.label

    def _with_urls(self, text: str, depth: int) -> str:
        if "data:" not in text and "data:" not in text.lower():
            return self._plain(text)
        parts = DATA_URL.split(text)  # odd parts are data URLs
        parts[::2] = map(self._plain, parts[::2])
        parts[1::2] = [self._url(url, depth) for url in parts[1::2]]
        return "".join(parts)

    def _plain(self, text: str, *, percent: bool = False) -> str:
        for step in self._steps:
            text = step.redact(text, percent)
        return text

    def _url(self, url: str, depth: int) -> str:
        data = DataUrl(url)
        if not data.base64:
            return self._plain(url, percent=True)
        if data.text is None or depth == _MAX_URLS:
            return url
        redacted = self._with_urls(data.text, depth + 1)
        return url if redacted == data.text else data.with_text(redacted)


def _hidden_texts(value: Any) -> Iterator[str]:
    """Yield the texts in which `_HIDDEN` found a sign."""
    pending = [value]
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            parts = _parts(node)
            if len(parts) > 1:
                yield "".join(node[index]["text"] for index in parts)
            pending += node
        elif isinstance(node, dict):
            pending += [*node, *node.values()]
        elif isinstance(node, str) and "data:" in node.lower():
            for data in map(DataUrl, DATA_URL.findall(node)):
                if data.text is not None:
                    yield data.text if data.base64 else percent_unescaped(data.text).text
                    pending.append(data.text if data.base64 else "")


def _parts(node: list[Any]) -> list[int]:
    """Return the positions of the text parts in a message's content."""
    return [index for index, part in enumerate(node) if isinstance(part, dict) and isinstance(part.get("text"), str)]


def _name_of(node: Mapping[str, Any], key: str) -> str:
    """The name of a field's value: its key, or what stands beside it in `{"name": ..., "value": ...}`."""
    if key == "value":
        for beside in ("name", "key"):
            if isinstance(node.get(beside), str):
                return str(node[beside])
    return key


def _without_tokens(answer: dict[str, Any], *, answer_redacted: bool, prompt_redacted: bool) -> dict[str, Any]:
    """The answer without the fields that spell a text of it again; the very same where it has none."""
    fields = (*(_TOKEN_FIELDS if answer_redacted else ()), *(_PROMPT_FIELDS if prompt_redacted else ()))
    if not fields:
        return answer

    def emptied(record: dict[str, Any]) -> dict[str, Any]:
        told = {name: None for name in fields if record.get(name) is not None}
        return {**record, **told} if told else record

    without = _with_each(emptied(answer), "choices", emptied)
    return _with_each(without, "output", lambda item: _with_each(item, "content", emptied))  # of the Responses API


def _with_each(record: dict[str, Any], name: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """The record with each object of one of its lists changed; the very same if none changes."""
    before = record.get(name)
    if not isinstance(before, list):
        return record
    after = [change(each) if isinstance(each, dict) else each for each in before]
    same = all(new is old for new, old in zip(after, before, strict=True))
    return record if same else {**record, name: after}
