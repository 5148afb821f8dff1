"""A list of models in the form of Anthropic's API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

_UNKNOWN = datetime.fromtimestamp(0, UTC)
"""As Anthropic's API says that the time of a model's release is not known."""


def model_list(models: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """All models on one page.

    Args:
        models: as OpenAI's API lists them: `id`, and `created` in Unix seconds.
    """
    ids = [str(model.get("id") or "") for model in models]
    return {
        "data": [
            {
                "type": "model",
                "id": name,
                "display_name": name,
                "created_at": _released(model.get("created")).isoformat(timespec="seconds").replace("+00:00", "Z"),
                "lifecycle": "active",
            }
            for name, model in zip(ids, models, strict=True)
        ],
        "has_more": False,
        "first_id": ids[0] if ids else None,
        "last_id": ids[-1] if ids else None,
    }


def _released(created: Any) -> datetime:
    if type(created) not in (int, float):
        return _UNKNOWN
    try:
        return datetime.fromtimestamp(created, UTC)
    except (OverflowError, ValueError, OSError):  # no number, or of a year that there is not
        return _UNKNOWN
