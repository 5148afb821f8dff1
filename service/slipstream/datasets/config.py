"""`data.yaml`: what a data set is made of, and what is trained on it."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from slipstream.config.problems import describe
from slipstream.config.yaml_text import read_yaml
from slipstream.datasets.row import Kind
from slipstream.errors import ConfigError

Share = Annotated[float, Field(ge=0, le=1)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Names = tuple[Annotated[str, Field(min_length=1)], ...]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Filters(_Part):
    """Conditions on an answer; all of those that are given must hold.

    Attributes:
        min_reward, max_reward: an answer without a reward holds for neither.
        liked: true for answers whose users' feedback is above the middle of `rewards.clip`, false for those below it.
        labels: the task has one of these.
        models: the production model that was asked is one of these. For answers of the policy: of the repeated call.
        since, until: when the answer was stored; with a time zone.
    """

    min_reward: Number | None = None
    max_reward: Number | None = None
    liked: bool | None = None
    labels: Names = ()
    models: Names = ()
    since: datetime | None = None
    until: datetime | None = None

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        for name in ("since", "until"):
            value = getattr(self, name)
            if value is not None and value.tzinfo is None:
                raise ValueError(f"{name}: a time with its zone, such as 2026-11-01T00:00:00Z")
        return self


class OfProduction(Filters):
    """Answers of the production model: training on them is distillation, which its terms may forbid."""


class OfPolicy(Filters):
    """Answers of the policy's runs.

    Attributes:
        best_of_group: so many of each group, those with the highest rewards; None for all.
        versions: that answered; empty for all.
        runs: how the run came about; empty for both.
    """

    best_of_group: Annotated[int, Field(ge=1)] | None = None
    versions: tuple[Annotated[int, Field(ge=0)], ...] = ()
    runs: tuple[Literal["shadow_call", "agent_replay"], ...] = ()


class SourceOf(_Part):
    """A source of rows: exactly one of the two."""

    production: OfProduction | None = None
    policy: OfPolicy | None = None

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.production is None) is (self.policy is None):
            raise ValueError("exactly one of production and policy")
        return self


class Pairs(_Part):
    """Pairs of a preference data set.

    Attributes:
        from_: where they come from.
        min_margin: least difference of the two rewards; of `preferences` and `thumbs` none is asked.
        per_group: pairs of one group at most, those with the largest margin.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    from_: Annotated[
        tuple[Literal["runs", "production_vs_policy", "preferences", "thumbs"], ...], Field(alias="from", min_length=1)
    ] = ("runs",)
    min_margin: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.2
    per_group: Annotated[int, Field(ge=1)] = 1


