import re
from pathlib import Path
from typing import get_args

import pytest
from documented import lists_all

from slipstream.rewards import RewardsSettings
from slipstream.rewards.calculator import Parameters
from slipstream.rewards.calculators.agent import DEFAULT_WEIGHTS
from slipstream.rewards.calculators.tools import Penalties
from slipstream.rewards.settings import CalculatorSpec

PAGE = (Path(__file__).parents[2] / "docs" / "rewards.md").read_text(encoding="utf-8")


def documented(text: str) -> set[str]:
    """The names in the first column of the tables of a text."""
    rows = re.findall(r"^\| (.+?) \|", text, re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def section(name: str) -> str:
    found = re.search(rf"^### `{name}`\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"docs/rewards.md has no section on {name}"
    return found[1]


@pytest.mark.parametrize("name", CalculatorSpec.model_fields)
def test_the_page_describes_each_calculator_with_its_parameters(name: str) -> None:
    parameters = get_args(CalculatorSpec.model_fields[name].annotation)[0]
    own = {
        info.alias or field for field, info in parameters.model_fields.items() if field not in Parameters.model_fields
    }
    extra = set(Penalties.model_fields) if name == "tool_calls" else set()
    lists_all(f"docs/rewards.md, parameters of {name}", documented(section(name)), own | extra)


def test_the_page_lists_each_calculator_key_and_default_weight() -> None:
    overview = PAGE[PAGE.index("## Calculators") : PAGE.index("### `constant`")]
    lists_all("docs/rewards.md, overview of the calculators", documented(overview), CalculatorSpec.model_fields)
    before = PAGE[: PAGE.index("## Calculators")]
    assert documented(before) == {*RewardsSettings.model_fields, *Parameters.model_fields, *DEFAULT_WEIGHTS}
    for component, weight in DEFAULT_WEIGHTS.items():
        assert f"| `{component}` | {weight:.2f} |" in before


def test_the_page_lists_each_calculator_that_runs_in_a_process_of_its_own() -> None:
    listed = re.search(r"run in a process of their own: (.+?)\.", PAGE, re.DOTALL)
    assert listed
    calculators = {name: get_args(field.annotation)[0] for name, field in CalculatorSpec.model_fields.items()}
    known = {name for name, parameters in calculators.items() if getattr(parameters, "interprets", False)}
    lists_all('docs/rewards.md, "Processes of calculators"', re.findall(r"`(\w+)`", listed[1]), known)
