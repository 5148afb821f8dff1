"""The errors that Slipstream raises on purpose.

SlipstreamError
├── ConfigError              a configuration file or variable is wrong; names the key
├── StoreAway                the store cannot be reached at the moment; nobody has to change anything for it
├── RequestError             a control request is wrong; becomes a 4xx body
├── ExplorerError            the Explorer did not do what it was asked
│   ├── ExplorerUnavailable  worth another try: transport failed, 429 or 5xx
│   │   ├── ExplorerAway     nobody was there to do it: down, or without an engine while it reloads
│   │   └── AnswerLost       its engine answered a chat, and the Explorer could not record that answer
│   ├── ExplorerRefused      not worth another try: another 4xx, or an answer that is no completion
│   └── ExplorerRestarted    another process than the one that was meant answers by now
└── ScoringError             a reward calculator could not give a finite reward
"""

from __future__ import annotations

from typing import Any


class SlipstreamError(Exception):
    """Base of every error that Slipstream raises on purpose."""


class ConfigError(SlipstreamError):
    """A configuration value is wrong.

    Args:
        problems: one line a problem: the key's path, what was expected, what was found.
    """

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class StoreAway(SlipstreamError):
    """The store cannot be opened at the moment: its server is down, starts, or is busy, or a later release of the
    sidecar has changed its tables. Later it can, by this process or by one that takes its place."""


class RequestError(SlipstreamError):
    """A control request cannot be carried out; nothing was changed by it.

    Args:
        message: what is wrong, in words for the caller.
        param: the field that is wrong, as a path (`metadata.reference`), or None.
        status: HTTP status, 4xx (or 503 when the store is away).
        code: a short machine-readable name of the problem.
    """

    def __init__(
        self, message: str, *, param: str | None = None, status: int = 422, code: str = "invalid_request"
    ) -> None:
        super().__init__(message)
        self.param = param
        self.status = status
        self.code = code


class ExplorerError(SlipstreamError):
    """The Explorer did not do what it was asked.

    Args:
        message: what happened, fit for a log.
        status: the HTTP status that it answered; None when no whole answer came.
        said: what it said about it. It may quote the request, so it is not part of the message: logs hold no bodies.
        retry_after: seconds that it asked us to wait, or None.
    """

    def __init__(
        self, message: str, *, status: int | None = None, said: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.said = said
        self.retry_after = retry_after


class ExplorerUnavailable(ExplorerError):
    """The Explorer could not be reached, was busy, or failed: the same call may work later."""


class ExplorerAway(ExplorerUnavailable):
    """Nobody was there to carry it out, so that this says nothing about what was asked."""


class AnswerLost(ExplorerUnavailable):
    """The engine answered, and that answer is of no use: the Explorer is there, and other chats may go well."""


class ExplorerRefused(ExplorerError):
    """The Explorer understood the call and refused it, or answered what is no chat completion."""


class ExplorerRestarted(ExplorerError):
    """The process that a call was meant for is gone, and another one answers. Nothing was sent to that one."""


class ScoringError(SlipstreamError):
    """A reward calculator could not give a finite reward for a run; none is invented."""


def error_body(
    message: str, *, kind: str = "invalid_request_error", code: str | None = None, param: str | None = None
) -> dict[str, Any]:
    """The body of an error response in OpenAI's format."""
    return {"error": {"message": message, "type": kind, "code": code, "param": param}}
