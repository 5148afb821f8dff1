"""Special tokens of a tokenizer, as the texts that a chat template turns into them."""

from __future__ import annotations

from typing import Any


def special_texts(tokenizer: Any) -> frozenset[str]:
    """Return the texts of all special tokens of a Hugging Face tokenizer.

    `all_special_tokens` has those with a name alone. Turns of Phi-3 (`<|end|>`) and Llama 3 (`<|start_header_id|>`) are
    written with others, which only the list of added tokens calls special.
    """
    added = {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special}
    return frozenset(added | {str(token) for token in tokenizer.all_special_tokens})
