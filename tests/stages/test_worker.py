"""A stage's loop: it outlives what its step raises, and ends when it is told to."""

from __future__ import annotations

import asyncio

import pytest

from slipstream.stages.worker import Worker


@pytest.mark.sampled(1)
@pytest.mark.parametrize("raised", [RuntimeError, asyncio.CancelledError])
async def test_a_step_that_raises_is_tried_again(raised: type[BaseException]) -> None:
    steps = 0
    again = asyncio.Event()

    async def step() -> bool:
        nonlocal steps
        steps += 1
        if steps == 1:
            raise raised
        again.set()
        return False

    worker = Worker("stage", step, interval=60)
    worker.start()
    await asyncio.wait_for(again.wait(), 10)
    await worker.stop()


async def test_a_step_under_way_comes_to_its_end_where_there_is_patience() -> None:
    started, go_on, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def step() -> bool:
        started.set()
        await go_on.wait()
        ended.set()
        return True

    patient, impatient = Worker("patient", step, 60), Worker("impatient", step, 60)
    impatient.start()
    await started.wait()
    await impatient.stop()
    assert not ended.is_set()

    started.clear()
    patient.start()
    await started.wait()
    stopping = asyncio.create_task(patient.stop(10))
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.wait_for(stopping, 5)
    assert ended.is_set()


async def test_a_pause_after_a_failure_does_not_hold_up_the_end() -> None:
    failed = asyncio.Event()

    async def step() -> bool:
        failed.set()
        raise RuntimeError

    worker = Worker("stage", step, interval=60)
    worker.start()
    await failed.wait()
    await asyncio.wait_for(worker.stop(60), 9)
