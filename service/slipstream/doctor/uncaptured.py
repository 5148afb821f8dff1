"""Calls that training never sees, and what to do: part of `problems` in `GET /status`, and a line in the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import structlog

from slipstream.capture.outcomes import WINDOW, Outcomes, OutcomeWindow
from slipstream.doctor.findings import Finding, Problem

_log = structlog.get_logger(__name__)

_LEAST_SHARE = 0.05
"""Share of all calls that a reason or route must exceed, ..."""
_LEAST_CALLS = 3
"""... and calls: one that a user cancelled is nothing to look into."""

_SAID_AGAIN = 3600.0
"""Seconds until the log names the same loss again."""

_CONVERSATIONS = ("completions", "threads")
"""Routes that a conversation can be had by. Nobody expects embeddings or pictures to be learned from."""

_NOT_NAMED = ("rate", "opted_out", "capture_queue_full", "store_full")
"""Reasons that are the operator's or the caller's own wish, and those that have a problem of their own."""

ROUTE = Problem(
    "live.route_not_captured",
    "warning",
    why="Slipstream captures chat completions, responses and Anthropic's messages. Calls of other routes reach "
    "production and are answered, and nothing is learned from them.",
    fix="Use `chat.completions.create` instead of `completions.create`, and `/v1/responses` instead of the Assistants "
    "API, which OpenAI has ended.",
)
CALLS = Problem(
    "live.calls_not_captured",
    "warning",
    why="For one reason, more than a twentieth of the calls of the last ten minutes were not captured: "
    "nothing is learned from them. Production is unharmed.",
    fix="By the reason: docs/capture.md.",
)
PROBLEMS = (ROUTE, CALLS)

FIXES = {
    "not_a_chat": "Send `messages` (or `input`), a list; look up the caller by its key's name or its address.",
    "incomplete": "Find out why callers leave: a timeout shorter than production's answers, or users who cancel.",
    "status": "Look up why production refuses: its rate limits, its keys, its log.",
    "too_large": "Raise `capture.max_body`, and `capture.queue_bytes` with it.",
    "too_many_values": "Look up the caller: its bodies have more than 500,000 values, such as lists of numbers.",
    "encoding": "Have production answer in gzip, deflate, zstd or br, or uncompressed.",
    "not_json": "Look at what production answers: a gateway's page of HTML is no chat completion.",
    "no_answer": "Look at what production answers: a chat completion has `choices`, each with a `message`; an answer "
    "of `/v1/messages` has `content`, a list of blocks.",
    "truncated_stream": "Have production end streams with `[DONE]` and give each choice a `finish_reason`.",
    "error_in_stream": "Look into production's log: its streams break off with an error.",
    "unfinished": "Nothing for background responses, which are fetched later; else look into production's log.",
    "redaction_failed": "Look up `redaction_failed` in the log, and mend the hook in `capture.redact`.",
    "store_full": "A shorter `capture.retention`, or a larger `limits.store_bytes`.",
    "unreadable": "Look up `capture_unreadable` in the log, and report it: it is a fault of ours.",
    "lease_lost": "Look into the load of the store: its lease ran out before what was captured was written.",
}
"""Repair for each reason."""


def findings(outcomes: Outcomes) -> Iterator[Finding]:
    """The routes and reasons that take more than their share of calls."""
    routes = {route: outcomes.routes.get(route, 0) for route in _CONVERSATIONS}
    calls = outcomes.captured + sum(outcomes.reasons.values()) + sum(routes.values())
    span = f"in the last {WINDOW / 60:.0f} min"
    for route, lost in routes.items():
        if _too_many(lost, calls):
            found = f"{lost} calls to /v1/{route} were not captured {span}, {lost / calls:.0%} of all"
            yield ROUTE.at(f"/v1/{route}", found)
    calls -= outcomes.reasons.get("rate", 0)  # of those nobody knows what else they would have been left out for
    for reason, lost in outcomes.reasons.items():
        if reason not in _NOT_NAMED and _too_many(lost, calls):
            found = f"{lost} of {calls} calls were not captured {span} ({lost / calls:.0%}); reason: {reason}"
            yield replace(CALLS.at("capture", found), fix=FIXES.get(reason, CALLS.fix))


def _too_many(lost: int, calls: int) -> bool:
    return lost >= _LEAST_CALLS and lost > _LEAST_SHARE * calls


class UncapturedLog:
    """Writes a line in the log when calls begin to be lost, and each hour while they are.

    Args:
        wanted: whether anything is to be captured at all.
    """

    def __init__(self, window: OutcomeWindow, monotonic: Callable[[], float], *, wanted: bool) -> None:
        self._window = window
        self._monotonic = monotonic
        self._wanted = wanted
        self._said: dict[tuple[str, str], float] = {}

    async def step(self) -> bool:
        """Look at the counters, and say what is lost."""
        self._window.look()
        now = self._monotonic()
        for finding in findings(self._window.outcomes()) if self._wanted else ():
            about = finding.where, finding.fix
            if now - self._said.get(about, -_SAID_AGAIN) >= _SAID_AGAIN:
                self._said[about] = now
                _log.warning("calls_not_captured", found=finding.found, fix=finding.fix)
        return False
