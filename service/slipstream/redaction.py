"""Personal data and secrets are taken out of what is captured, before it is stored."""

from __future__ import annotations

import re
from typing import Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

BuiltIn = Literal["api_key", "email", "phone", "credit_card", "ip"]


class RedactRule(BaseModel):
    """What to look for: a built-in kind by its name, or a pattern of one's own.

    Attributes:
        name: stands in the text's place, as `[redacted:name]`.
        pattern: a regular expression, or None for the built-in kind of that name.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1, max_length=64)
    pattern: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.pattern is None:
            if self.name not in get_args(BuiltIn):
                raise ValueError(f"one of {', '.join(get_args(BuiltIn))}, or {{name, pattern}}")
            return self
        try:
            matches_nothing = re.compile(self.pattern).match("")
        except re.error as error:
            raise ValueError(f"a pattern that is a regular expression ({error})") from error
        if matches_nothing:
            raise ValueError("a pattern that does not match the empty text")
        return self
