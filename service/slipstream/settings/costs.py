"""The section `costs` of sidecar.yaml: what tokens cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from slipstream.settings.section import Section
from slipstream.settings.types import EmptyIsNone
from slipstream.usage import Kind, Tokens

_Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]

_Currency = Annotated[str, Field(max_length=16)]

_MILLION = 1_000_000


class Price(Section):
    """The price of a million tokens of prompts, and of answers."""

    input: _Amount = 0.0
    output: _Amount = 0.0


class Costs(Section):
    """Prices of tokens.

    Attributes:
        currency: what prices are in, for people; None where none was set.
        per_million_tokens: by what the tokens are used for.
    """

    currency: Annotated[_Currency | None, EmptyIsNone] = None
    per_million_tokens: Mapping[Kind, Price] = Field(default_factory=dict)

    def of(self, used: Mapping[Kind, Tokens]) -> float | None:
        """The cost of these tokens; None where one of their kinds has no price."""
        if any(kind not in self.per_million_tokens for kind in used):
            return None
        prices = [(self.per_million_tokens[kind], tokens) for kind, tokens in used.items()]
        return sum((price.input * some.input + price.output * some.output) / _MILLION for price, some in prices)
