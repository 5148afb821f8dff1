"""Errors in tuning. Wrong arguments are ValueErrors, as in AgentScope's tuner."""

from __future__ import annotations

from slipstream_client.errors import SlipstreamError


class TunerError(SlipstreamError):
    """Tuning cannot go on; the message says what is missing, and where."""
