"""`explorer.yaml` and `trainer.yaml`: the files of a Trinity-RFT user, read by the embedded engine.

The fields are Trinity-RFT's own (0.6.0, `trinity.common.config`), of which the embedded engine knows those below.
Fields that only Trinity knows are accepted and ignored, so that one file serves both engines; of those that change
what is learned the log warns, and a KL term to a reference model is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import structlog
from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from slipstream.embedded.algorithm import Algorithm
from slipstream.embedded.section import Count, Number, Positive, Section
from slipstream.errors import ConfigError
from slipstream.trinity.document import load_document
from slipstream.trinity.job import job_directory

log = structlog.get_logger(__name__)

_SECRETS = ("api_key", "password")  # values that no message shows
_CHANGE_LEARNING = ("algorithm.", "model.")  # sections in which a key without effect is worth a warning


class Lora(Section):
    """Low-rank adapters. With `load_in_4bit` or `load_in_8bit` the weights beside them are kept in so many bits while a
    data set is trained on, which needs a GPU and bitsandbytes; Trinity-RFT has neither of the two."""

    lora_rank: Positive = 32
    lora_alpha: Positive = 32
    target_modules: str | list[str] = "all-linear"
    exclude_modules: str | list[str] | None = None
    load_in_4bit: bool = False
    load_in_8bit: bool = False

    @model_validator(mode="after")
    def _is_one_precision(self) -> Self:
        if self.load_in_4bit and self.load_in_8bit:
            raise ValueError("load_in_4bit and load_in_8bit: expected one of the two, found both")
        return self


class Model(Section):
    """Lengths are in tokens. `max_model_len` bounds prompt and response together."""

    model_path: Annotated[str, Field(min_length=1)]
    max_model_len: Positive | None = None
    max_prompt_tokens: Positive | None = None
    max_response_tokens: Positive | None = None
    temperature: Annotated[Number, Field(ge=0)] = 1.0
    lora_configs: Annotated[list[Lora], Field(max_length=1)] | None = None

    @model_validator(mode="after")
    def _lengths_fit(self) -> Self:
        if self.max_model_len is None and (self.max_prompt_tokens is None or self.max_response_tokens is None):
            raise ValueError("Give max_model_len, or both max_prompt_tokens and max_response_tokens")
        for name in ("max_prompt_tokens", "max_response_tokens"):
            value = getattr(self, name)
            if value is not None and value >= self.context_length:
                raise ValueError(f"{name} ({value}) should be less than max_model_len ({self.context_length})")
        return self

    @property
    def context_length(self) -> int:
        """Most tokens that prompt and response may have together."""
        return self.max_model_len or (self.max_prompt_tokens or 0) + (self.max_response_tokens or 0)


class RolloutModel(Section):
    """`dtype`: auto is bfloat16 where the CPU has it, else float32. The last three are for vLLM as the engine.

    With a `reasoning_parser`, of any of vLLM's names, what stands in `<think>` is told apart from the answer.
    """

    enable_auto_tool_choice: bool = False
    tool_call_parser: Literal["hermes"] | None = None
    reasoning_parser: Annotated[str, Field(min_length=1)] | None = None
    dtype: Literal["auto", "bfloat16", "float32"] = "bfloat16"
    seed: Count = 42
    tensor_parallel_size: Positive = 1
    gpu_memory_utilization: Annotated[Number, Field(gt=0, le=1)] = 0.9
    enforce_eager: bool = False


class Explorer(Section):
    """`service_status_check_interval` is the seconds between two looks for a new checkpoint.

    With `record_experiences: false` no answer is recorded, so that none can be rewarded: for a lane, which answers
    users. Trinity-RFT has no such field.
    """

    listen_address: str = "127.0.0.1"
    proxy_port: Annotated[Count, Field(le=65535)] = 8010
    service_status_check_interval: Annotated[Number, Field(gt=0)] = 60
    record_experiences: bool = True
    rollout_model: RolloutModel = RolloutModel()


class ExperienceBuffer(Section):
    """`path` is an SQLAlchemy URL; without one the buffer is an SQLite file in the job's directory.

    After `max_read_timeout` seconds without anything to train on the Trainer ends; without a number it waits on, as a
    quiet night must not end training (Trinity-RFT's own default is 1800).
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=48)] = "experience_buffer"
    storage_type: Literal["sql"] = "sql"
    path: str | None = None
    max_read_timeout: Annotated[Number, Field(gt=0)] | None = None

    @field_validator("path")
    @classmethod
    def _is_url(cls, path: str | None) -> str | None:
        if path is not None:
            try:
                make_url(path)
            except ArgumentError as error:
                raise ValueError("Input should be a database URL, such as sqlite:////data/buffer.db") from error
        return path


class TrainerInput(Section):
    """`auxiliary_buffers` has the data set of `mix` by its name (`mix_config`); what other algorithms of Trinity-RFT's
    have there is not read."""

    experience_buffer: ExperienceBuffer = ExperienceBuffer()
    auxiliary_buffers: dict[str, Any] = Field(default_factory=dict)


class Buffer(Section):
    """`train_batch_size` is the experiences, or the rows of a data set, of a training step; `total_epochs` is how often
    a data set is gone through."""

    train_batch_size: Positive = 8
    total_epochs: Positive = 1
    trainer_input: TrainerInput = TrainerInput()


