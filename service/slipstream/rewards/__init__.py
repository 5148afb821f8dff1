"""Rewards: calculators turn a finished run into one reward with a breakdown."""

from slipstream.rewards.calculator import Reward, RewardCalculator
from slipstream.rewards.model import RewardModel
from slipstream.rewards.settings import RewardsSettings

__all__ = ["Reward", "RewardCalculator", "RewardModel", "RewardsSettings"]
