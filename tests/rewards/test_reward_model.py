import asyncio
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any

import pytest
import structlog
from prometheus_client import CollectorRegistry
from pydantic import ValidationError
from reward_runs import reward_model, score, shadow, value

from slipstream.errors import ConfigError, ScoringError
from slipstream.metrics import Metrics
from slipstream.rewards import Reward, RewardModel
from slipstream.trajectory import Feedback, Run


async def test_components_combine_by_weight() -> None:
    reward = await score(
        shadow("yes"),
        {"constant": {"value": 1, "weight": 3, "component": "high"}},
        {"constant": {"value": 0.2, "component": "low"}},
    )
    assert reward.value == pytest.approx((3 * 1 + 0.2) / 4)
    assert reward.breakdown == {"high": 1.0, "low": 0.2}


async def test_components_of_an_agent_reward_have_its_default_weights() -> None:
    reward = await score(
        shadow("yes"),
        {"constant": {"value": 1, "component": "task_completion"}},
        {"constant": {"value": 0, "component": "tool_accuracy"}},
        {"efficiency": {}},
        {"constant": {"value": 0, "component": "timing_quality"}},
        {"constant": {"value": 0, "component": "format_compliance"}},
    )
    assert reward.value == pytest.approx(0.4 + 0.15)


@pytest.mark.parametrize(
    ("given", "clip", "clipped"), [(3, (0, 1), 1), (-3, (0, 1), 0), (-3, (-1, 1), -1), (0.5, (0, 1), 0.5)]
)
async def test_the_reward_is_clipped_and_its_breakdown_is_not(
    given: float, clip: tuple[float, float], clipped: float
) -> None:
    reward = await score(shadow("yes"), {"constant": {"value": given}}, clip=clip)
    assert (reward.value, reward.breakdown) == (clipped, {"constant": given})


async def test_without_calculators_nothing_is_scored() -> None:
    with pytest.raises(ScoringError, match=r"rewards\.calculators is empty"):
        await score(shadow("yes"))


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        ("float('nan')", "nan, which is not finite"),
        ("float('inf')", "inf, which is not finite"),
        ("True", "no number but bool"),
        ("'0.5'", "no number but str"),
        ("None", "no number but NoneType"),
        ("Reward(float('nan'))", "not finite"),
        ("Reward(0.5, {'part': float('inf')})", r"breakdown\.part is inf"),
        ("Reward(0.5, {'part': True})", r"breakdown\.part is no number but bool"),
    ],
)
async def test_what_is_no_finite_number_fails_the_scoring(
    returned: str, reason: str, mine: Callable[[str], str]
) -> None:
    module = mine(f"from slipstream.rewards import Reward\ndef bad(run): return {returned}")
    with pytest.raises(ScoringError, match=f"^mine: .*{reason}"):
        await score(
            shadow("yes"),
            {"constant": {"value": 1}},
            {"python": {"object": f"{module}:bad", "component": "mine"}},
        )


async def test_a_calculator_that_raises_fails_the_scoring_with_its_reason(mine: Callable[[str], str]) -> None:
    module = mine("def bad(run): return run.metadata['answer']")
    with pytest.raises(ScoringError, match=r"^python: KeyError: 'answer'"):
        await score(shadow("yes"), {"constant": {"value": 1}}, {"python": f"{module}:bad"})


async def test_a_component_without_basis_fails_the_scoring_unless_it_is_optional() -> None:
    run = shadow("yes")
    with pytest.raises(ScoringError, match=r"^exact_match: the task has no metadata\.reference"):
        await score(run, {"constant": {"value": 0.5}}, "exact_match")
    reward = await score(run, {"constant": {"value": 0.5}}, {"exact_match": {"optional": True}})
    assert (reward.value, reward.breakdown) == (0.5, {"constant": 0.5, "exact_match": None})
    with pytest.raises(ScoringError, match="no component has a basis on this task: exact_match"):
        await score(run, {"exact_match": {"optional": True}})


