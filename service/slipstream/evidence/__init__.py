"""Statistics that compare two versions while sessions come in: when a difference is proven, and at which error rate.

Pure functions and small accumulators, without store or network. Each may be looked at after every session: the error
rate holds for the first look, the last one and all between.
"""

from slipstream.evidence.betting import EProcess
from slipstream.evidence.claims import Claim, Evidence
from slipstream.evidence.detection import Detector
from slipstream.evidence.forecast import differences_missing
from slipstream.evidence.intervals import interval, interval_of
from slipstream.evidence.levels import guardrail_level, version_level
from slipstream.evidence.sessions import Session, differences, sessions_per_difference

__all__ = [
    "Claim",
    "Detector",
    "EProcess",
    "Evidence",
    "Session",
    "differences",
    "differences_missing",
    "guardrail_level",
    "interval",
    "interval_of",
    "sessions_per_difference",
    "version_level",
]