class Trainer(Section):
    """`save_interval` is in steps, 0 for never; `total_steps` None trains on for as long as experiences come.

    After `partial_batch_after` seconds in which nothing was committed, what is there is trained on though it is less
    than `buffer.train_batch_size`. (Trinity-RFT has no such field: there, leftovers wait.) The default is twice the
    sidecar's usual commit interval, so that traffic which goes on never gets smaller batches.

    With `step_per_commit` each commit is one training step, however many experiences it brought: for a tuner, whose
    commits are its batches. Trinity-RFT has no such field.

    `dtype` is what is computed with (the weights are kept in float32); auto is bfloat16 where the CPU has it. Trinity-
    RFT has no such field either.

    `max_token_len_per_gpu` bounds the tokens of a data set's rows that are computed together, and
    `gradient_checkpointing` computes each layer again at backward, for less memory at a third more time.
    """

    save_interval: Count = 0
    total_steps: Positive | None = None
    partial_batch_after: Annotated[Number, Field(gt=0)] = 600
    step_per_commit: bool = False
    dtype: Literal["auto", "bfloat16", "float32"] = "auto"
    max_checkpoints_to_keep: Count = 0
    save_hf_checkpoint: Literal["always", "last", "never"] = "last"
    max_token_len_per_gpu: Positive = 4096
    gradient_checkpointing: bool = True


class Synchronizer(Section):
    """`sync_interval` is how many training steps lie between two versions for the Explorer."""

    sync_interval: Positive = 1


class MonitorArguments(Section):
    """Arguments of a monitor: W&B's `base_url` and `api_key`, and MLflow's `uri`, `username` and `password`, as
    Trinity-RFT has them; what is missing is taken from the library's own variables. `mode` is W&B's, and Trinity-RFT
    has no such field."""

    base_url: str | None = None
    api_key: SecretStr | None = None
    mode: Literal["online", "offline", "disabled"] | None = None
    uri: str | None = None
    username: str | None = None
    password: SecretStr | None = None

    def secret(self, name: str) -> str | None:
        """Return the text of a field."""
        value = getattr(self, name)
        return value.get_secret_value() if isinstance(value, SecretStr) else value


class Monitor(Section):
    """Metrics are in TensorBoard's files in any case, and in a run of W&B or MLflow beside them."""

    monitor_type: Literal["tensorboard", "wandb", "mlflow"] = "tensorboard"
    monitor_args: MonitorArguments = MonitorArguments()

    @field_validator("monitor_args", mode="before")
    @classmethod
    def _may_be_null(cls, given: Any) -> Any:
        return {} if given is None else given


class EngineConfig(Section):
    """One `explorer.yaml` (mode `serve`) or `trainer.yaml` (mode `train`).

    project, group, name, checkpoint_root_dir, model and the experience buffer must agree between the two.
    """

    mode: Literal["serve", "train"]
    project: Annotated[str, Field(min_length=1)] = "Trinity-RFT"
    group: str = ""
    name: Annotated[str, Field(min_length=1)] = "rft"
    checkpoint_root_dir: Annotated[str, Field(min_length=1)]
    model: Model
    algorithm: Algorithm = Algorithm()
    explorer: Explorer = Explorer()
    buffer: Buffer = Buffer()
    trainer: Trainer = Trainer()
    synchronizer: Synchronizer = Synchronizer()
    monitor: Monitor = Monitor()

    @property
    def job_dir(self) -> Path:
        """`checkpoint_root_dir/project/group/name`, absolute: what Explorer and Trainer share."""
        return job_directory(dict(self))

    @property
    def database_url(self) -> str:
        """Return the database of experiences. The default file is not Trinity's: its tables have other columns."""
        buffer = self.buffer.trainer_input.experience_buffer
        return buffer.path or f"sqlite:///{self.job_dir / 'buffer' / f'embedded_{buffer.name}.db'}"


def load_config(path: Path, mode: Literal["serve", "train"], overlays: Sequence[Path] = ()) -> EngineConfig:
    """Reads one file with overlays over it (`load_document`), and checks what the engine knows.

    Raises:
        ConfigError: a file cannot be read, a variable is missing, or a known field has a bad value; each problem names
            the file and the key's path, what was expected and what was found.
    """
    raw = load_document(path, overlays)
    try:
        config = EngineConfig.model_validate(raw)
    except ValidationError as error:
        files = ", ".join(map(str, (path, *overlays)))
        raise ConfigError(*(f"{files}: {problem(each)}" for each in error.errors())) from error
    if config.mode != mode:
        raise ConfigError(f"{path}: mode: expected {mode!r}, found {config.mode!r}")
    unknown = list(config.unknown())
    learning = [name for name in unknown if name.startswith(_CHANGE_LEARNING)]
    if learning:
        log.warning("keys without effect: the embedded engine does not have them", file=str(path), keys=learning)
    log.debug("fields of other engines ignored", file=str(path), fields=unknown)
    return config


def problem(error: Any) -> str:
    """Phrase an error of pydantic's: where, what was expected, and what was found."""
    where = ".".join(str(part) for part in error["loc"]) or "file"
    expected = error["msg"].removeprefix("Value error, ")
    found = "nothing" if error["type"] == "missing" else repr(error["input"])
    if error["loc"] and error["loc"][-1] in _SECRETS:
        found = "something else"
    return f"{where}: {expected}" + (
        "" if isinstance(error["input"], dict) and found != "nothing" else f", found {found}"
    )
