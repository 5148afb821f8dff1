"""Errors between the client and the sidecar.

SlipstreamError
├── SidecarAway     not reached, too slow, or failing: the same may work later
├── SidecarRefused  it will not have this request, now or later
├── SimulatedUserError  (in simulated_user/) a simulated user cannot go on
└── TunerError      (in tuner/) a tuning cannot go on
"""

from __future__ import annotations


class SlipstreamError(Exception):
    """The sidecar, or an engine, did not do what it was asked."""


class SidecarAway(SlipstreamError):
    """The sidecar was not reached, did not answer in time, or failed.

    Attributes:
        status: of its answer: 5xx, 408 or 429; None where none came.
        received: whether it may have got the request, and carried it out.
    """

    def __init__(self, message: str, *, status: int | None = None, received: bool) -> None:
        super().__init__(message)
        self.status = status
        self.received = received


class SidecarRefused(SlipstreamError):
    """The sidecar answered with a 4xx.

    Attributes:
        status: such as 422.
        code: of the error, such as `run_closed`; None where another server answered.
        param: the path of the field that is to blame, if it is one.
    """

    def __init__(self, message: str, *, status: int, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
