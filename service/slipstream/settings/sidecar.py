"""Every key of `sidecar.yaml`, with its type and default. `docs/configuration.md` tells what each one means."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from slipstream.access.settings import Access, problem_of_exposure
from slipstream.config.cron import CronExpression, TimeZone, longest_gap
from slipstream.config.encryption_key import read_key
from slipstream.config.file_path import FilePath
from slipstream.config.units import ByteSize, Duration, PositiveDuration
from slipstream.http.connect import ClientTls
from slipstream.redaction.rules import RedactRule
from slipstream.rewards import RewardsSettings
from slipstream.rewards.endpoint import HttpUrl
from slipstream.selection import SelectionSettings
from slipstream.settings.costs import Costs
from slipstream.settings.datasets import Datasets
from slipstream.settings.evaluation import Evaluation
from slipstream.settings.feedback import Feedback
from slipstream.settings.listen import Listen
from slipstream.settings.otel import Otel
from slipstream.settings.preferences import Preferences
from slipstream.settings.production import Production
from slipstream.settings.rollouts import Rollouts
from slipstream.settings.section import Section
from slipstream.settings.serving import Serving
from slipstream.settings.tls_files import check_pair, check_tls, tls_of
from slipstream.settings.types import BaseUrl, DatabaseUrl, EmptyIsNone, FolderOfSockets
from slipstream.settings.webhooks import Webhooks
from slipstream.webhooks.outgoing import AllowPrivate
from slipstream.webhooks.signature import SigningSecret


class Proxy(Section):
    """Number of processes that carry production's traffic, each on a core of its own, and the folder in which they meet
    the training side. Without `sockets` a temporary one is made, which `slipstream serve` alone can use."""

    workers: int = Field(default=1, ge=1, le=256)
    sockets: FolderOfSockets = None


class Explorer(Section):
    """The service that serves the policy model and takes rewards. Without `model` its own list is asked.

    `train_batch_size` is the Trainer's; it is shown in /status beside what was delivered, and decides nothing.
    So does `algorithm_type`, the Explorer's own: it tells which groups have nothing to be compared with.
    `history_url` is the database of its recorded chats, for the facade to repair what a restart lost. Those who ask the
    policy through the sidecar know it by `served_model_name`. `redact`: what they ask is redacted by `capture.redact`
    before the Explorer gets it. `ca`, `certificate` and `key`: files of TLS towards it.
    """

    base_url: BaseUrl = "http://127.0.0.1:8010"
    model: Annotated[str | None, EmptyIsNone] = None
    served_model_name: str = Field(default="slipstream-policy", min_length=1, max_length=256)
    redact: bool = True
    poll_interval: PositiveDuration = 2.0
    connect_timeout: PositiveDuration = 5.0
    commit_timeout: PositiveDuration = 600.0
    train_batch_size: Annotated[int, Field(ge=1)] | None = None
    algorithm_type: Annotated[str | None, EmptyIsNone] = None
    history_url: Annotated[DatabaseUrl | None, EmptyIsNone] = None
    ca: FilePath = None
    certificate: FilePath = None
    key: FilePath = None

    @model_validator(mode="after")
    def _can_be_used(self) -> Self:
        check_pair(self.certificate, self.key)
        check_tls("base_url", self.base_url, self.tls)
        return self

    @property
    def tls(self) -> ClientTls | None:
        """Return the files of TLS towards it; None for the system's authorities and no certificate."""
        return tls_of(self.ca, self.certificate, self.key)


def _listed(value: Any) -> Any:
    """Keys as a list, of which a variable may hold several."""
    if value is None or isinstance(value, str):
        return [text.strip() for text in (value or "").split(",") if text.strip()]
    return value


