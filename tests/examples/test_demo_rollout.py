"""`make demo-rollout`: its parts, and in the slow tier the whole."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from agent import Agent
from canary import PLAN, Decision, findings
from reward import Score
from rollout_chart import draw
from run_rollout import decided
from serving import serving, until
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from tasks import Task
from tiny_model import tiny_llama
from users import MOST_AT_ONCE, Answered, Users

from slipstream.rollouts import guardrails
from slipstream.rollouts.plan import Plan
from slipstream.settings.source import load_settings

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "examples" / "demo"


def ended(action: str, *, proven: bool, reason: str) -> Decision:
    """A decision with the evidence that it has when a rollout ends."""
    found = {"log_e": 6.1 if proven else 1.2, "needed": 5.4, "proven": proven, "missing": 0}
    measured = {"difference": 0.6, "interval": [0.3, 0.8], "better": found, "harm": found}
    evidence = {
        "units": {"control": 40, "treatment": 20},
        "objective": measured,
        "guardrails": {"reward": {**measured, "difference": None}},
    }
    return Decision(at=130.0, version=5, action=action, share=0.95, reason=reason, evidence=evidence)


PROMOTED = ended("promote", proven=True, reason="better is proven at the level 0.00472")
HARMED = ended("roll_back", proven=True, reason="harm is proven: reward")


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ([PROMOTED, HARMED], True),
        ([PROMOTED], False),
        ([HARMED, HARMED], False),
        ([PROMOTED, PROMOTED], False),
        ([ended("promote", proven=False, reason="by hand, without proof"), HARMED], False),
        ([PROMOTED, ended("roll_back", proven=False, reason="the lane failed: its breaker opened")], False),
    ],
)
def test_both_decisions_must_have_come_by_proof(ends: list[Decision], expected: bool) -> None:
    assert decided(ends) is expected


def test_findings_say_what_was_proven_and_by_how_many_sessions() -> None:
    assert findings(PROMOTED).splitlines() == [
        "version 5: promote: better is proven at the level 0.00472",
        "  sessions: 20 of the version, 40 of production",
        "  better by reward: PROVEN, log e 6.10 of 5.40 needed; difference +0.60, in [+0.30, +0.80]",
        "  harm by reward: no session was compared",
    ]


def test_the_sidecar_of_the_demo_can_carry_the_plan_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(DEMO)
    monkeypatch.syspath_prepend(str(DEMO))
    ports = {f"{name}_PORT": "8123" for name in ("SIDECAR", "PRODUCTION", "EXPLORER", "LANE")}
    settings = load_settings(Path("sidecar-rollout.yaml"), {**ports, "RUN_DIR": str(tmp_path), "BATCH": "32"})
    plan = Plan.model_validate(PLAN)
    guardrails.check(plan, settings.rewards)
    assert settings.serving.routed is not None, "a lane answers users"
    assert plan.longest_wait + plan.grace <= settings.capture.retention


async def test_each_user_is_a_session_and_notes_who_answered() -> None:
    asked: list[Request] = []

    async def chat(request: Request) -> JSONResponse:
        asked.append(request)
        choice = {"index": 0, "message": {"role": "assistant", "content": "42"}, "finish_reason": "stop"}
        body: dict[str, Any] = {"id": "m", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
        treated = "40 + 2" in json.dumps(await request.json())
        return JSONResponse(body, headers={"x-slipstream-variant": "version:5"} if treated else {})

    async with serving(Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])) as url:
        agent = Agent(f"{url}/v1", "small")
        users = Users(agent, [Task("40 + 2 =", "42"), Task("1 + 1 =", "2")], seed=1, at_once=MOST_AT_ONCE)
        coming = asyncio.create_task(users.come())
        await asyncio.wait_for(users.more(3 * MOST_AT_ONCE), 30)
        coming.cancel()
        await until(coming.done)
        await agent.close()
    sessions = [request.headers["x-slipstream-session-id"] for request in asked]
    assert len(sessions) == len(set(sessions)) >= 3 * MOST_AT_ONCE
    assert {request.headers["x-slipstream-variant"] for request in asked} == {"?1"}
    assert {json.loads(request.headers["x-slipstream-metadata"])["reference"] for request in asked} == {"42", "2"}
    assert {(each.by, each.score.reward) for each in users.answered} == {("version:5", 1.0), ("production", 0.0)}


def test_the_spoiled_version_is_the_next_one_with_other_weights(tmp_path: Path) -> None:
    from spoiled import publish_spoiled

    from slipstream.embedded.checkpoints import latest_version, load_weights, publish
    from slipstream.versions.checkpoints import describe, look

    publish(tmp_path, 4, tiny_llama(seed=4).save_pretrained)
    assert publish_spoiled(tmp_path, 4, seed=1) == 5 == latest_version(tmp_path)
    good, bad = load_weights(tmp_path, 4), load_weights(tmp_path, 5)
    assert {name: tensor.shape for name, tensor in good.items()} == {name: each.shape for name, each in bad.items()}
    changed = {name for name, tensor in good.items() if not tensor.equal(bad[name])}
    assert changed == {name for name, tensor in good.items() if tensor.ndim > 1}, "norms stay as they are"
    found = look(tmp_path, 5)
    assert found is not None, "the register takes it for a version like any other"
    assert describe(found, None).parent == 4


def test_chart_of_the_rollouts_is_a_picture(tmp_path: Path) -> None:
    answered = [Answered(float(at), "version:5" if at % 2 else "production", Score(at % 2, 1.0)) for at in range(100)]
    draw(answered, [PROMOTED, HARMED], 100.0, tmp_path / "rollout.png")
    assert (tmp_path / "rollout.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.embedded
def test_a_better_version_is_promoted_and_a_bad_one_rolled_back(smollm2: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(DEMO / "run_rollout.py"), "--model", str(smollm2), "--output", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    summary = json.loads((tmp_path / "rollout.json").read_text())
    good, bad = summary["decisions"][0]["version"], summary["decisions"][-1]["version"]
    actions = [(each["version"], each["action"]) for each in summary["decisions"]]
    assert [each for each in actions if each[1] in ("advance", "promote", "roll_back")] == [
        (good, "advance"),
        (good, "advance"),
        (good, "promote"),
        (bad, "roll_back"),
    ], "a version that is bad never gets a larger share"
    users = summary["users"]
    assert users[f"version:{good}"]["reward"] > users["production"]["reward"] > users[f"version:{bad}"]["reward"]
    assert users["production"]["answers"] > users[f"version:{bad}"]["answers"] * 2