async def test_plain_code_leaves_the_event_loop_free(mine: Callable[[str], str], tmp_path: Path) -> None:
    module = mine("""
        import os, time
        def waits(run):
            while not os.path.exists(run.text):
                time.sleep(0.01)
            return 1.0
    """)
    turned = tmp_path / "turned"
    scoring = asyncio.create_task(score(shadow(str(turned)), {"python": f"{module}:waits"}))
    await asyncio.sleep(0)
    turned.touch()
    assert (await scoring).value == 1.0


async def test_feedback_is_the_newest_posted_reward() -> None:
    posted = (Feedback(0.2), Feedback(0.9), Feedback(None, comment="thanks"))
    assert await value(shadow("yes", feedback=posted), "feedback") == 0.9


async def test_feedback_that_never_came_gives_the_default_or_fails() -> None:
    run = shadow("yes", production_feedback=(Feedback(1.0),))
    assert await value(run, {"feedback": {"default": 0.25}}) == 0.25
    with pytest.raises(ScoringError, match=r"^feedback: no feedback within grace"):
        await score(run, "feedback")


async def test_the_model_says_whether_it_waits_for_feedback() -> None:
    for calculators, waits in [(["agent"], False), (["agent", {"feedback": {"optional": True}}], True)]:
        model = reward_model(calculators=calculators, grace="24h")
        assert model.waits_for_feedback is waits
        await model.aclose()


async def test_an_object_that_cannot_be_made_is_a_configuration_error(mine: Callable[[str], str]) -> None:
    module = mine("""
        class Threshold:
            def __init__(self, limit: int) -> None:
                if limit < 0:
                    raise RuntimeError("below 0")

            def calculate(self, run): return 1.0
    """)

    def configured(params: dict[str, int]) -> RewardModel:
        return reward_model(calculators=["agent", {"python": {"object": f"{module}:Threshold", "params": params}}])

    with pytest.raises(ConfigError, match=r"^rewards\.calculators\.1\.python: .*RuntimeError: below 0"):
        configured({"limit": -1})
    with pytest.raises(ValidationError, match=r"takes nothing and params limt; found Threshold\(limit: int\)"):
        configured({"limt": 3})


async def test_python_takes_functions_classes_and_instances_plain_or_async(mine: Callable[[str], str]) -> None:
    module = mine("""
        from slipstream.rewards import Reward

        class Scaled:
            def __init__(self, by=1.0):
                self.by = by

            async def calculate(self, run):
                return Reward(len(run.text) * self.by, {"characters": len(run.text)})

        ready = Scaled(2)
        plain = lambda run: len(run.text)

        async def later(run, *, bonus):
            return len(run.text) + bonus

        promise = lambda run: later(run, bonus=3)
    """)
    run = shadow("yes")
    assert await value(run, {"python": {"object": f"{module}:Scaled", "params": {"by": 0.5}}}) == 1.5
    assert await value(run, {"python": f"{module}:ready"}) == 6
    assert await value(run, {"python": f"{module}:plain"}) == 3
    assert await value(run, {"python": {"object": f"{module}:later", "params": {"bonus": 1}}}) == 4
    assert await value(run, {"python": f"{module}:promise"}) == 6
    parts = await score(run, {"python": f"{module}:Scaled"})
    assert parts.breakdown == {"python": 3.0, "python.characters": 3.0}


