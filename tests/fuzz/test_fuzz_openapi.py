"""Requests made from our own OpenAPI description (schemathesis) against a real sidecar: no 500, no answer that the
description does not have, none whose body is of another form."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance
from scripted import ScriptedExplorer, production_app
from serving import serving, sidecar

from slipstream.settings.sidecar import Settings


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A sidecar with everything around it, on a loop of its own."""
    folder = tmp_path_factory.mktemp("openapi")
    loop, stop, started = asyncio.new_event_loop(), asyncio.Event(), threading.Event()
    found: list[str] = []

    async def main() -> None:
        async with serving(production_app()) as production, serving(ScriptedExplorer().app()) as explorer:
            made = Settings.model_validate(
                {
                    "production": {"base_url": f"{production}/v1"},
                    "explorer": {"base_url": explorer},
                    "store": {"url": f"sqlite+aiosqlite:///{folder}/slipstream.db"},
                    "commit": {"interval": "1h"},
                }
            )
            async with sidecar(made) as running:
                found.append(running)
                started.set()
                await stop.wait()

    def run() -> None:
        try:
            loop.run_until_complete(main())
        finally:
            started.set()
            loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        started.wait(30)
        yield found[0]
    finally:
        if not loop.is_closed():
            loop.call_soon_threadsafe(stop.set)
        thread.join(30)


@pytest.mark.slow
def test_every_answer_is_as_the_description_says(url: str) -> None:
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    # an answer to GET /events goes on for as long as somebody reads it
    operations = [result.ok() for result in schema.exclude(path="/events").get_all_operations()]
    assert len(operations) > 10
    problems: list[str] = []
    for operation in operations:

        @settings(
            max_examples=10, suppress_health_check=list(HealthCheck), deadline=None, database=None, derandomize=True
        )
        @given(case=operation.as_strategy())
        def conforms(case: schemathesis.Case) -> None:
            # what no schema says (one of two fields, a range from the settings) is refused with 422
            case.call_and_validate(base_url=url, excluded_checks=[positive_data_acceptance])

        try:
            conforms()
        except BaseExceptionGroup as group:
            problems.append(f"{operation.label}: {group.exceptions[0]}")
        except Exception as error:  # noqa: BLE001 - all operations are tried, and all that is wrong is told at once
            problems.append(f"{operation.label}: {error}")
    assert not problems, "\n\n".join(problems)
