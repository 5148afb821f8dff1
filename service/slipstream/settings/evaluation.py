"""The section `evaluation` of sidecar.yaml: suites of cases that versions are evaluated on."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator

from slipstream.config.cron import CronExpression, TimeZone
from slipstream.config.file_path import FilePath
from slipstream.settings.section import Section


class HeldOut(Section):
    """Cases from the newest sessions of the live traffic that no version was trained on: so many sessions."""

    sessions: int = Field(ge=1, le=10_000)


class Suite(Section):
    """One suite: its cases, when versions are evaluated on it by themselves, and how.

    Exactly one of `cases`, a JSONL file, and `heldout`. At most one of `every`, for each so many versions that the
    Explorer serves, and `schedule`; without both an evaluation has to be asked for. Each case is asked `repeat` times.
    An answer with a reward of `threshold` or more is a success. `production` is the model that production is asked
    for, on the same cases; of held-out sessions production's answer is stored. `parameters` are fields of the request.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    cases: FilePath = None
    heldout: HeldOut | None = None
    every: Annotated[int, Field(ge=1)] | None = None
    schedule: CronExpression | None = None
    timezone: TimeZone = "UTC"
    repeat: int = Field(default=1, ge=1, le=100)
    threshold: float = Field(default=0.9, allow_inf_nan=False)
    production: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _has_cases(self) -> Self:
        if (self.cases is None) is (self.heldout is None):
            raise ValueError("exactly one of cases and heldout")
        if self.every is not None and self.schedule is not None:
            raise ValueError("one of every and schedule at most")
        if self.heldout is not None and self.production is not None:
            raise ValueError("no production with heldout: the stored answers of production are taken")
        return self


def _different_names(suites: tuple[Suite, ...]) -> tuple[Suite, ...]:
    names = Counter(suite.name for suite in suites)
    if twice := [name for name, times in names.items() if times > 1]:
        raise ValueError(f"a name of its own for each suite; found more than one {', '.join(twice)}")
    return suites


class Evaluation(Section):
    """Evaluations of versions, and when a version counts as better, worse or equal: `docs/evaluation.md`.

    `calls_per_hour`: calls of models in any hour, of all sidecars on one store together; null for no limit.
    `margin`: in parts of the range of rewards. `level`: the error rate, divided among a version's sources.
    """

    suites: Annotated[tuple[Suite, ...], AfterValidator(_different_names)] = ()
    calls_per_hour: Annotated[int, Field(ge=1)] | None = 1000
    concurrency: int = Field(default=4, ge=1, le=256)
    margin: float = Field(default=0.05, gt=0, lt=1)
    level: float = Field(default=0.05, gt=0, lt=1)

    def suite(self, name: str) -> Suite | None:
        """Return the suite of this name, if there is one."""
        return next((suite for suite in self.suites if suite.name == name), None)