async def test_what_ones_own_code_keeps_at_module_level_stays_from_run_to_run(mine: Callable[[str], str]) -> None:
    module = mine("""
        seen = []

        def number(run):
            seen.append(run)
            return len(seen)
    """)
    rewards = [await value(shadow("yes"), {"python": f"{module}:number"}) for _ in range(3)]
    assert rewards == [1, 2, 3]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "stuck",
    [
        "def stuck(run): import threading; threading.Event().wait()",
        "def stuck(run): import re; re.match('^(a+)+$', 'a' * 60 + 'b')",
        "async def stuck(run): import asyncio; await asyncio.Event().wait()",
        "async def stuck(run): import re; re.match('^(a+)+$', 'a' * 60 + 'b')",
    ],
)
async def test_python_code_that_does_not_return_fails_by_its_timeout_and_others_go_on(
    mine: Callable[[str], str], stuck: str
) -> None:
    module = mine(f"{stuck}\nasync def fine(run): import asyncio; await asyncio.sleep(0.1); return 0.5")
    both = reward_model(calculators=[{"python": {"object": f"{module}:stuck", "timeout": "50ms"}}])
    others = reward_model(calculators=[{"python": f"{module}:fine"}])
    stopped, *rewards = await asyncio.gather(
        both.score(shadow("yes")), *(others.score(shadow("yes")) for _ in range(3)), return_exceptions=True
    )
    assert str(stopped) == "rewards.calculators[0] (python): took longer than 0.05 s"
    assert [reward.value for reward in rewards if isinstance(reward, Reward)] == [0.5] * 3


@pytest.mark.slow
async def test_code_that_ends_its_process_fails_its_run_alone(mine: Callable[[str], str]) -> None:
    module = mine("""
        import asyncio, os

        async def ends(run):
            await asyncio.sleep(0.05)
            if run.text == "poison":
                os._exit(7)
            return 0.5
    """)
    model = reward_model(calculators=[{"python": f"{module}:ends"}])
    texts = ["a", "b", "poison", "c"]
    outcomes = await asyncio.gather(*(model.score(shadow(text)) for text in texts), return_exceptions=True)
    assert str(outcomes.pop(2)) == "rewards.calculators[0] (python): its process ended with exit code 7"
    assert [outcome.value for outcome in outcomes if isinstance(outcome, Reward)] == [0.5] * 3


async def test_stop_iteration_out_of_plain_code_is_a_failure_and_no_hang(mine: Callable[[str], str]) -> None:
    module = mine("def empty(run): return next(iter(()))")
    with pytest.raises(ScoringError, match=r"^python: StopIteration"):
        await score(shadow("yes"), {"python": f"{module}:empty"})


@pytest.mark.parametrize("kind", ["", "async "])
@pytest.mark.parametrize("raised", ["SystemExit", "KeyboardInterrupt", "asyncio.CancelledError"])
async def test_code_that_ends_the_program_fails_its_run_alone(
    mine: Callable[[str], str], raised: str, kind: str
) -> None:
    module = mine(f"import asyncio\n{kind}def ends(run): raise {raised}")
    with pytest.raises(ScoringError, match=rf"^python: {raised.rpartition('.')[2]}"):
        await score(shadow("yes"), {"python": f"{module}:ends"})


async def test_scoring_that_is_cancelled_from_outside_ends(mine: Callable[[str], str]) -> None:
    module = mine("async def waits(run): import asyncio; await asyncio.sleep(5)")
    model = reward_model(calculators=[{"python": {"object": f"{module}:waits", "timeout": "1s"}}])
    scoring = asyncio.create_task(model.score(shadow("yes")))
    await asyncio.sleep(0)
    scoring.cancel()
    with pytest.raises(asyncio.CancelledError):
        await scoring


async def test_a_mean_that_is_not_finite_is_no_reward() -> None:
    huge = [
        {"constant": {"value": sign * 1.7e308, "weight": 3, "component": name}} for name, sign in (("a", 1), ("b", -1))
    ]
    with pytest.raises(ScoringError, match="not finite"):
        await score(shadow("x"), *huge)


