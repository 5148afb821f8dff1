"""The text of a response as it grows: what may be shown already, and where a stop string ends it."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers.decoders import DecodeStream
from transformers import PreTrainedTokenizerBase

from slipstream.dialects.hermes import TOOL_CALL


class ResponseText:
    """Takes tokens one by one and gives the text that no later token can take back.

    Held back are bytes of an unfinished character, what could become a stop string, and, where tool calls are read,
    everything from the first one on.

    Args:
        stop: strings that end the response and are not part of it.
        tools: whether tool calls are to be held back.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, stop: Sequence[str], tools: bool) -> None:
        self.text = ""
        self.stopped = False
        self._backend = tokenizer._tokenizer
        self._decoder = DecodeStream(skip_special_tokens=True)
        self._stop = stop
        self._watched = [*stop, TOOL_CALL] if tools else list(stop)
        self._tools = tools
        self._shown = 0

    def add(self, token_id: int) -> str:
        """The text that can now be shown. After `stopped` is set, no more tokens are wanted."""
        seen = len(self.text)
        self.text += self._decoder.step(self._backend, token_id) or ""
        for stop in self._stop:
            # a stop string that ends in the new text began at most its own length before it
            found = self.text.find(stop, max(0, seen - len(stop) + 1))
            if found >= 0:
                self.text, self.stopped = self.text[:found], True
        end = self.text.find(TOOL_CALL) if self._tools else -1
        if end < 0:
            end = len(self.text) if self.stopped else len(self.text) - self._could_begin()
        return self._show(end)

    def rest(self) -> str:
        """Return the held-back text once the response has ended."""
        return self._show(len(self.text))

    def _show(self, end: int) -> str:
        shown, self._shown = self.text[self._shown : end], max(end, self._shown)
        return shown

    def _could_begin(self) -> int:
        """Length of the longest end of the text with which a watched string begins."""
        longest = max(map(len, self._watched), default=1) - 1
        return next(
            (
                size
                for size in range(min(longest, len(self.text)), 0, -1)
                if any(string.startswith(self.text[-size:]) for string in self._watched)
            ),
            0,
        )
