"""The section `access` of sidecar.yaml, and the list in `access.keys_file`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)

from slipstream.access.keys import KEY, as_hash
from slipstream.config.file_path import FilePath
from slipstream.config.problems import describe
from slipstream.config.units import Duration
from slipstream.errors import ConfigError
from slipstream.tenants import NAME as TENANT

Role = Literal["proxy", "feedback", "runs", "annotator", "viewer", "operator", "admin", "metrics"]

_HIDDEN = "; found a value that is not shown here"

_HASH = re.compile(r"sha256:[0-9a-f]{64}")
_FIELD_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")


def _not_none(roles: tuple[Role, ...]) -> tuple[Role, ...]:
    if not roles:
        raise ValueError(f"one or more of {', '.join(get_args(Role))}")
    return roles


def _is_hash(text: str) -> str:
    if not _HASH.fullmatch(text):  # it may be a key in the wrong place
        raise ValueError("sha256: and 64 hexadecimal digits, as `slipstream key new` prints them" + _HIDDEN)
    return text


def _is_field_name(text: str) -> str:
    if not _FIELD_NAME.fullmatch(text):
        raise ValueError("the name of a header, such as x-user-id")
    return text.lower()


def _as_network(value: Any) -> Any:
    try:
        return ip_network(value)
    except ValueError as error:
        raise ValueError("a network such as 10.0.0.0/8, or an address") from error


def _as_time(value: Any) -> Any:
    """A time with its offset: without one it would mean another moment on another machine."""
    try:
        time = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        time = None
    if value is not None and (not isinstance(time, datetime) or time.tzinfo is None):
        raise ValueError("a date and a time with its offset, such as 2027-01-31T00:00:00Z")
    return time


class ApiKey(BaseModel):
    """One key: what it is called in metrics and logs, and what it may do. Of a plain `key` only the hash is kept.

    Attributes:
        key: always None: where it was given, `hash` is its hash.
        hash: `sha256:` and 64 hexadecimal digits.
        tenant: whose sessions, tasks, answers and feedback it reaches; None is the default tenant, and with the role
            admin all tenants.
        capture: whether its calls may be stored.
        requests_per_minute: None for as many as come.
        expires: from when it is refused; None for never.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")
    roles: Annotated[tuple[Role, ...], AfterValidator(_not_none)]
    key: SecretStr | None = None
    hash: Annotated[str, AfterValidator(_is_hash)]
    tenant: Annotated[str | None, Field(pattern=TENANT)] = None
    capture: bool = True
    requests_per_minute: Annotated[int | None, Field(ge=1)] = None
    expires: Annotated[datetime | None, BeforeValidator(_as_time)] = None

    @model_validator(mode="before")
    @classmethod
    def _keeps_the_hash_alone(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        given = {name: each for name, each in value.items() if name not in ("key", "hash") or each not in (None, "")}
        if ("key" in given) == ("hash" in given):
            raise ValueError("one of key and hash; found both" if "key" in given else "key or hash; found neither")
        if "key" in given:
            key = given.pop("key")
            if not isinstance(key, str) or not KEY.fullmatch(key.encode(errors="replace")):
                expected = "key as `slipstream key new` makes it: slp_ and at least 32 letters, digits, - and _"
                raise ValueError(expected + _HIDDEN)
            given["hash"] = as_hash(key)
        return given


def entry(
    name: str, roles: Sequence[str], hash_: str, tenant: str | None = None, expires: datetime | None = None
) -> str:
    """A line of `access.keys`, in YAML.

    Raises:
        ConfigError: there is no such role, or a name cannot be one.
    """
    given = {"name": name, "roles": list(dict.fromkeys(roles)), "hash": hash_, "tenant": tenant, "expires": expires}
    try:
        key = ApiKey.model_validate(given)
    except ValidationError as error:
        raise ConfigError(*describe(error, ApiKey, {})) from None
    of_tenant = "" if key.tenant is None else f'tenant: "{key.tenant}", '
    until = "" if key.expires is None else f"expires: {key.expires.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}, "
    return f'- {{name: {key.name}, roles: [{", ".join(key.roles)}], {of_tenant}{until}hash: "{key.hash}"}}'


def _told_apart(keys: tuple[ApiKey, ...]) -> tuple[ApiKey, ...]:
    seen: dict[str, str] = {}
    for key in keys:
        if key.hash in seen:
            raise ValueError(f"each key once; found that of {seen[key.hash]} again, as {key.name}")
        seen[key.hash] = key.name
    return keys


ApiKeys = Annotated[tuple[ApiKey, ...], AfterValidator(_told_apart)]


class Access(BaseModel):
    """Settings of who may use the sidecar. Without `keys` and `keys_file` everybody who reaches it may.

    Attributes:
        keys_file: a YAML list in the form of `keys`, which is read again when it changes.
        insecure: let everybody in who reaches it although there are no keys: others than this machine's programs, and
            the pages in its browser.
        identity_headers: headers by which callers are told apart, beside their keys, in lower case.
        session: seconds after a sign-in to the page until it has to be repeated.
        trusted_proxies: the networks whose `X-Forwarded-*` and `Forwarded` are believed.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    keys: ApiKeys = ()
    keys_file: FilePath = None
    insecure: bool = False
    identity_headers: tuple[Annotated[str, AfterValidator(_is_field_name)], ...] = ()
    session: Annotated[Duration, Field(ge=60, le=30 * 86400)] = 12 * 3600.0
    trusted_proxies: tuple[Annotated[IPv4Network | IPv6Network, BeforeValidator(_as_network)], ...] = ()

    @property
    def asked_for(self) -> bool:
        """Return whether a request needs a key."""
        return bool(self.keys) or self.keys_file is not None

    @property
    def on_trust(self) -> bool:
        """Return whether there are no keys because only this machine's programs reach it: see `problem_of_exposure`."""
        return not (self.asked_for or self.insecure)


def problem_of_exposure(access: Access, host: str, setting: str = "listen") -> str | None:
    """Return the advice if other machines could use the sidecar without a key; None if they cannot.

    Args:
        setting: the name of what says `host`, for the advice.
    """
    if access.asked_for or access.insecure or is_loopback(host):
        return None
    return (
        f"keys or keys_file, because {setting} is {host}, where others reach it: `slipstream key new --role proxy` "
        "makes a key and says what to write under access.keys. If nobody but your own agents reaches it, say so by "
        "access.insecure: true, or listen on 127.0.0.1; found neither"
    )


def is_loopback(host: str) -> bool:
    """Return whether only programs of this machine can reach an address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
