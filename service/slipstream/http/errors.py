"""Errors between the proxy and an upstream."""

from __future__ import annotations

from typing import Literal

from slipstream.errors import SlipstreamError

Cause = Literal["connect", "connect_timeout", "first_byte_timeout", "idle_timeout", "closed", "protocol", "redirect"]


class UpstreamError(SlipstreamError):
    """The upstream could not be reached, or its answer did not come to its end.

    Args:
        cause: what happened, one of `Cause`; a label of the metrics and the `code` of the error body.
    """

    def __init__(self, cause: Cause, message: str) -> None:
        super().__init__(message)
        self.cause: Cause = cause

    @property
    def timed_out(self) -> bool:
        return self.cause.endswith("_timeout")
