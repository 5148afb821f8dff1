"""Selection of tasks for training: one decision per task, with its reason."""

from slipstream.selection.decision import Decision
from slipstream.selection.fraction import hash_fraction
from slipstream.selection.selector import Selector, Verdict
from slipstream.selection.settings import SelectionSettings

__all__ = ["Decision", "SelectionSettings", "Selector", "Verdict", "hash_fraction"]
