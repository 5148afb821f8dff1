"""Lists of models in the form of Anthropic's API."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from anthropic.types import ModelInfo

from slipstream.dialects.messages.models import model_list


def test_a_list_in_order() -> None:
    listed = model_list([{"id": "b", "created": 1_795_160_061}, {"id": "a", "created": 1_795_160_061.7}])
    assert (listed["first_id"], listed["last_id"], listed["has_more"]) == ("b", "a", False)
    models = [ModelInfo.model_validate(model) for model in listed["data"]]
    assert [model.id for model in models] == ["b", "a"]
    assert {model.created_at for model in models} == {datetime.fromtimestamp(1_795_160_061, UTC)}


def test_a_list_without_models() -> None:
    assert model_list([]) == {"data": [], "has_more": False, "first_id": None, "last_id": None}


@pytest.mark.parametrize("created", [None, "today", True, float("nan"), float("inf"), -1e30, 10**400, {}])
def test_a_time_that_is_none_is_said_as_not_known(created: Any) -> None:
    [model] = model_list([{"id": "a", "created": created}])["data"]
    assert ModelInfo.model_validate(model).created_at == datetime.fromtimestamp(0, UTC)
