"""`HumanPreferenceCollector` at a running sidecar, and over answers of one's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from loops import Loop, RunLoop
from scripted import ScriptedExplorer
from serving import until

import slipstream_client as slipstream
from slipstream_client import HumanPreferenceCollector, PreferencePair, preferences


@pytest.fixture
async def loop(run_loop: RunLoop) -> AsyncIterator[Loop]:
    async with run_loop(ScriptedExplorer(answer="the policy says {n}")) as loop:
        slipstream.configure(loop.url)
        yield loop


def for_the_policy(pair: PreferencePair) -> str:
    return "a" if "policy" in pair.a["content"] else "b"


async def test_the_next_pair_is_shown_judged_and_returned(loop: Loop) -> None:
    collector = HumanPreferenceCollector("ann@example.org", for_the_policy)
    assert await asyncio.to_thread(collector.collect) is None
    await loop.chat("hello", {"x-slipstream-task-id": "t"})
    await until(lambda: loop.ready(1))
    preference = await asyncio.to_thread(collector.collect)
    assert preference is not None
    assert preference.pair.question == "hello"
    assert preference.as_example() == {
        "prompt": [{"role": "user", "content": "hello"}],
        "chosen": [{"role": "assistant", "content": "the policy says 1"}],
        "rejected": [{"role": "assistant", "content": "echo: hello"}],
    }
    assert await asyncio.to_thread(collector.collect) is None
    [first, _] = (await loop.client.get("/preferences")).json()["ranking"]
    assert first["answered_by"] == "version:0"
    again = await asyncio.to_thread(collector.judge, preference.pair, preference.choice, "the same")
    assert again == preference
    with pytest.raises(slipstream.SidecarRefused, match="has judged this pair already") as refused:
        await asyncio.to_thread(collector.judge, preference.pair, "tie")
    assert refused.value.code == "pair_judged"


async def test_a_sidecar_that_does_not_know_who_judges_says_so(loop: Loop) -> None:
    with pytest.raises(slipstream.SidecarRefused, match="annotator") as refused:
        await asyncio.to_thread(HumanPreferenceCollector().next)
    assert refused.value.param == "annotator"


def test_answers_of_ones_own_are_shown_in_an_order_that_is_drawn() -> None:
    seen: list[PreferencePair] = []

    def ask(pair: PreferencePair) -> str:
        seen.append(pair)
        return "a" if pair.a["content"] == "four" else "b"

    collector = HumanPreferenceCollector(ask=ask)
    for _ in range(60):
        preference = collector.collect(question="2 + 2?", response_a="four", response_b="five")
        assert preference is not None
        assert preference.choice == "a", "by the arguments, whatever was shown first"
        assert preference.chosen == {"role": "assistant", "content": "four"}
        assert preference.rejected == {"role": "assistant", "content": "five"}
    assert {pair.a["content"] for pair in seen} == {"four", "five"}
    tie = HumanPreferenceCollector(ask=lambda pair: "tie").collect("q", "x", "y")
    assert tie is not None
    assert tie.as_example() is None


def test_what_cannot_be_asked_or_judged_is_refused_at_once() -> None:
    collector = HumanPreferenceCollector(ask=lambda pair: "left")
    with pytest.raises(ValueError, match="choice: expected one of a, b, tie, both_bad, skip, found 'left'"):
        collector.collect("q", "x", "y")
    with pytest.raises(ValueError, match="give all of them, or none"):
        collector.collect("q", "x")
    with pytest.raises(ValueError, match="pair: expected one of the sidecar's"):
        collector.judge(PreferencePair([], {}, {}), "a")


def test_the_terminal_asks_until_it_gets_a_choice(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = iter(["left", " b "])
    monkeypatch.setattr("builtins.input", lambda prompt: next(typed))
    call = {"type": "function", "function": {"name": "look_up", "arguments": "{}"}}
    pair = PreferencePair([{"role": "user", "content": "where?"}], {"content": "there"}, {"tool_calls": [call]})
    assert preferences.ask_in_terminal(pair) == "b"
    shown = capsys.readouterr().out
    assert "where?" in shown
    assert "there" in shown
    assert "look_up({})" in shown
