"""The client of a Slipstream sidecar, for agents: marks, feedback, agent replay, and a tuner.

Names are imported when they are first used, so that `import slipstream_client` costs an agent next to nothing. Those of
the tuner need the extra `slipstream-sidecar-client[tuner]`: without it they are not listed, and raise ImportError.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slipstream_client.config import configure as configure
    from slipstream_client.config import settings as settings
    from slipstream_client.context import current as current
    from slipstream_client.context import is_replay as is_replay
    from slipstream_client.errors import SidecarAway as SidecarAway
    from slipstream_client.errors import SidecarRefused as SidecarRefused
    from slipstream_client.errors import SlipstreamError as SlipstreamError
    from slipstream_client.experiments import ABTestFramework as ABTestFramework
    from slipstream_client.hot_updater import CanaryResult as CanaryResult
    from slipstream_client.hot_updater import HotUpdater as HotUpdater
    from slipstream_client.hot_updater import UpdateConfig as UpdateConfig
    from slipstream_client.http import async_http_client as async_http_client
    from slipstream_client.http import http_client as http_client
    from slipstream_client.marks import mark as mark
    from slipstream_client.marks import mark_answer as mark_answer
    from slipstream_client.marks import never as never
    from slipstream_client.model_manager import ModelManager as ModelManager
    from slipstream_client.outbox import OutboxCounts as OutboxCounts
    from slipstream_client.outbox import flush as flush
    from slipstream_client.outbox import outbox_counts as outbox_counts
    from slipstream_client.preferences import HumanPreferenceCollector as HumanPreferenceCollector
    from slipstream_client.preferences import Preference as Preference
    from slipstream_client.preferences import PreferencePair as PreferencePair
    from slipstream_client.rewarding import async_commit as async_commit
    from slipstream_client.rewarding import commit as commit
    from slipstream_client.rewarding import feedback as feedback
    from slipstream_client.sdks import anthropic as anthropic
    from slipstream_client.sdks import async_anthropic as async_anthropic
    from slipstream_client.sdks import async_openai as async_openai
    from slipstream_client.sdks import openai as openai
    from slipstream_client.side_effects.approval import ToolCall as ToolCall
    from slipstream_client.side_effects.guard import SideEffectBlocked as SideEffectBlocked
    from slipstream_client.side_effects.tools import tool as tool
    from slipstream_client.simulated_user.budget import UserBudget as UserBudget
    from slipstream_client.simulated_user.errors import SimulatedUserError as SimulatedUserError
    from slipstream_client.simulated_user.turns import Conversation as Conversation
    from slipstream_client.simulated_user.user import SimulatedUser as SimulatedUser
    from slipstream_client.threads import instrument_threads as instrument_threads
    from slipstream_client.threads import uninstrument_threads as uninstrument_threads
    from slipstream_client.training.rewards import Reward as Reward
    from slipstream_client.training.rewards import RunResult as RunResult
    from slipstream_client.training.runner import TrainingRunner as TrainingRunner
    from slipstream_client.training.selection import Candidate as Candidate
    from slipstream_client.training.selection import ExplicitMarking as ExplicitMarking
    from slipstream_client.training.selection import SamplingRate as SamplingRate
    from slipstream_client.training.tally import RunnerStats as RunnerStats
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
    from slipstream_client.version_requests import Rollout as Rollout
    from slipstream_client.webhooks import WebhookError as WebhookError
    from slipstream_client.webhooks import replay as replay
    from slipstream_client.webhooks import verify_webhook as verify_webhook

__version__ = "0.1.0"

_WHERE: dict[str, str] = {
    "configure": "config",
    "settings": "config",
    "current": "context",
    "is_replay": "context",
    "SlipstreamError": "errors",
    "SidecarAway": "errors",
    "SidecarRefused": "errors",
    "ABTestFramework": "experiments",
    "http_client": "http",
    "async_http_client": "http",
    "openai": "sdks",
    "async_openai": "sdks",
    "anthropic": "sdks",
    "async_anthropic": "sdks",
    "mark": "marks",
    "mark_answer": "marks",
    "never": "marks",
    "HumanPreferenceCollector": "preferences",
    "Preference": "preferences",
    "PreferencePair": "preferences",
    "HotUpdater": "hot_updater",
    "UpdateConfig": "hot_updater",
    "CanaryResult": "hot_updater",
    "ModelManager": "model_manager",
    "Rollout": "version_requests",
    "feedback": "rewarding",
    "commit": "rewarding",
    "async_commit": "rewarding",
    "flush": "outbox",
    "outbox_counts": "outbox",
    "OutboxCounts": "outbox",
    "instrument_threads": "threads",
    "uninstrument_threads": "threads",
    "Reward": "training.rewards",
    "RunResult": "training.rewards",
    "TrainingRunner": "training.runner",
    "RunnerStats": "training.tally",
    "Candidate": "training.selection",
    "ExplicitMarking": "training.selection",
    "SamplingRate": "training.selection",
    "SideEffectBlocked": "side_effects.guard",
    "ToolCall": "side_effects.approval",
    "tool": "side_effects.tools",
    "Conversation": "simulated_user.turns",
    "SimulatedUser": "simulated_user.user",
    "SimulatedUserError": "simulated_user.errors",
    "UserBudget": "simulated_user.budget",
    "replay": "webhooks",
    "verify_webhook": "webhooks",
    "WebhookError": "webhooks",
    "AlgorithmConfig": "tuner.config",
    "DatasetConfig": "tuner.dataset",
    "JudgeOutput": "tuner.functions",
    "JudgeType": "tuner.functions",
    "TinkerConfig": "tuner.config",
    "TunerModelConfig": "tuner.config",
    "WorkflowOutput": "tuner.functions",
    "WorkflowType": "tuner.functions",
    "check_judge_function": "tuner.functions",
    "check_workflow_function": "tuner.functions",
    "TunerModel": "tuner.model",
    "TuneResult": "tuner.tuning",
    "tune": "tuner.tuning",
    "avg_time_judge": "tuner.judges",
    "avg_token_consumption_judge": "tuner.judges",
    "PromptTuneConfig": "tuner.prompt",
    "tune_prompt": "tuner.prompt",
    "select_model": "tuner.selection",
}
"""Module of this package that has each public name."""

# without the tuner's, which need their extra: `import *` would fail where it is not installed
__all__ = [*(name for name, module in _WHERE.items() if not module.startswith("tuner.")), "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = importlib.import_module(f"{__name__}.{_WHERE[name]}")
    except ModuleNotFoundError as missing:  # the rest of the package needs httpx alone
        from slipstream_client.extras import hint

        raise ImportError(hint(name, str(missing.name), "tuner")) from missing
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The names that can be used: `help`, `inspect` and the like ask for each that is listed."""
    from slipstream_client.extras import missing

    return sorted([*(name for name, module in _WHERE.items() if missing(module) is None), "__version__"])
