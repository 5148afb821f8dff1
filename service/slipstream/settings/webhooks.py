"""The section `webhooks` of sidecar.yaml: who is told what is decided about versions."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Self

from pydantic import AfterValidator, Field, TypeAdapter, model_validator

from slipstream.config.file_path import FilePath
from slipstream.config.units import PositiveDuration
from slipstream.http.connect import ClientTls
from slipstream.rewards.endpoint import HttpUrl
from slipstream.settings.section import Section
from slipstream.settings.tls_files import check_pair, check_tls, tls_of
from slipstream.webhooks.events import EventType
from slipstream.webhooks.outgoing import AllowPrivate
from slipstream.webhooks.signature import SigningSecret

_HTTP_URL = TypeAdapter(HttpUrl)


def _exact(text: str) -> str:
    """Leave a URL as it is: to many servers a slash at its end makes another one, and redirects are not followed."""
    _HTTP_URL.validate_python(text)
    return text


class Receiver(Section):
    """An endpoint that is told of events, by POST, signed with its own secret.

    `name`: in metrics, in the log and in the store; who changes it makes another receiver. `events`: the types that it
    wants. `ca`, `certificate` and `key`: files of TLS towards it.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    url: Annotated[str, AfterValidator(_exact)]
    secret: Annotated[SigningSecret, Field(min_length=1)]
    events: Annotated[tuple[EventType, ...], Field(min_length=1)] = tuple(EventType)
    allow_private: AllowPrivate = False
    ca: FilePath = None
    certificate: FilePath = None
    key: FilePath = None

    @model_validator(mode="after")
    def _can_be_used(self) -> Self:
        check_pair(self.certificate, self.key)
        check_tls("url", self.url, self.tls)
        return self

    @property
    def tls(self) -> ClientTls | None:
        """Return the files of TLS towards it; None for the system's authorities and no certificate."""
        return tls_of(self.ca, self.certificate, self.key)


def _different_names(receivers: tuple[Receiver, ...]) -> tuple[Receiver, ...]:
    names = Counter(receiver.name for receiver in receivers)
    if twice := [name for name, times in names.items() if times > 1]:
        raise ValueError(f"a name of its own for each receiver; found more than one {', '.join(twice)}")
    return receivers


class Webhooks(Section):
    """Receivers of events, and the seconds that each has to answer: `docs/webhooks.md`."""

    receivers: Annotated[tuple[Receiver, ...], AfterValidator(_different_names)] = ()
    timeout: PositiveDuration = 15.0
