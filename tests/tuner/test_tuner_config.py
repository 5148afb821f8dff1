"""The tuner's names against AgentScope's own: a user of it changes the import."""

from __future__ import annotations

import inspect
import sys
from types import ModuleType
from typing import Any

import pytest

import slipstream_client
from slipstream_client import tuner


class _Absent(ModuleType):
    """Whatever is asked of it is an empty class."""

    def __getattr__(self, name: str) -> Any:
        return type(name, (), {})


def _original() -> Any:
    """AgentScope's tuner, without the libraries of its prompt tuning, which it imports at once."""
    absent = [name for name in ("dspy", "dspy.predict.predict") if name not in sys.modules]
    sys.modules |= {name: _Absent(name) for name in absent}
    try:
        from agentscope import tuner as original
    finally:
        for name in absent:
            del sys.modules[name]
    return original


original = _original()

NAMES = [
    "AlgorithmConfig",
    "DatasetConfig",
    "JudgeOutput",
    "TinkerConfig",
    "TunerModelConfig",
    "WorkflowOutput",
]


@pytest.mark.parametrize("name", NAMES)
def test_fields_and_defaults_are_the_original_s(name: str) -> None:
    theirs, ours = getattr(original, name).model_fields, getattr(tuner, name).model_fields
    for field, what in theirs.items():
        assert field in ours, field
        assert ours[field].default == what.default, field
        assert ours[field].is_required() == what.is_required(), field


def test_tune_takes_what_the_original_takes() -> None:
    theirs, ours = inspect.signature(original.tune).parameters, inspect.signature(tuner.tune).parameters
    assert list(ours)[: len(theirs)] == list(theirs)
    for name, parameter in ours.items():
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY, name
        assert parameter.default == (theirs[name].default if name in theirs else parameter.default), name
        assert name in theirs or parameter.default is not inspect.Parameter.empty, name


@pytest.mark.parametrize("name", original.__all__)
def test_every_name_of_the_original_is_here(name: str) -> None:
    assert getattr(tuner, name) is getattr(slipstream_client, name)


def test_models_say_the_same_to_trinity() -> None:
    given: dict[str, Any] = {"model_path": "m", "max_model_len": 100, "inference_engine_num": 2}
    assert tuner.TunerModelConfig(**given).get_config() == original.TunerModelConfig(**given).get_config()
    assert tuner.TinkerConfig(rank=3).get_config() == original.TinkerConfig(rank=3).get_config()


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("AlgorithmConfig", {"algorithm_type": "multistep"}),
        ("AlgorithmConfig", {"learning_rate": 0}),
        ("AlgorithmConfig", {"group_size": 0}),
        ("AlgorithmConfig", {"batch_size": 0}),
        ("AlgorithmConfig", {"save_interval_steps": 0}),
        ("AlgorithmConfig", {"eval_interval_steps": 0}),
        ("AlgorithmConfig", {"batchsize": 4}),
        ("TunerModelConfig", {"model_path": "m", "max_model_len": 1}),
        ("TunerModelConfig", {"model_path": "m", "max_model_len": 9, "temperature": -1}),
        ("TunerModelConfig", {"model_path": "m", "max_model_len": 9, "top_p": 0}),
        ("TunerModelConfig", {"model_path": "m", "max_model_len": 9, "max_tokens": 0}),
        ("DatasetConfig", {"path": "d", "total_epochs": 0}),
        ("DatasetConfig", {"path": "d", "total_steps": 0}),
    ],
)
def test_a_bad_value_is_refused_by_its_field(kind: str, fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=list(fields)[-1]):
        getattr(tuner, kind)(**fields)
