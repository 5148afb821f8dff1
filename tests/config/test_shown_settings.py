"""The configuration is shown key by key, and no secret of it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from slipstream.access.keys import as_hash, new_key
from slipstream.config.masking import masked
from slipstream.settings.shown import shown
from slipstream.settings.sidecar import Settings

PAGE = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8").split("## Redaction")[0]
SECRET = "heron-4711"
DATABASE = f"postgresql+asyncpg://me:{SECRET}/{SECRET}@db.internal/slipstream?sslpassword={SECRET}"
KEY = new_key()

WITH_SECRETS: dict[str, Any] = {
    "access": {"keys": [{"name": "agents", "roles": ["proxy"], "key": KEY}]},
    "production": {"api_key": SECRET},
    "explorer": {"history_url": DATABASE},
    "store": {"url": DATABASE, "encryption_key": "A" * 43 + "="},
    "selection": {"any": ["explicit_mark", {"not": {"sampling": {"rate": 0.5}}}]},
    "runs": {"webhook": {"url": f"https://me:{SECRET}@hooks.internal/a?api_key={SECRET}&b=c", "secret": SECRET}},
    "rewards": {
        "calculators": [
            {"webhook": {"url": f"https://{SECRET}@w/", "headers": {"authorization": SECRET}, "secret": SECRET}},
            {"judge": {"base_url": "http://j", "model": "m", "api_key": SECRET, "extra_body": {"my_token": [SECRET]}}},
        ]
    },
    "facade": {"api_key": SECRET},
    "evaluation": {"suites": [{"name": "s", "cases": "/c", "parameters": {"max_tokens": 5, "headers": {"x": SECRET}}}]},
    "webhooks": {"receivers": [{"name": "r", "url": "https://pager.internal/", "secret": SECRET}]},
    "otel": {"endpoint": "http://otel:4318", "headers": {"x-tenant": SECRET}},
}


def test_each_documented_key_is_shown_with_its_default() -> None:
    told = shown(Settings())
    documented = re.findall(r"^\| `([a-z_.]+)` \|", PAGE, re.MULTILINE)
    assert [each.key for each in told] == documented
    assert all(each.value == each.default and not each.set for each in told)
    json.dumps([each.value for each in told], allow_nan=False)


def test_what_was_set_is_shown_and_no_secret() -> None:
    settings = Settings.model_validate({**WITH_SECRETS, "log": {"level": "info"}, "commit": {"interval": "10m"}})
    told = {each.key: each for each in shown(settings)}
    text = json.dumps([(each.value, each.default) for each in told.values()])
    for secret in (SECRET, KEY, as_hash(KEY), "A" * 43):
        assert secret not in text
    assert (told["commit.interval"].value, told["commit.interval"].default) == (600.0, 300.0)
    assert told["log.level"].set, "also where it is the default that was set"
    assert not told["log.format"].set
    assert told["store.url"].value == "postgresql+asyncpg://***@db.internal/slipstream?sslpassword=***"
    assert told["store.encryption_key"].value == ["***"]
    assert told["runs.webhook"].value["url"] == "https://***@hooks.internal/a?api_key=***&b=c"
    assert told["access.keys"].value == [{"name": "agents", "roles": ["proxy"], "hash": "***", "capture": True}]
    assert told["selection"].value["any"][1] == {"not": {"sampling": {"rate": 0.5, "seed": 0}}}
    assert told["evaluation.suites"].value[0]["parameters"] == {"max_tokens": 5, "headers": {"x": "***"}}
    assert told["production.api_key"].value == "***"


def _fields(model: type[BaseModel], seen: set[type]) -> list[tuple[str, str]]:
    """The names of all fields below a model, with their types as text."""
    found: list[tuple[str, str]] = []
    seen.add(model)
    for name, info in model.model_fields.items():
        found.append((name, str(info.annotation)))
        for part in _models(info.annotation):
            found += _fields(part, seen) if part not in seen else []
    return found


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in getattr(annotation, "__args__", ()) for model in _models(part)]


def test_a_field_that_is_named_like_a_secret_is_typed_as_one() -> None:
    """A text would be shown. Keys and certificates of TLS are paths."""
    named = [(name, kind) for name, kind in _fields(Settings, set()) if re.search("key|secret|password|token", name)]
    assert len(named) > 10
    plain = {name for name, kind in named if re.search(r"\bstr\b", kind)}
    assert plain <= {"key", "reference_key", "keys"}, "names of keys of metadata, and of API keys in feedback.keys"


@pytest.mark.parametrize(
    ("text", "shown_as"),
    [
        ("https://a.example/b?c=d", "https://a.example/b?c=d"),
        ("https://token@a.example/@scope", "https://***@a.example/@scope"),
        ("https://a.example/?x=1&access_token=abc#f", "https://a.example/?x=1&access_token=***#f"),
        ("Is this answer right? Say yes or no.", "Is this answer right? Say yes or no."),
    ],
)
def test_a_text_is_masked_where_it_has_a_secret(text: str, shown_as: str) -> None:
    assert masked(text) == shown_as
