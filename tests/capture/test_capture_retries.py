"""A retry of the openai SDK is not captured twice."""

from __future__ import annotations

from captured_chats import exchange, read_call, user

from slipstream.capture.completion import CapturedCall
from slipstream.capture.retries import Retries


def attempt(text: str, retry: int) -> CapturedCall:
    went_by = exchange(
        request={"model": "m", "messages": [user(text)]},
        request_headers=[(b"x-stainless-retry-count", str(retry).encode())],
    )
    call = read_call(went_by)
    assert isinstance(call, CapturedCall)
    return call


def test_only_what_says_it_is_a_retry_of_a_captured_call_is_one() -> None:
    retries = Retries(limit=10)
    assert not retries.seen(attempt("hi", 0))
    assert not retries.seen(attempt("hi", 0)), "another user who asks the same"
    assert retries.seen(attempt("hi", 1))
    assert retries.seen(attempt("hi", 2))
    assert not retries.seen(attempt("ho", 1)), "its first attempt failed, so this one is the call"
    assert retries.seen(attempt("ho", 2))


def test_a_retry_is_recognised_within_the_window() -> None:
    now = [0.0]
    retries = Retries(limit=10, window=60.0, clock=lambda: now[0])
    retries.seen(attempt("hi", 0))
    now[0] = 60.0
    assert retries.seen(attempt("hi", 1))
    now[0] = 120.5
    assert not retries.seen(attempt("hi", 2))


def test_the_oldest_are_forgotten_first() -> None:
    retries = Retries(limit=2)
    for text in ("a", "b", "c"):
        retries.seen(attempt(text, 0))
    assert not retries.seen(attempt("a", 1))
    assert retries.seen(attempt("c", 1))
