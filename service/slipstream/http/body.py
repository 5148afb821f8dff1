"""The base of all control bodies, and the form of errors."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from slipstream.errors import RequestError

MsgId = Annotated[str, Field(min_length=1, max_length=256)]
Name = Annotated[str, Field(min_length=1, max_length=64)]


class Body(BaseModel):
    """A JSON body: no unknown fields, no conversions, and nothing that the store or JSON cannot hold."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @field_validator("*")
    @classmethod
    def _can_be_kept(cls, value: Any) -> Any:
        try:
            json.dumps(value, ensure_ascii=False, allow_nan=False, default=_looks_itself).encode()
        except UnicodeEncodeError:
            raise ValueError("text in valid Unicode, found half of a surrogate pair") from None
        except ValueError:
            raise ValueError("finite numbers, found NaN or Infinity") from None
        return value

    def has_one_of(self, *names: str) -> None:
        """
        Raises:
            ValueError: it has none of these fields, or several.
        """
        given = [name for name in names if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"exactly one of {', '.join(names)}, found {' and '.join(given) or 'none'}")


def _looks_itself(value: Any) -> None:
    """A body within a body has looked at its own fields."""


def in_range(reward: float, low: float, high: float) -> float:
    """The reward.

    Raises:
        RequestError: it is out of this range.
    """
    if not low <= reward <= high:
        text = f"reward: expected a number from {low:g} to {high:g}, found {repr(reward).removesuffix('.0')}"
        raise RequestError(text, param="reward")
    return reward


class Problem(BaseModel):
    """An error, for a person (`message`) and for a program; `param` is the path of the field."""

    message: str
    type: str
    code: str | None
    param: str | None


class Refusal(BaseModel):
    """The body of every error, in OpenAI's format (see `slipstream.errors.error_body`)."""

    error: Problem
