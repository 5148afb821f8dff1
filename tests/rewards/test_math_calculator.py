import asyncio
from typing import Any

import pytest
from reward_runs import reward_model, shadow

from slipstream.errors import ScoringError
from slipstream.rewards import RewardModel


@pytest.fixture(scope="module")
def math() -> RewardModel:
    return reward_model(calculators=[{"math": {"timeout": "10s"}}])


@pytest.mark.parametrize(
    ("answer", "reference", "expected"),
    [
        ("The answer is 0.5", "1/2", 1),
        (r"So it is $\frac{1}{2}$.", "1/2", 1),
        (r"\boxed{\frac{1}{2}}", 0.5, 1),
        ("So it is 0.4", "1/2", 0),
        ("The answer is 0.00005", 0.00005, 1),
        ("The answer is 1000", "1e3", 1),
        ("The answer is 10000000000000000", 1e16, 1),
        (r"It is $50\%$", "50%", 1),
        ("答案是1/2。", "0.5", 1),
        ("答案：-4", -4, 1),
        ("答案：-4", 4, 0),
        ("因此 x=2 是解", "2", 1),
        ("**42**", 42, 1),
        ("There are 1,234 apples", "1234", 1),
        (r"$x^2 + 2x + 1$", "(x+1)^2", 1),
        (r"$\{2, 1\}$", r"\{1, 2\}", 1),
        ("4", ["3", "4"], 1),
        ("I do not know", "4", 0),
        ("The answer is 10².", 100, 1),
        ("The answer is 10².", 102, 0),
        ("$x² + 1$", "x^2+1", 1),
        (r"\boxed{10⁻³}", 0.001, 1),
        ("It is 10⁻³ m", 0.001, 1),
        ("It is 10¹² m", 10**12, 1),
        ("The area is 25 m².", 25, 1),
        ("10", "10²", 0),
        ("2½ cups", 2.5, 1),
        ("½", 0.5, 1),
        ("The answer is −4.", -4, 1),
        ("The answer is –4.", -4, 1),
        ("The answer is –4.", 4, 0),
        ("The answer is 3.2e-4", 0.00032, 1),
        ("The answer is 3.2e-4", 3.2, 0),
        ("$3.2e-4$", "3.2e-4", 1),
        ("It is 2-1e3.", -998, 1),
        ("1e999999999", 2, 0),
        ("", "4", 0),
    ],
)
async def test_equal_as_mathematics(math: RewardModel, answer: str, reference: Any, expected: float) -> None:
    reward = await math.score(shadow(answer, metadata={"reference": reference}))
    assert reward.value == expected


async def test_a_reference_that_is_no_mathematics_fails_the_scoring(math: RewardModel) -> None:
    with pytest.raises(ScoringError, match=r"^math: metadata\.reference cannot be read as mathematics"):
        await math.score(shadow("4", metadata={"reference": "?"}))


@pytest.mark.slow
async def test_an_answer_that_cannot_be_computed_ends_by_the_timeout_and_the_next_one_is_checked() -> None:
    model = reward_model(calculators=[{"math": {"timeout": "1s"}}])
    with pytest.raises(ScoringError, match=r"^rewards\.calculators\[0\] \(math\): took longer than 1 s"):
        await model.score(shadow(r"So it is $10^{10^{8}}$.", metadata={"reference": "1"}))
    model = reward_model(calculators=[{"math": {"timeout": "60s"}}])
    runs = [shadow(str(n), metadata={"reference": n % 2}) for n in range(4)]
    rewards = await asyncio.gather(*(model.score(run) for run in runs))
    assert [reward.value for reward in rewards] == [1, 1, 0, 0]
