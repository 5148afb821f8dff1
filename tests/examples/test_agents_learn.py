"""The agents of `examples/`: as they are against production, and trained through a sidecar with three lines changed.

The sidecar, the Explorer and the Trainer are real (`slipstream up`, with the files that the project ships); the policy
is a tiny random model, which calls no tools, and production plays its part by script.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
import yaml
from running_up import slipstream_up
from serving import serving, until
from shop import ANSWER, EXAMPLES, refunds, run_program, shop_production

ROOT = Path(__file__).parents[2]
RUNS = 8

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.parametrize("name", EXAMPLES)]


@dataclass(frozen=True)
class Services:
    """Attributes:
    production: the scripted model's requests so far.
    """

    production_url: str
    url: str
    production: list[dict[str, Any]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def services(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Services]:
    folder = tmp_path_factory.mktemp("services")
    (folder / "short.yaml").write_text(yaml.safe_dump({"model": {"max_response_tokens": 16}}))
    production: list[dict[str, Any]] = []
    async with (
        serving(shop_production(production)) as production_url,
        slipstream_up(
            folder,
            tiny_model,
            production_url,
            overlays=[ROOT / "overlays" / "multi-step-grpo.yaml", folder / "short.yaml"],
            SLIPSTREAM_SELECTION="{sampling: {rate: 0}}",  # the runner chooses
        ) as up,
    ):
        yield Services(production_url, str(up.client.base_url).rstrip("/"), production)


@pytest.mark.slow
async def test_plain_agent_works_without_slipstream(name: str, services: Services, tmp_path: Path) -> None:
    output = await run_program(name, "agent", tmp_path, OPENAI_BASE_URL=f"{services.production_url}/v1")
    assert output.strip() == ANSWER
    assert refunds(tmp_path) == [("17", 40.0)]


@pytest.mark.slow
async def test_agent_with_three_lines_changed_becomes_a_new_version(
    name: str, services: Services, tmp_path: Path
) -> None:
    before, asked = await _status(services), len(services.production)

    output = await run_program(name, "training", tmp_path, SLIPSTREAM_URL=services.url)

    answer, stats = output.strip().splitlines()
    assert answer == ANSWER, "the user has production's answer"
    assert len(services.production) - asked == 3, "and only the user's call went there"
    assert refunds(tmp_path) == [("17", 40.0)], "what is written is written once"
    assert f"finished={RUNS}" in stats
    assert "commits=1" in stats

    after = await _status(services)
    assert after["groups"]["delivered"] == before["groups"].get("delivered", 0) + 1
    assert after["experiences_delivered"] - before["experiences_delivered"] == RUNS

    async def newer() -> bool:
        return (await _status(services))["policy"]["version"] > (before["policy"]["version"] or 0)

    await until(newer, 180, "no new version")  # the Trainer may still be starting


async def test_trained_agent_is_the_plain_one_but_for_three_lines(name: str) -> None:
    folder = ROOT / "examples" / EXAMPLES[name]
    plain = (folder / f"{name}_agent.py").read_text().splitlines()
    trained = (folder / f"{name}_agent_trained.py").read_text().splitlines()
    added = [line[2:] for line in difflib.ndiff(plain, trained) if line.startswith("+ ") and line[2:].strip()]
    assert len(added) == 3
    readme = (folder / "README.md").read_text()
    assert re.findall(r"^\+(.+)$", readme, re.MULTILINE) == added, "and the README shows them"


async def _status(services: Services) -> dict[str, Any]:
    async with httpx.AsyncClient(base_url=services.url, timeout=60) as control:
        status: dict[str, Any] = (await control.get("/status")).json()
    return status