async def test_a_secret_in_the_error_of_ones_own_code_is_not_in_the_reason(mine: Callable[[str], str]) -> None:
    module = mine("""
        def leaky(run):
            raise ValueError("Illegal header value b'Bearer sk-proj-0123456789abcdef'")
    """)
    with pytest.raises(ScoringError, match=r"^python: ValueError: Illegal header value") as failed:
        await score(shadow("x"), {"python": f"{module}:leaky"})
    assert "0123456789abcdef" not in str(failed.value)


async def test_a_time_limit_of_ones_own_code_is_not_taken_for_the_calculators(mine: Callable[[str], str]) -> None:
    module = mine("async def impatient(run): raise TimeoutError('my database')")
    with pytest.raises(ScoringError, match=r"^python: TimeoutError: my database"):
        await score(shadow("x"), {"python": f"{module}:impatient"})


async def test_an_error_is_logged_with_its_traceback_once_and_counted_each_time(mine: Callable[[str], str]) -> None:
    module = mine("""
        def failing(run):
            if run.text == "other":
                raise KeyError(run.text)
            raise ValueError(run.text)
    """)
    metrics = Metrics(CollectorRegistry())
    model = reward_model(metrics, calculators=[{"python": f"{module}:failing"}])
    with structlog.testing.capture_logs() as logged:
        for text in ("answer 1", "answer 2", "other", "answer 3"):
            with pytest.raises(ScoringError):
                await model.score(shadow(text))
    await model.aclose()
    tracebacks = [line["exception"] for line in logged if "exception" in line]
    assert [told.splitlines()[-1] for told in tracebacks] == ["ValueError", "KeyError"]
    assert "in failing" in tracebacks[0]
    assert "raise ValueError(run.text)" in tracebacks[0]
    assert {(line["event"], line["calculator"]) for line in logged} == {("reward_calculator_failed", "python")}
    assert len(logged) == 4
    assert "answer" not in str(logged), "an error's message may quote the answer"
    assert metrics.registry.get_sample_value("slipstream_reward_errors_total") == 4


async def test_a_service_that_is_away_is_counted_and_logged_and_what_the_task_lacks_is_not() -> None:
    metrics = Metrics(CollectorRegistry())

    async def failed(*calculators: Any, run: Run) -> list[MutableMapping[str, Any]]:
        model = reward_model(metrics, calculators=list(calculators))
        with structlog.testing.capture_logs() as logged, pytest.raises(ScoringError):
            await model.score(run)
        await model.aclose()
        return logged

    away = {"url": "http://127.0.0.1:9/", "attempts": 1, "allow_private": True}
    logged = await failed({"webhook": away}, run=shadow("answer"))
    assert [(line["event"], line["calculator"]) for line in logged] == [("reward_calculator_failed", "webhook")]
    assert logged[0]["error"] == "NoUsableAnswer"
    await failed("contains", run=shadow("answer", metadata={"reference": {"a": 1}}))
    assert metrics.registry.get_sample_value("slipstream_reward_errors_total") == 2
    assert await failed("contains", run=shadow("answer")) == []
    assert await failed("feedback", run=shadow("answer")) == []
    assert metrics.registry.get_sample_value("slipstream_reward_errors_total") == 2


async def test_a_reward_that_is_clipped_is_counted_and_logged_once() -> None:
    metrics = Metrics(CollectorRegistry())
    model = reward_model(metrics, calculators=[{"constant": {"value": 3}}], clip=(0, 1))
    with structlog.testing.capture_logs() as logged:
        for _ in range(3):
            await model.score(shadow("yes"))
    await model.aclose()
    assert [(line["event"], line["reward"], line["clip"]) for line in logged] == [("reward_clipped", 3.0, [0.0, 1.0])]
    assert metrics.registry.get_sample_value("slipstream_rewards_clipped_total") == 3
    within = reward_model(metrics, calculators=[{"constant": {"value": 1}}], clip=(0, 1))
    await within.score(shadow("yes"))
    await within.aclose()
    assert metrics.registry.get_sample_value("slipstream_rewards_clipped_total") == 3
