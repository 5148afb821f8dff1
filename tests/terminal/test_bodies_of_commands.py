"""What commands send to a sidecar, and what they say where it comes to nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from commands import slipstream

from slipstream.terminal import quarantine, rollouts

URL = "http://127.0.0.1:9"
ASKED = {"by": "ann", "at": 1.0, "action": "promote", "force": False}


def answers(monkeypatch: pytest.MonkeyPatch, module: Any, *found: dict[str, Any]) -> list[httpx.Request]:
    """Have a sidecar answer a command's requests with these, in their order; returns the requests."""
    left, asked = list(found), list[httpx.Request]()

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, json=left.pop(0))

    def client(url: str, key: str | None) -> httpx.Client:
        return httpx.Client(base_url=url, transport=httpx.MockTransport(answer))

    monkeypatch.setattr(module, "open_client", client)
    return asked


@pytest.mark.parametrize(
    ("words", "plan", "why"),
    [
        (("rollout", "start", "8", "--plan", "plan.yaml"), "level: .nan\n", "Out of range float"),
        (("rollout", "start", "8", "--plan", "plan.yaml"), "steps: [2026-01-01]\n", "date is not JSON"),
        (("rollout", "approve", "1", "promote", "--at", "nan"), "", "Out of range float"),
    ],
)
async def test_what_json_cannot_hold_is_refused_in_one_line(
    words: tuple[str, ...], plan: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "approve" in words:
        answers(monkeypatch, rollouts, {"id": 1, "version": 8, "evidence": {}, "asked": ASKED})
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.yaml").write_text(plan)
    code, _, errors = await slipstream(*words, "--url", URL)
    assert code == 2
    assert errors.startswith("slipstream: expected what JSON can hold: text, finite numbers, ")
    assert why in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize("action", ["retry", "drop"])
async def test_an_id_of_which_nothing_is_set_apart_is_an_error(action: str, monkeypatch: pytest.MonkeyPatch) -> None:
    named = ("quarantine", action, "--kind", "run", "--id", "7", "--url", URL)
    other, this = ({"kind": "run", "id": name} for name in ("8", "7"))
    asked = answers(monkeypatch, quarantine, {"changed": 0, "left": 1}, {"quarantined": [other]})
    refused = "slipstream: --id: nothing of the kind run with the id 7 is set apart\n"
    assert await slipstream(*named) == (2, "", refused)
    assert json.loads(asked[0].content) == {"action": action, "kind": "run", "id": "7"}
    answers(monkeypatch, quarantine, {"changed": 0, "left": 1}, {"quarantined": [this]})
    stays = f"{action}: 0, still set apart: 1\n"
    assert await slipstream(*named) == (0, stays, ""), "its group was delivered without it"
    answers(monkeypatch, quarantine, {"changed": 0, "left": 0})
    assert await slipstream("quarantine", action, "--url", URL) == (0, f"{action}: 0, still set apart: 0\n", "")
