"""The section `selection`: a tree of strategies, each a mapping with exactly one key."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from slipstream.config.units import PositiveDuration
from slipstream.user_code.python_object import PythonPath, check_call, load_object, may_import

DEFAULT_MARK_TTL = 60.0


def _some(items: tuple[Any, ...]) -> tuple[Any, ...]:
    if not items:
        raise ValueError("at least one item")
    return items


# A validator of our own: `min_length` counts the valid items, and complains of good length where one is bad.
Some = AfterValidator(_some)
Names = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Some]


class _Strategy(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Sampling(_Strategy):
    """A share of all tasks, by hash of the task id."""

    rate: float = Field(ge=0, le=1)
    seed: int = 0


class ExplicitMark(_Strategy):
    """Tasks that somebody marked, by header or by `POST /marks`."""

    ttl: PositiveDuration = DEFAULT_MARK_TTL
    labels: Names | None = None


class Labels(_Strategy):
    """Tasks that carry at least one of `any_of`, and each of `all_of`."""

    any_of: Names | None = None
    all_of: Names | None = None

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.any_of is None and self.all_of is None:
            raise ValueError("any_of or all_of, a list of labels")
        return self


class Model(_Strategy):
    """Tasks for one of the named production models, or for one whose whole name fits a pattern."""

    names: Names | None = None
    patterns: Annotated[tuple[re.Pattern[str], ...], Some] | None = None

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.names is None and self.patterns is None:
            raise ValueError("names or patterns, a list")
        return self


class HasTools(_Strategy):
    """Tasks that offered tools to the model (`value: true`), or that offered none."""

    value: bool = True


class Budget(_Strategy):
    """At most so many tasks in any hour."""

    tasks_per_hour: int = Field(ge=1)


def check_select(select: Any) -> None:
    """Refuse what cannot decide about a task.

    Raises:
        ValueError: it cannot be called, or is asynchronous.
    """
    if not callable(select):
        found = type(select).__name__
        raise ValueError(f"a function of a task, or a class or an object with select(task); found {found}")  # noqa: TRY004
    if inspect.iscoroutinefunction(select):
        raise ValueError("plain code; found a coroutine function")


class Python(_Strategy):
    """A strategy of one's own: a function of a task, or a class with `select(task)`, given `params`."""

    object: PythonPath
    params: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return {"object": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if not may_import():
            return self
        found = load_object(self.object)
        if not inspect.isclass(found):  # an object of a class is looked at when it is made
            select = getattr(found, "select", found)
            check_select(select)
            check_call(select, "a task", self.params, self.object)
        return self


def _without_budget(settings: SelectionSettings) -> SelectionSettings:
    if any(member.budget for member in settings.walk()):
        raise ValueError("a strategy without a budget, which is spent by what is selected")
    return settings


class SelectionSettings(_Strategy):
    """One strategy, or one combination of strategies.

    The bare name, or a name without a value, stands for the strategy with its defaults.
    """

    sampling: Sampling | None = None
    explicit_mark: ExplicitMark | None = None
    labels: Labels | None = None
    model: Model | None = None
    has_tools: HasTools | None = None
    budget: Budget | None = None
    python: Python | None = None
    all: Annotated[tuple[SelectionSettings, ...], Some] | None = None
    any: Annotated[tuple[SelectionSettings, ...], Some] | None = None
    not_: Annotated[SelectionSettings, AfterValidator(_without_budget)] | None = Field(default=None, alias="not")

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {value: {}}
        if isinstance(value, dict) and len(value) == 1:
            return {name: {} if parameters is None else parameters for name, parameters in value.items()}
        return value

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        given = [
            info.alias or name for name, info in type(self).model_fields.items() if getattr(self, name) is not None
        ]
        if len(given) != 1:
            known = ", ".join(info.alias or name for name, info in type(self).model_fields.items())
            raise ValueError(f"exactly one strategy of {known}; found {', '.join(given) or 'none'}")
        return self

    def members(self) -> tuple[SelectionSettings, ...]:
        """Return the strategies that this combination combines; empty for a plain strategy."""
        return self.all or self.any or ((self.not_,) if self.not_ else ())

    def walk(self) -> Iterator[SelectionSettings]:
        """This strategy and every one below it."""
        yield self
        for member in self.members():
            yield from member.walk()

    def mark_ttl(self) -> float:
        """Seconds that a mark waits for a task not seen yet: the largest `ttl` in the tree."""
        return max((node.explicit_mark.ttl for node in self.walk() if node.explicit_mark), default=DEFAULT_MARK_TTL)
