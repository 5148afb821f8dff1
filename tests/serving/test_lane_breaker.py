"""A lane that failed several times in a row is left alone, and tried by one request now and then."""

from __future__ import annotations

from slipstream.serving.breaker import LaneBreaker


def test_one_request_a_pause_tries_a_lane_that_failed() -> None:
    breaker = LaneBreaker(3, 10.0)
    assert [breaker.failed(0.0) for _ in range(4)] == [False, False, True, False], "told once"
    assert not breaker.allows(9.9)
    assert breaker.allows(10.0)
    assert not breaker.allows(10.0), "the others wait for what becomes of it"
    breaker.failed(11.0)
    assert not breaker.allows(20.9)
    assert breaker.allows(21.0)
    breaker.succeeded()
    assert all(breaker.allows(21.0) for _ in range(5))


def test_failures_that_are_not_in_a_row_do_not_count() -> None:
    breaker = LaneBreaker(2, 10.0)
    for _ in range(5):
        breaker.failed(0.0)
        breaker.succeeded()
        assert breaker.allows(0.0)
