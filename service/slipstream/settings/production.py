"""The section `production` of sidecar.yaml."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, SecretStr

from slipstream.config.units import PositiveDuration
from slipstream.settings.section import Section
from slipstream.settings.types import BaseUrl, EmptyIsNone

_SEGMENT = r"(?!\.{1,2}(?:/|$))[A-Za-z0-9._~-]+"
_API_PATH = re.compile(rf"(?:[A-Z]+ )?(?:\*|(?!v1(?:/|$)){_SEGMENT}(?:/{_SEGMENT})*(?:/\*)?)")


def _api_path(text: str) -> str:
    if not _API_PATH.fullmatch(text):
        raise ValueError('a path below /v1/, such as "chat/completions", "POST embeddings", "models/*" or "*"')
    return text


ApiPath = Annotated[str, AfterValidator(_api_path)]
"""A path of the API: of one method or of all, with `/*` all that is below it, and `*` alone is everything."""

SHARED_KEY_PATHS = (
    "POST chat/completions",
    "POST completions",
    "POST embeddings",
    "POST responses",
    "POST responses/input_tokens",
    "POST messages",
    "POST messages/count_tokens",
    "POST moderations",
    "POST audio/*",
    "POST images/*",
    "GET models",
    "GET models/*",
)
"""The paths that a `production.api_key` which callers share opens by default: questions to a model, and the list of
models. Not what else an account has: files, batches, fine-tuning, assistants, stored answers (`GET responses/...`,
`GET chat/completions`), and its administration."""


class Production(Section):
    """The model that answers users. Without `api_key` the caller's own Authorization goes through.

    `paths`: of the API that requests may be for; None is `SHARED_KEY_PATHS` with an `api_key`, and everything without.
    """

    base_url: BaseUrl = "https://api.openai.com/v1"
    api_key: Annotated[SecretStr | None, EmptyIsNone] = None
    paths: tuple[ApiPath, ...] | None = None
    connect_timeout: PositiveDuration = 5.0
    first_byte_timeout: PositiveDuration = 600.0
    idle_timeout: PositiveDuration = 120.0

    @property
    def allowed_paths(self) -> tuple[str, ...] | None:
        """Return the paths that requests may be for; None for all."""
        if self.paths is None:
            return None if self.api_key is None else SHARED_KEY_PATHS
        return None if "*" in self.paths else self.paths
