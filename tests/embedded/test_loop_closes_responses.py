"""The OpenAI Agents SDK as it is by default: from its calls of `/v1/responses` to a version that they trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import openai
import pytest
import yaml
from dialects_production import DialectsProduction
from running_up import slipstream_up
from serving import serving, until

QUESTIONS = ["use the tool for the first time", "use the tool once more"]
REPEAT_TIME = 4
CALLS = 2
"""Of each question: the model calls the tool, and answers."""


@pytest.mark.slow
@pytest.mark.embedded
async def test_an_agent_at_its_default_trains_the_next_version(smollm2: Path, tmp_path: Path) -> None:
    """Sidecar, Explorer and Trainer are real, and so is the model; the agent has nothing of ours but its base URL."""
    (tmp_path / "short.yaml").write_text(yaml.safe_dump({"model": {"max_response_tokens": 24}}))
    production = DialectsProduction()
    async with (
        serving(production.app()) as production_url,
        slipstream_up(
            tmp_path,
            smollm2,
            production_url,
            overlays=[tmp_path / "short.yaml"],
            SLIPSTREAM_SELECTION="{sampling: {rate: 1}}",
            SLIPSTREAM_RUNS__REPEAT_TIME=str(REPEAT_TIME),
            SLIPSTREAM_REWARDS__CALCULATORS="[{length: {max: 80}}]",
        ) as up,
    ):
        answers = await _agent(f"{str(up.client.base_url).rstrip('/')}/v1")
        assert all(answer.startswith("echo:") for answer in answers), "users have production's answers"
        assert len(production.asked) == len(QUESTIONS) * CALLS

        async def trained() -> Any:
            await up.client.post("/commit")
            status = (await up.client.get("/status")).json()
            return (status["policy"]["version"] or 0) >= len(QUESTIONS) and status

        status = await until(trained, 400, "no new version")
        answered = (await up.client.get("/calls/resp_0")).json()

    assert status["groups"] == {"delivered": len(QUESTIONS) * CALLS}
    assert status["experiences_delivered"] == len(QUESTIONS) * CALLS * REPEAT_TIME
    assert (answered["dialect"], answered["problem"]) == ("responses", None)
    assert up.exit_code == 0


async def _agent(base_url: str) -> list[str]:
    """The last answer to each question, whole for the first and streamed for the second."""
    import agents

    @agents.function_tool
    def look_up(q: int) -> str:
        """Look a number up."""
        return f"the number is {q}"

    agents.set_tracing_disabled(True)
    async with openai.AsyncOpenAI(base_url=base_url, api_key="sk-agent", max_retries=0) as client:
        agents.set_default_openai_client(client, use_for_tracing=False)
        support = agents.Agent(name="support", instructions="Be short.", model="prod", tools=[look_up])
        whole = await agents.Runner.run(support, QUESTIONS[0])
        streamed = agents.Runner.run_streamed(support, QUESTIONS[1])
        async for _ in streamed.stream_events():
            pass
    return [str(whole.final_output), str(streamed.final_output)]