class Corrections(_Part):
    """Corrections of a data set of kind `correction`.

    Attributes:
        from_: the user's next message where it corrects the answer; comments of feedback, if its reward is below the
            middle of `rewards.clip`, or if it has none and the comment is a correction.
        answers_of: who gave the answers that were corrected. Those of the policy were given in a rollout.
        min_score: of the detector, from which a message counts as a correction.
        judge: let the sidecar's `judge` calculator decide on messages that have no sign against it.
        per_session: so many of one session at most, so that no user steers more than that.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    from_: Annotated[tuple[Literal["next_message", "comment"], ...], Field(alias="from", min_length=1)] = (
        "next_message",
        "comment",
    )
    answers_of: Annotated[tuple[Literal["production", "policy"], ...], Field(min_length=1)] = ("production", "policy")
    min_score: Share = 0.5
    judge: bool = False
    per_session: Annotated[int, Field(ge=1)] = 3


class HeldOut(_Part):
    """Sessions that go into the held-out split. Without a share it is the sidecar's `datasets.held_out`, and then
    reinforcement learning was not trained on them either."""

    by: Literal["session"] = "session"
    share: Share | None = None


class Duplicates(_Part):
    """Equal rows are always dropped. `near`: rows of which so much is alike too, by the Jaccard similarity of their
    5-grams of words; None for equal ones only."""

    near: Annotated[float, Field(gt=0, le=1)] | None = None


class Coreset(_Part):
    """A part of the training rows: `size` rows, or a `share` of them.

    `loss_topk` takes those with the highest loss under the policy, `diversity` those that are most different,
    `hybrid` half by each, `random` any.
    """

    strategy: Literal["loss_topk", "diversity", "hybrid", "random"] = "hybrid"
    size: Annotated[int, Field(ge=1)] | None = None
    share: Annotated[float, Field(gt=0, lt=1)] | None = None
    seed: int = 0

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.size is None) is (self.share is None):
            raise ValueError("exactly one of size and share")
        return self


class Replay(_Part):
    """Rows of earlier data sets that are mixed into training, so that what they taught is kept.

    Attributes:
        datasets: names of the earlier data sets.
        buffer: so many of their rows at most, by reservoir sampling.
        ratio: of the rows that are trained on, the share that comes from the buffer.
    """

    datasets: Annotated[Names, Field(min_length=1)]
    buffer: Annotated[int, Field(ge=1)] = 4096
    ratio: Annotated[float, Field(gt=0, lt=1)] = 0.3


class Dataset(_Part):
    """A data set.

    Attributes:
        name: of its folder.
        kind: what each row teaches.
        format: of the files.
        files: how they are written.
        sources: of `sft` and `kto`.
        pairs: of `preference`.
        corrections: of `correction`.
        tenants: whose tasks; empty for all.
        held_out: which sessions are kept for evaluation.
        dedup: which rows count as the same.
        task_weights: weights of the rows of tasks with these labels, in training.
        score: score production's answers by the sidecar's `rewards`, in as far as these can judge an answer alone.
        coreset: a choice among the rows, made before training.
        replay: rows of earlier data sets.
        seed: of everything that is drawn.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    kind: Kind = Kind.SFT
    format: Literal["trl", "openai", "trinity", "sharegpt"] = "trl"
    files: Literal["jsonl", "parquet"] = "jsonl"
    sources: tuple[SourceOf, ...] = ()
    pairs: Pairs | None = None
    corrections: Corrections | None = None
    tenants: Names = ()
    held_out: HeldOut = HeldOut()
    dedup: Duplicates = Duplicates()
    task_weights: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(default_factory=dict)
    score: bool = True
    coreset: Coreset | None = None
    replay: Replay | None = None
    seed: int = 0

    @model_validator(mode="after")
    def _has_rows(self) -> Self:
        made_of = {Kind.PREFERENCE: "pairs", Kind.CORRECTION: "corrections"}.get(self.kind, "sources")
        given = [name for name in ("sources", "pairs", "corrections") if getattr(self, name)]
        if given != [made_of]:
            raise ValueError(f"of sources, pairs and corrections only {made_of}, for kind {self.kind}")
        if self.kind in (Kind.KTO, Kind.CORRECTION) and self.format != "trl":
            raise ValueError(f"format trl for kind {self.kind}")
        return self


class Train(_Part):
    """Training on the data set.

    Attributes:
        engine: that trains: ours, or Trinity-RFT in a job of its own, for kinds sft and preference in its format.
        trainer: the Trainer's file; its job is the one that gets the new version.
        overlays: files over it; `overlays/sft.yaml` and its like say the algorithm.
        start: the version that training goes on from: the newest one, the base model, or a number.
    """

    engine: Literal["embedded", "trinity"] = "embedded"
    trainer: Path = Path("trainer.yaml")
    overlays: tuple[Path, ...] = ()
    start: Literal["latest", "base"] | Annotated[int, Field(ge=1)] = "latest"


class DataFile(_Part):
    """The whole file."""

    dataset: Dataset
    train: Train = Train()

    @model_validator(mode="after")
    def _can_be_trained(self) -> Self:
        dataset = self.dataset
        if self.train.engine != "trinity":
            return self
        if dataset.kind in (Kind.KTO, Kind.CORRECTION):
            raise ValueError(f"train.engine embedded for kind {dataset.kind}: Trinity-RFT has no such algorithm")
        if dataset.format != "trinity":
            raise ValueError(f"dataset.format trinity for train.engine trinity; found {dataset.format}")
        if dataset.coreset is not None and dataset.coreset.strategy != "random":
            raise ValueError(
                "dataset.coreset.strategy random for train.engine trinity, as the others need the embedded engine's "
                f"forward pass over the rows; found {dataset.coreset.strategy}"
            )
        return self


def load_data_file(path: Path) -> DataFile:
    """Read `data.yaml`.

    Raises:
        ConfigError: it cannot be read, or a key is wrong; names the file and the key.
    """
    raw = read_yaml(path)
    try:
        return DataFile.model_validate(raw)
    except ValidationError as error:
        raise ConfigError(*(f"{path}: {line}" for line in describe(error, DataFile, {}))) from error
