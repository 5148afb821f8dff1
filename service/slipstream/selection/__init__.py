"""Which tasks are trained on: one decision per task, with its reason."""

from slipstream.selection.settings import SelectionSettings

__all__ = ["SelectionSettings"]