class Store(Section):
    """Settings of the store. Texts that can quote a user are encrypted by the first `encryption_key`; each key opens
    them."""

    url: DatabaseUrl = "sqlite+aiosqlite:///slipstream.db"
    lease: Annotated[Duration, Field(ge=1)] = 15.0
    encryption_key: Annotated[tuple[SecretStr, ...], BeforeValidator(_listed)] = ()

    @field_validator("encryption_key")
    @classmethod
    def _are_keys(cls, values: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
        for value in values:
            read_key(value.get_secret_value())
        return values

    @property
    def keys(self) -> list[bytes]:
        """The keys of the encryption, of 32 bytes each."""
        return [read_key(key.get_secret_value()) for key in self.encryption_key]


class Capture(Section):
    rate: float = Field(default=1.0, ge=0, le=1)
    retention: PositiveDuration = 86400.0
    max_body: ByteSize = 8 * 1024**2
    queue: int = Field(default=20000, ge=1)
    queue_bytes: ByteSize = 64 * 1024**2
    backlog_bytes: ByteSize = 1024**3
    task_idle: PositiveDuration = 60.0
    chains: int = Field(default=10000, ge=1)
    store_false: Literal["skip", "keep"] = "skip"
    redact: tuple[RedactRule, ...] = (RedactRule(name="api_key"), RedactRule(name="password"))


class ReplayWebhook(Section):
    """The endpoint that runs an agent again, in the mode `webhook`. Without `base_url` it is told that of `listen`."""

    url: HttpUrl | None = None
    secret: Annotated[SigningSecret | None, EmptyIsNone] = None
    base_url: BaseUrl | None = None
    timeout: PositiveDuration = 600.0
    max_attempts: int = Field(default=3, ge=1)
    allow_private: AllowPrivate = False


class RunsBudget(Section):
    """Budget of runs in any hour, of all sidecars on one store together; null for no limit."""

    requests_per_hour: Annotated[int, Field(ge=1)] | None = None
    tokens_per_hour: Annotated[int, Field(ge=1)] | None = None


class Runs(Section):
    """Settings of runs by the policy: each call of a selected task, or its agent by its endpoint."""

    mode: Literal["shadow", "webhook"] = "shadow"
    repeat_time: int = Field(default=1, ge=1)
    concurrency: int = Field(default=10, ge=1)
    queue: int = Field(default=1000, ge=1)
    timeout: PositiveDuration = 300.0
    max_attempts: int = Field(default=3, ge=1)
    replay_timeout: PositiveDuration = 600.0
    open: int = Field(default=10_000, ge=1)
    webhook: ReplayWebhook = ReplayWebhook()
    budget: RunsBudget = RunsBudget()

    @model_validator(mode="after")
    def _has_an_endpoint(self) -> Self:
        if self.mode == "webhook" and (self.webhook.url is None or self.webhook.secret is None):
            raise ValueError("webhook.url and webhook.secret, which the mode webhook needs")
        return self


class Commit(Section):
    """Settings of when ready groups are delivered. A `schedule` takes the place of the `interval`."""

    interval: PositiveDuration = 300.0
    schedule: CronExpression | None = None
    timezone: TimeZone = "UTC"
    min_experiences: int = Field(default=1, ge=1)
    max_pending: Annotated[int, Field(ge=1)] | None = None
    on_shutdown: bool = True

    @property
    def longest_wait(self) -> float:
        """Return the longest time between two commits by the clock, in seconds."""
        return self.interval if self.schedule is None else longest_gap(self.schedule, self.timezone)


class Limits(Section):
    """Limits of this sidecar, its workers together; `docs/limits.md` says what happens at each limit."""

    connections: int = Field(default=20_000, ge=1)
    streams: int = Field(default=10_000, ge=1)
    request_body: ByteSize = 1024**3
    control_body: ByteSize = 1024**2
    header_bytes: ByteSize = 256 * 1024
    headers: int = Field(default=1000, ge=1)
    header_timeout: PositiveDuration = 60.0
    body_timeout: PositiveDuration = 60.0
    answer_timeout: PositiveDuration = 900.0
    keep_alive: PositiveDuration = 75.0
    address_requests: int = Field(default=1_000_000, ge=1)
    address_failures: int = Field(default=600, ge=1)
    store_bytes: ByteSize = 100 * 1024**3
    parse_memory: ByteSize = 512 * 1024**2


class Facade(Section):
    """Trinity's HTTP under `/explorer/`. Without `group_size` a group has `runs.repeat_time` runs."""

    api_key: Annotated[SecretStr | None, EmptyIsNone] = None
    group_size: Annotated[int, Field(ge=1)] | None = None
    group_idle: Duration = 300.0
    concurrency: int = Field(default=32, ge=1)
    timeout: PositiveDuration = 300.0
    retry_for: Duration = 60.0
    max_body: ByteSize = 16 * 1024**2


class Isolation(Section):
    """The processes that interpret content, such as schemas and patterns, and that run code of the user's own."""

    content_timeout: PositiveDuration = 5.0
    content_memory: Annotated[ByteSize, Field(ge=128 * 1024**2)] = 1024**3
    user_memory: Annotated[ByteSize, Field(ge=128 * 1024**2)] = 4 * 1024**3
    start_timeout: PositiveDuration = 120.0


class Audit(Section):
    """Time for which the audit keeps who wrote; in whole days of UTC, the last one to its end."""

    retention: Annotated[Duration, Field(ge=86400)] = 365 * 86400.0


class Log(Section):
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["json", "console"] = "json"


class Settings(BaseSettings):
    """The whole configuration, checked. `slipstream.settings.source.load_settings` reads it."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True)

    listen: Listen = Listen()
    access: Access = Field(default=Access(), validate_default=True)
    proxy: Proxy = Proxy()
    production: Production = Production()
    explorer: Explorer = Explorer()
    store: Store = Store()
    audit: Audit = Audit()
    capture: Capture = Capture()
    selection: SelectionSettings = SelectionSettings.model_validate({"sampling": {"rate": 0.1}})
    runs: Runs = Runs()
    rewards: RewardsSettings = Field(default_factory=RewardsSettings)
    feedback: Feedback = Feedback()
    preferences: Preferences = Preferences()
    commit: Commit = Commit()
    facade: Facade = Facade()
    serving: Serving = Serving()
    rollouts: Rollouts = Rollouts()
    evaluation: Evaluation = Evaluation()
    datasets: Datasets = Datasets()
    webhooks: Webhooks = Webhooks()
    costs: Costs = Costs()
    otel: Otel = Otel()
    limits: Limits = Limits()
    isolation: Isolation = Isolation()
    log: Log = Log()

    @field_validator("access")
    @classmethod
    def _not_open_to_everybody(cls, access: Access, info: ValidationInfo) -> Access:
        listen = info.data.get("listen")  # missing where it is wrong itself
        problem = None if listen is None else problem_of_exposure(access, listen.host)
        if problem is not None:
            raise ValueError(problem)
        return access

    @field_validator("rollouts")
    @classmethod
    def _two_can_be_told_apart(cls, rollouts: Rollouts, info: ValidationInfo) -> Rollouts:
        access = info.data.get("access")
        if rollouts.by_two and access is not None and not access.asked_for:
            raise ValueError("access.keys or access.keys_file, by whose names persons are told apart; found neither")
        return rollouts

    @property
    def facade_group_size(self) -> int:
        """Return how many runs make a group of the facade complete."""
        return self.facade.group_size or self.runs.repeat_time

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        # The library's own environment source cannot refuse an unknown variable and merges a mapping into the file's
        # where ours must replace it (two strategies would stand where one was asked for): `source` reads both.
        return (init_settings,)
