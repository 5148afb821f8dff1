"""What all control bodies have in common, and what errors look like."""

from __future__ import annotations

import json
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

MsgId = Annotated[str, Field(min_length=1, max_length=256)]
Name = Annotated[str, Field(min_length=1, max_length=64)]


class Body(BaseModel):
    """A JSON body: no unknown fields, no conversions, and nothing that the store or JSON cannot hold."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="after")
    def _can_be_kept(self) -> Self:
        for name, value in self.model_dump().items():
            try:
                json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
            except UnicodeEncodeError:
                raise ValueError(f"{name}: expected valid Unicode, found half of a surrogate pair") from None
            except ValueError:
                raise ValueError(f"{name}: expected finite numbers, found NaN or Infinity") from None
        return self


class Problem(BaseModel):
    """What is wrong, for a person (`message`) and for a program; `param` is the path of the field."""

    message: str
    type: str
    code: str | None
    param: str | None


class Refusal(BaseModel):
    """The body of every error, in OpenAI's format (see `slipstream.errors.error_body`)."""

    error: Problem
