"""The end of a replay, as its agent states it, by `POST .../finish` or in its answer to a webhook."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, model_validator

from slipstream.http.body import Body, in_range
from slipstream.store.replays import Ending

Component = Annotated[str, Field(min_length=1, max_length=256)]


class SideEffect(Body):
    """Outcome of a tool with side effects: its recorded result was given, it was blocked, it gave the result that its
    owner set for that, its sandbox ran, or it was refused as production's call was, which nobody approved."""

    tool: Annotated[str, Field(min_length=1, max_length=256)]
    outcome: Literal["recorded", "blocked", "fallback", "sandboxed", "refused"]


class EndingBody(Body):
    """Result of a run: its reward, or why it is to be dropped. Without both, the calculators give the reward."""

    reward: float | None = None
    breakdown: Annotated[dict[Component, float], Field(max_length=100)] = Field(default_factory=dict)
    error: Annotated[str, Field(min_length=1, max_length=10_000)] | None = None
    metadata: dict[str, JsonValue] = Field(default_factory=dict)
    side_effects: Annotated[list[SideEffect], Field(max_length=1000)] = Field(default_factory=list)

    @model_validator(mode="after")
    def _says_one_thing(self) -> Self:
        if self.reward is not None and self.error is not None:
            raise ValueError("reward or error, found both")
        return self

    def as_ending(self, low: float, high: float) -> Ending:
        """
        Raises:
            RequestError: the reward is out of this range.
        """
        if self.reward is not None:
            in_range(self.reward, low, high)
        return Ending(self.reward, self.breakdown, self.error, self.model_dump(exclude_defaults=True))
