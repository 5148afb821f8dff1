"""What goes wrong in tuning. Wrong arguments are ValueErrors, as in AgentScope's tuner."""

from __future__ import annotations


class TunerError(Exception):
    """Tuning cannot go on; the message says what is missing, and where."""
