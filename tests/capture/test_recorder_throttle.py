"""Reading what was captured waits for production and the writer, and never for ever."""

from __future__ import annotations

import threading

import pytest

from slipstream.capture.throttle import LONGEST, RecorderThrottle, waited_for_cpu


class Machine:
    """A clock, a CPU that others want too, and an writer."""

    def __init__(self) -> None:
        self.now = 100.0
        self.waited: float | None = 5.0
        self.behind = False
        self.turns = RecorderThrottle(lambda: self.behind, lambda: self.waited, lambda: self.now)

    def passes(self, seconds: float, waiting: float = 0.0) -> None:
        """Time passes, of which this process waits for the CPU for a part."""
        self.now += seconds
        if self.waited is not None:
            self.waited += seconds * waiting

    def turn(self, seconds: float, waiting: float = 0.0) -> None:
        self.turns.begins()
        self.passes(seconds, waiting)
        self.turns.ends()


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_where_there_is_time_one_turn_follows_the_other(machine: Machine) -> None:
    for _ in range(3):
        assert machine.turns.pause() == 0
        machine.turn(0.05, waiting=0.2)


def test_where_the_cpu_is_short_turns_take_a_twentieth_of_the_time(machine: Machine) -> None:
    machine.turn(0.05, waiting=0.5)
    assert machine.turns.pause() == pytest.approx(1.0)
    machine.passes(0.4, waiting=0.3)
    assert machine.turns.pause() == pytest.approx(0.6)
    machine.passes(0.6, waiting=0.3)
    assert machine.turns.pause() == 0


def test_a_pause_ends_when_there_is_time_again(machine: Machine) -> None:
    machine.turn(0.05, waiting=0.9)
    assert machine.turns.pause() > 0
    machine.passes(0.1)
    assert machine.turns.pause() == 0


def test_a_single_wait_decides_nothing(machine: Machine) -> None:
    machine.turn(0.05)
    assert machine.turns.pause() == 0
    machine.passes(0.001, waiting=1.0)
    assert machine.turns.pause() == 0


def test_an_intake_that_does_not_keep_up_goes_first_but_not_for_ever(machine: Machine) -> None:
    machine.turn(0.01)
    machine.behind = True
    assert machine.turns.pause() == pytest.approx(LONGEST)
    machine.passes(LONGEST / 2)
    assert machine.turns.pause() == pytest.approx(LONGEST / 2)
    machine.passes(LONGEST / 2)
    assert machine.turns.pause() == 0
    machine.turn(10.0, waiting=0.9)
    assert machine.turns.pause() == pytest.approx(LONGEST)


def test_where_the_system_does_not_tell_nothing_is_put_off(machine: Machine) -> None:
    machine.waited = None
    machine.turn(0.05)
    assert machine.turns.pause() == 0


def test_what_this_process_has_waited_grows_while_it_goes_without_the_cpu() -> None:
    before = waited_for_cpu()
    stop = threading.Event()
    others = [threading.Thread(target=stop.wait) for _ in range(3)]
    for other in others:
        other.start()
    assert before is not None
    assert (waited_for_cpu() or 0) >= before >= 0
    stop.set()
    for other in others:
        other.join()
