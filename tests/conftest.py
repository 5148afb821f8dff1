"""Fixtures for tests of the whole sidecar: real HTTP on both sides of it."""

from __future__ import annotations

import gc
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import hypothesis
import pytest
import structlog
from loops import TRAINS_ON_ALL, Loop, RunLoop
from made_once import made_once
from processes import agents, production  # noqa: F401 - fixtures
from scripted import ScriptedExplorer, production_app
from serving import serving, sidecar
from shared_by_tenants import RunShared, sharing
from sqlalchemy import Engine, event
from stores import PostgresServer, postgres_server
from tiers import OneAtATime, sort_tests
from xdist.remote import Producer

from slipstream.settings.sidecar import Settings
from slipstream.store.database import Database

hypothesis.settings.register_profile("busy machine", suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("busy machine")  # a slow machine is no fault of what is tested


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Leave what is there before the first test out of garbage collection.

    Each full collection would go through all modules and tests again, which took a tenth of the time of the tests.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before `-m` reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    sort_tests(items)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> OneAtATime | None:
    return OneAtATime(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.fixture(scope="session", autouse=True)
def quick_starts() -> Iterator[None]:
    with made_once():
        yield


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """Undo what a test sets up for logging: commands show no lines of level debug, for which a later test may look."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.fixture
def asked() -> Iterator[list[str]]:
    """The statements that were executed."""
    statements = list[str]()

    def before(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        statements.append(statement)

    event.listen(Engine, "before_cursor_execute", before)
    yield statements
    event.remove(Engine, "before_cursor_execute", before)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server for all tests of a process."""
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="session")
def new_postgres(postgres: PostgresServer) -> Callable[[], str]:
    """A function that makes a store on a PostgreSQL server, with its tables, and returns its URL."""
    return postgres.fresh


@pytest.fixture(scope="session")
def empty_postgres(postgres: PostgresServer) -> Callable[[], str]:
    """A function that makes a database without tables on a PostgreSQL server, and returns its URL."""
    return postgres.empty


@pytest.fixture(scope="session")
def smollm2(pytestconfig: pytest.Config) -> Path:
    """SmolLM2-135M-Instruct, kept between runs."""
    from slipstream.local import model

    return model.fetch("smollm2", pytestconfig.rootpath / ".cache" / "models" / "smollm2")


@pytest.fixture(scope="session")
def tokenizer_files(pytestconfig: pytest.Config) -> Path:
    """The tokenizer and the chat template of SmolLM2-135M-Instruct without its weights, kept between runs."""
    from tiny_model import fetch_tokenizer

    return fetch_tokenizer(pytestconfig.rootpath / ".cache" / "models" / "smollm2-tokenizer")


@pytest.fixture(scope="session")
def tiny_model(tokenizer_files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model directory that loads in no time and answers nonsense."""
    from tiny_model import save_tiny_model

    directory = tmp_path_factory.mktemp("tiny") / "model"
    save_tiny_model(directory, tokenizer_files)
    return directory


@pytest.fixture
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store for the test: SQLite in its folder, or a PostgreSQL where it is marked with `ON_BOTH_STORES`."""
    if getattr(request, "param", "sqlite") == "sqlite":
        return f"sqlite+aiosqlite:///{tmp_path}/slipstream.db"
    fresh: str = request.getfixturevalue("new_postgres")()
    return fresh


@pytest.fixture
async def database(store_url: str) -> AsyncIterator[Database]:
    """The test's store, open."""
    database = Database(store_url)
    await database.open()
    yield database
    await database.close()


@pytest.fixture
def run_loop(store_url: str) -> RunLoop:
    """Start the whole loop with settings given as sections: `run_loop(runs={"repeat_time": 2})`.

    Everything is selected, and each run gets the reward 0.5, unless a section says otherwise. The store is one for the
    whole test, so that a second start finds what the first one left. A scripted Explorer of one's own goes first;
    `verify` is the client's part of TLS.
    """

    @asynccontextmanager
    async def start(
        explorer: ScriptedExplorer | None = None, /, verify: ssl.SSLContext | bool = True, **sections: Any
    ) -> AsyncIterator[Loop]:
        explorer = explorer or ScriptedExplorer()
        async with serving(production_app()) as production_url, serving(explorer.app()) as explorer_url:
            settings = Settings.model_validate(
                {
                    "store": {"url": store_url},
                    **TRAINS_ON_ALL,
                    "commit": {"interval": "1h"},
                    **sections,
                    "production": {"base_url": f"{production_url}/v1", **sections.get("production", {})},
                    "explorer": {
                        "base_url": explorer_url,
                        "poll_interval": "100ms",
                        **sections.get("explorer", {}),
                    },
                }
            )
            async with (
                sidecar(settings, verify) as url,
                httpx.AsyncClient(base_url=url, timeout=30, verify=verify) as client,
            ):
                yield Loop(url, explorer, client)

    return start


@pytest.fixture
def run_shared(run_loop: RunLoop, store_url: str) -> RunShared:
    """Start the whole loop with tenants: `shared_by_tenants.KEYS` are their keys."""
    return sharing(run_loop, store_url)
