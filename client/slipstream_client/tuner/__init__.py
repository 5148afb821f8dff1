"""Training on a dataset: the names of AgentScope's `tuner`, so that its user changes the import and nothing else.

Needs the extra `slipstream-sidecar-client[tuner]`. Names are imported when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from slipstream_client.extras import hint, missing

if TYPE_CHECKING:
    from slipstream_client.tuner.config import AlgorithmConfig as AlgorithmConfig
    from slipstream_client.tuner.config import TinkerConfig as TinkerConfig
    from slipstream_client.tuner.config import TunerModelConfig as TunerModelConfig
    from slipstream_client.tuner.dataset import DatasetConfig as DatasetConfig
    from slipstream_client.tuner.functions import JudgeOutput as JudgeOutput
    from slipstream_client.tuner.functions import JudgeType as JudgeType
    from slipstream_client.tuner.functions import WorkflowOutput as WorkflowOutput
    from slipstream_client.tuner.functions import WorkflowType as WorkflowType
    from slipstream_client.tuner.functions import check_judge_function as check_judge_function
    from slipstream_client.tuner.functions import check_workflow_function as check_workflow_function
    from slipstream_client.tuner.judges import avg_time_judge as avg_time_judge
    from slipstream_client.tuner.judges import avg_token_consumption_judge as avg_token_consumption_judge
    from slipstream_client.tuner.model import TunerModel as TunerModel
    from slipstream_client.tuner.prompt import PromptTuneConfig as PromptTuneConfig
    from slipstream_client.tuner.prompt import tune_prompt as tune_prompt
    from slipstream_client.tuner.selection import select_model as select_model
    from slipstream_client.tuner.tuning import TuneResult as TuneResult
    from slipstream_client.tuner.tuning import tune as tune

if (_missing := missing("tuner")) is not None:
    raise ImportError(hint("the tuner", _missing, "tuner"))

_WHERE = {
    "AlgorithmConfig": "config",
    "TinkerConfig": "config",
    "TunerModelConfig": "config",
    "DatasetConfig": "dataset",
    "JudgeOutput": "functions",
    "JudgeType": "functions",
    "WorkflowOutput": "functions",
    "WorkflowType": "functions",
    "check_judge_function": "functions",
    "check_workflow_function": "functions",
    "TunerModel": "model",
    "TuneResult": "tuning",
    "tune": "tuning",
    "avg_time_judge": "judges",
    "avg_token_consumption_judge": "judges",
    "PromptTuneConfig": "prompt",
    "tune_prompt": "prompt",
    "select_model": "selection",
}
"""Module of this package that has each public name."""

__all__ = [*_WHERE]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
    except ModuleNotFoundError as error:
        raise ImportError(hint(name, str(error.name), "tuner")) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(name for name, module in _WHERE.items() if missing(f"tuner.{module}") is None)
