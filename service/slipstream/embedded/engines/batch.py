"""Sequences that decode together on one model, joining and leaving between steps.

transformers' own `generate` cannot take a request into a running batch, and its continuous batching takes no seed for
a request; both were measured to be slower on a CPU (docs/embedded.md, "How fast"). Here the sequences are rows of one
key-value cache, padded on the left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import Cache, DynamicLayer, PreTrainedModel

from slipstream.embedded.engines.prefixes import PrefixCache

_SPARE = 128  # cache columns added at a time: growing copies the cache, spare columns cost memory
_PREFIX_BYTES = 512 * 1024**2  # of prompts and answers that were read before: of SmolLM2, 22,000 tokens


class _Layer(DynamicLayer):  # type: ignore[no-untyped-call]
    """Writes into the batch's tensor; a plain DynamicLayer copies its whole cache for every token.

    Args:
        state: shape (2 for key and value, rows, heads, capacity, head size).
        length: how many columns of it are in use.
    """

    def __init__(self, state: Tensor, length: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.lazy_initialization(state, state)
        self._state, self._length = state, length
        self.keys, self.values = state[:, :, :, :length].unbind()

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        start = self._length
        self._length += key_states.shape[2]
        self._state[0, :, :, start : self._length] = key_states
        self._state[1, :, :, start : self._length] = value_states
        self.keys, self.values = self._state[:, :, :, : self._length].unbind()
        return self.keys, self.values


class Batch:
    """Rows keep their order: new ones come after the others, and the rest move up when some leave.

    Not safe for threads. Call under `torch.inference_mode()`.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        config = model.config.get_text_config()
        heads = config.num_key_value_heads
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self._device = model.device
        # layers, key and value, rows, heads, capacity, head size
        self._state = torch.zeros(
            config.num_hidden_layers, 2, 0, heads, 0, size, dtype=model.dtype, device=self._device
        )
        self._mask = torch.zeros(0, 0, dtype=torch.long, device=self._device)  # rows, columns in use; 0 where padded
        self._cache = Cache(layers=[])
        self._tokens: list[list[int]] = []  # of each row, as far as its keys and values go
        self._prefixes = PrefixCache(_PREFIX_BYTES)

    @property
    def token_bytes(self) -> int:
        """Memory that one column of one row takes."""
        layers, pair, _, heads, _, size = self._state.shape
        return layers * pair * heads * size * self._state.element_size()

    def join(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """Reads the prompts as new rows. Of a prompt only those tokens are read that do not stand at the beginning of
        another one, or of an answer, that was read before.

        Returns:
            The logits of the first token after each prompt, shape (prompts, vocabulary).
        """
        read = {prompt: self._read(prompt) for prompt in dict.fromkeys(map(tuple, prompts))}
        rows = [read[tuple(prompt)] for prompt in prompts]
        held = self._mask.shape[1]
        length = max(held, *map(len, prompts))
        # pad with zeros: what lies under the padding is multiplied by an attention of 0, which must not meet a NaN
        states = [_padded(self._state[..., :held, :], length, _SPARE)]
        states += [_padded(state, length, _SPARE) for state, _ in rows]
        masks = [self._padding(prompt, length) for prompt in prompts]
        self._settle(torch.cat(states, dim=2), torch.cat([pad(self._mask, (length - held, 0)), *masks]))
        self._tokens += map(list, prompts)
        return torch.cat([logits for _, logits in rows])

    def step(self, tokens: Sequence[int]) -> Tensor:
        """Appends one token to each row and returns the logits of the next, shape (rows, vocabulary)."""
        if self._mask.shape[1] == self._state.shape[4]:
            self._settle(pad(self._state, (0, 0, 0, _SPARE)), self._mask)
        self._mask = pad(self._mask, (0, 1), value=1)
        for row, token in zip(self._tokens, tokens, strict=True):
            row.append(token)
        return self._forward(torch.tensor(tokens, device=self._device)[:, None], self._mask, self._cache)

    def keep(self, rows: Sequence[int]) -> None:
        """Drops the other rows, and the columns that are padding in all that stay."""
        length = self._mask.shape[1]
        for row in set(range(len(self._tokens))) - set(rows):
            tokens = self._tokens[row]
            self._prefixes.add(tokens, self._state[:, :, row : row + 1, :, length - len(tokens) : length].clone())
        mask = self._mask[list(rows)]
        first = int(mask.any(dim=0).float().argmax()) if len(rows) else length
        self._settle(pad(self._state[:, :, list(rows), :, first:length], (0, 0, 0, _SPARE)), mask[:, first:])
        self._tokens = [self._tokens[row] for row in rows]

    def forget(self) -> None:
        """For new weights: what was read before was read with the old ones."""
        self._prefixes.clear()

    def _read(self, prompt: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Return keys and values of a prompt, and the logits after it."""
        known = self._prefixes.longest(prompt[:-1])  # the last token is read in any case, for its logits
        if known is None:
            layers, pair, _, heads, _, size = self._state.shape
            known = self._state.new_zeros(layers, pair, 1, heads, 0, size)
        shared = known.shape[4]
        state = _padded(known, shared, len(prompt) - shared)
        cache = Cache(layers=[_Layer(layer, shared) for layer in state])
        unread = torch.tensor([prompt[shared:]], device=self._device)
        logits = self._forward(unread, self._padding(prompt, len(prompt)), cache)
        self._prefixes.add(prompt, state)
        return state, logits

    def _padding(self, prompt: Sequence[int], length: int) -> Tensor:
        return torch.tensor([[0] * (length - len(prompt)) + [1] * len(prompt)], device=self._device)

    def _settle(self, state: Tensor, mask: Tensor) -> None:
        self._state, self._mask = state, mask
        self._cache = Cache(layers=[_Layer(layer, mask.shape[1]) for layer in state])

    def _forward(self, ids: Tensor, mask: Tensor, cache: Cache) -> Tensor:
        positions = (mask.cumsum(dim=1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        # A mask of four dimensions is taken as it is. One of two would be left away where nothing is padded, and
        # without a mask transformers takes an attention kernel that is five times slower for one token a row.
        attention = mask.bool()[:, None, None] if ids.shape[1] == 1 else mask
        output = self._model(
            input_ids=ids, attention_mask=attention, position_ids=positions, past_key_values=cache, logits_to_keep=1
        )
        logits: Tensor = output.logits[:, -1]
        return logits


def _padded(state: Tensor, length: int, spare: int) -> Tensor:
    """Keys and values with zeros to the left, up to so many columns, and spare columns to the right."""
    return pad(state, (0, 0, length - state.shape[4], spare))
