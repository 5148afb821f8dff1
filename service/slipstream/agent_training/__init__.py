"""Training of agents by the names of the agent-training articles: what each of them is here is in
docs/agent-training.md.

Names are imported when they are first used: some need torch, numpy or the client.
"""

from __future__ import annotations

import importlib
from typing import Any

_HERE = "slipstream.agent_training"

_WHERE: dict[str, tuple[str, str]] = {
    "AgentDialogProcessor": (f"{_HERE}.dialog_data", "AgentDialogProcessor"),
    "AgentLoRATrainer": (f"{_HERE}.trainers", "AgentLoRATrainer"),
    "AgentRLTrainer": (f"{_HERE}.trainers", "AgentRLTrainer"),
    "AgentRewardConfig": (f"{_HERE}.configs", "AgentRewardConfig"),
    "AgentRewardModel": (f"{_HERE}.reward_model", "AgentRewardModel"),
    "AgentSFTConfig": (f"{_HERE}.configs", "AgentSFTConfig"),
    "AgentSFTDialog": ("slipstream.datasets.dialogs", "Dialog"),
    "AgentSFTFormatter": (f"{_HERE}.dialog_data", "AgentSFTFormatter"),
    "AgentSFTTrainer": (f"{_HERE}.trainers", "AgentSFTTrainer"),
    "AgentSFTTurn": ("slipstream.datasets.dialogs", "Turn"),
    "AgentTrainingEvaluator": (f"{_HERE}.evaluators", "AgentTrainingEvaluator"),
    "AgentTrainingUsage": (f"{_HERE}.usage", "AgentTrainingUsage"),
    "BenchmarkSample": (f"{_HERE}.evaluators", "BenchmarkSample"),
    "CoresetSelector": (f"{_HERE}.dialog_data", "CoresetSelector"),
    "DataCollector": (f"{_HERE}.collecting", "DataCollector"),
    "GameTrainer": (f"{_HERE}.games", "GameTrainer"),
    "LLMJudge": (f"{_HERE}.judging", "LLMJudge"),
    "MathAgentTrainer": (f"{_HERE}.scenarios", "MathAgentTrainer"),
    "MultiAgentGame": (f"{_HERE}.games", "MultiAgentGame"),
    "OnlineContinualLearner": (f"{_HERE}.dialog_data", "OnlineContinualLearner"),
    "OnlineTrainer": (f"{_HERE}.online", "OnlineTrainer"),
    "PROFILES": (f"{_HERE}.configs", "PROFILES"),
    "PlanEvaluator": (f"{_HERE}.reward_model", "PlanEvaluator"),
    "ProcessedDialog": ("slipstream.datasets.dialog_measures", "ProcessedDialog"),
    "RLRuntime": (f"{_HERE}.runtime", "RLRuntime"),
    "RLTrainingConfig": (f"{_HERE}.configs", "RLTrainingConfig"),
    "RewardFunction": (f"{_HERE}.scenario_rewards", "RewardFunction"),
    "ToolRetriever": ("slipstream.embedded.tool_retrieval", "ToolIndex"),
    "ToolUseEvaluator": (f"{_HERE}.evaluators", "ToolUseEvaluator"),
    "ToolUseTrainer": (f"{_HERE}.scenarios", "ToolUseTrainer"),
    "ToolVerifier": (f"{_HERE}.reward_model", "ToolVerifier"),
    "TrinityRFT": (f"{_HERE}.online", "TrinityRFT"),
    "evaluate_win_rate": (f"{_HERE}.games", "evaluate_win_rate"),
    "profile": (f"{_HERE}.configs", "profile"),
    **{
        name: ("slipstream_client", name)
        for name in ("ABTestFramework", "HotUpdater", "HumanPreferenceCollector", "ModelManager")
    },
}
"""Module and name there of each name. The last four are the client's."""

__all__ = [*_WHERE]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _WHERE[name]
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(_WHERE)
