"""Sequences that decode together on one model, joining and leaving between steps.

Own code because transformers' continuous batching (5.23) was measured on CPU first: with 32 sequences it took three
times as long to read the prompts and twice as long for a token, since its attention there masks all sequences against
all. Here the sequences are rows of one key-value cache, padded on the left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from transformers import Cache, DynamicLayer, PreTrainedModel

from slipstream.embedded.families import Families, Family, Prompt
from slipstream.embedded.finished import Finished

_SPARE = 128  # cache columns added at a time: growing copies the cache, spare columns cost memory
_FINISHED_BYTES = 512 * 1024**2  # of answers that have ended: of SmolLM2, 22,000 tokens


class _Layer(DynamicLayer):  # type: ignore[no-untyped-call]
    """Writes into the batch's tensor; a plain DynamicLayer copies its whole cache for every token.

    Args:
        room: shape (2 for key and value, rows, heads, capacity, head size).
        length: how many columns of it are in use.
    """

    def __init__(self, room: Tensor, length: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.lazy_initialization(room, room)
        self._room, self._length = room, length
        self.keys, self.values = room[:, :, :, :length].unbind()

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        start = self._length
        self._length += key_states.shape[2]
        self._room[0, :, :, start : self._length] = key_states
        self._room[1, :, :, start : self._length] = value_states
        self.keys, self.values = self._room[:, :, :, : self._length].unbind()
        return self.keys, self.values


@dataclass(frozen=True)
class _Read:
    """A family's prompts after their pass through the model: keys and values, which columns count, last logits."""

    family: Family
    room: Tensor
    mask: Tensor
    logits: Tensor


class Batch:
    """Rows keep their order: new ones come after the others, and the rest move up when some leave.

    Not safe for threads. Call under `torch.inference_mode()`.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        config = model.config.get_text_config()
        heads = config.num_key_value_heads
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        # layers, key and value, rows, heads, capacity, head size
        self._room = torch.zeros(config.num_hidden_layers, 2, 0, heads, 0, size, dtype=model.dtype)
        self._mask = torch.zeros(0, 0, dtype=torch.long)  # rows, columns in use; 0 where padded
        self._cache = Cache(layers=[])
        self._tokens: list[list[int]] = []  # of each row, as far as its keys and values go
        self._finished = Finished(_FINISHED_BYTES)

    @property
    def families(self) -> Families:
        """Return the families of current and past rows, for the arrangement of new prompts."""
        return Families.of_rows([*map(tuple, self._tokens), *self._finished])

    @property
    def token_bytes(self) -> int:
        """Memory that one column of one row takes."""
        layers, pair, _, heads, _, size = self._room.shape
        return layers * pair * heads * size * self._room.element_size()

    def join(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """Reads the prompts as new rows. Equal prompts are read once, and so is what related ones begin with;
        what a row holds of it, or held when it left, is not read at all.

        Returns:
            The logits of the first token after each prompt, shape (prompts, vocabulary).
        """
        rows_of: dict[Prompt, list[int]] = {}
        for row, prompt in enumerate(map(tuple, prompts), start=len(self._mask)):
            rows_of.setdefault(prompt, []).append(row)
        read = [self._read(family) for family in reduce(Families.and_also, rows_of, self.families).all]

        held = self._mask.shape[1]
        length = max(held, *(each.mask.shape[1] for each in read))
        layers, pair, rows, heads, _, size = self._room.shape
        # zeros: what lies under the padding is multiplied by an attention of 0, which must not meet a NaN
        room = self._room.new_zeros(layers, pair, rows + len(prompts), heads, length + _SPARE, size)
        room[:, :, :rows, :, length - held : length] = self._room[:, :, :, :, :held]
        mask = torch.zeros(rows + len(prompts), length, dtype=torch.long)
        mask[:rows, length - held :] = self._mask
        logits = torch.empty(len(prompts), read[0].logits.shape[1], dtype=read[0].logits.dtype)
        for each in read:
            first = length - each.mask.shape[1]
            for index, prompt in enumerate(each.family.prompts):
                places = rows_of[prompt]
                room[:, :, places, :, first:length] = each.room[:, :, index : index + 1]
                mask[places, first:] = each.mask[index]
                logits[[place - rows for place in places]] = each.logits[index]
        self._settle(room, mask)
        self._tokens += map(list, prompts)
        return logits

    def step(self, tokens: Sequence[int]) -> Tensor:
        """Appends one token to each row and returns the logits of the next, shape (rows, vocabulary)."""
        length = self._mask.shape[1]
        if length == self._room.shape[4]:
            grown = torch.nn.functional.pad(self._room, (0, 0, 0, _SPARE))
            self._settle(grown, self._mask)
        self._mask = torch.cat([self._mask, torch.ones(len(tokens), 1, dtype=torch.long)], dim=1)
        for row, token in zip(self._tokens, tokens, strict=True):
            row.append(token)
        return self._forward(torch.tensor(tokens)[:, None], self._mask, self._cache)

    def keep(self, rows: Sequence[int]) -> None:
        """Lets go of the other rows, and of the columns that are padding in all that stay."""
        for row in set(range(len(self._tokens))) - set(rows):
            self._finished.add(tuple(self._tokens[row]), self._columns(row, len(self._tokens[row])))
        mask = self._mask[list(rows)]
        length = mask.shape[1]
        first = int(mask.any(dim=0).float().argmax()) if len(rows) else length
        room = torch.nn.functional.pad(self._room[:, :, list(rows), :, first:length], (0, 0, 0, _SPARE))
        self._settle(room, mask[:, first:])
        self._tokens = [self._tokens[row] for row in rows]

    def forget(self) -> None:
        """For new weights: what has left was read with the old ones."""
        self._finished.clear()

    def _read(self, family: Family) -> _Read:
        """Each row is what the family shares, then padding, then what is left of the prompt."""
        layers, pair, _, heads, _, size = self._room.shape
        count, shared = len(family.prompts), family.shared
        rests = [prompt[shared:] for prompt in family.prompts]
        width = max(map(len, rests))
        room = self._room.new_zeros(layers, pair, count, heads, shared + width, size)
        if family.held is not None:
            room[:, :, :, :, :shared] = self._held(family.held, shared)
        elif shared:
            once = self._room.new_zeros(layers, pair, 1, heads, shared, size)
            begin = torch.tensor([family.prompts[0][:shared]])
            self._forward(begin, torch.ones_like(begin), Cache(layers=[_Layer(layer, 0) for layer in once]))
            room[:, :, :, :, :shared] = once
        ids = torch.tensor([[0] * (width - len(rest)) + list(rest) for rest in rests])
        mask = torch.tensor([[1] * shared + [0] * (width - len(rest)) + [1] * len(rest) for rest in rests])
        logits = self._forward(ids, mask, Cache(layers=[_Layer(layer, shared) for layer in room]))
        return _Read(family, room, mask, logits)

    def _held(self, tokens: Prompt, count: int) -> Tensor:
        if tokens in self._finished:
            return self._finished[tokens][:, :, :, :, :count]
        return self._columns(self._tokens.index(list(tokens)), count)

    def _columns(self, row: int, count: int) -> Tensor:
        """Keys and values of a row's first tokens."""
        return self._room[:, :, row : row + 1, :, self._mask[row].nonzero()[:count, 0]]

    def _settle(self, room: Tensor, mask: Tensor) -> None:
        self._room, self._mask = room, mask
        self._cache = Cache(layers=[_Layer(layer, mask.shape[1]) for layer in room])

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
