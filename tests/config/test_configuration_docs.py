"""The documentation cannot rot: every key has its row, and what the row says of default and error is tried."""

import re
from pathlib import Path
from typing import get_args

import pytest
import yaml
from documented import lists_all
from pydantic import BaseModel, TypeAdapter, ValidationError

from slipstream.errors import ConfigError
from slipstream.selection import SelectionSettings
from slipstream.selection.strategies import PLAIN
from slipstream.settings.sidecar import Settings
from slipstream.settings.source import load_settings

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"\| `(?P<key>[a-z_.]+)` \| .+? \| (?P<default>.*?) ?\| .+ \| `(?P<bad>.+?)`: (?P<error>.+) \|")


def rows(page):
    lines = (ROOT / "docs" / page).read_text(encoding="utf-8").split("## Reasons")[0].split("## Redaction")[0]
    return [ROW.fullmatch(line) for line in lines.splitlines() if line.startswith("| `")]


def parameters():
    """The settings of each strategy that has some, by its key; combinations have none of their own."""
    for name, field in SelectionSettings.model_fields.items():
        settings = get_args(field.annotation)[0]
        if isinstance(settings, type) and issubclass(settings, BaseModel) and settings is not SelectionSettings:
            yield name, settings


PARAMETERS = dict(parameters())
SETTINGS_ROWS = rows("configuration.md")
STRATEGY_ROWS = rows("selection.md")


def sections():
    for name, field in Settings.model_fields.items():
        whole = name in ("listen", "selection")  # written in a form of their own
        yield from [name] if whole else [f"{name}.{key}" for key in field.annotation.model_fields]


def strategies():
    for name, field in SelectionSettings.model_fields.items():
        key = field.alias or name
        yield key
        yield from [f"{key}.{parameter}" for parameter in PARAMETERS[key].model_fields] if key in PARAMETERS else []


def test_every_key_is_documented_once():
    pages = (("configuration.md", SETTINGS_ROWS, sections()), ("selection.md", STRATEGY_ROWS, strategies()))
    for page, table, keys in pages:
        listed, known = [row["key"] for row in table], list(keys)
        lists_all(f"docs/{page}", listed, known)
        assert listed == known, f"docs/{page}: expected the rows in the order of the fields"


def test_each_strategy_can_be_made_and_its_reasons_are_listed():
    keys = {key for key in strategies() if "." not in key}
    combined = {"all", "any", "not"}
    lists_all("selection/strategies.py, PLAIN", PLAIN, keys - combined - {"budget", "python"})
    reasons = (ROOT / "docs" / "selection.md").read_text(encoding="utf-8").split("## Reasons")[1].split("## ")[0]
    lists_all('docs/selection.md, "Reasons"', re.findall(r"^\| `(\w+)", reasons, re.MULTILINE), keys)


@pytest.mark.parametrize("row", SETTINGS_ROWS, ids=lambda row: row["key"])
def test_the_documented_default_is_the_default(row):
    section, _, key = row["key"].partition(".")
    written = yaml.safe_load(row["default"].strip("`"))
    tree = {section: {key: written} if key else written}
    assert Settings(**tree) == Settings()


@pytest.mark.parametrize("row", SETTINGS_ROWS, ids=lambda row: row["key"])
def test_the_documented_error_is_the_error(row):
    variable = "SLIPSTREAM_" + row["key"].replace(".", "__").upper()
    with pytest.raises(ConfigError) as caught:
        load_settings(None, {variable: row["bad"]})
    assert caught.value.problems[0].startswith(f"{row['key']}: expected {row['error']}")


@pytest.mark.parametrize("row", STRATEGY_ROWS, ids=lambda row: row["key"])
def test_the_documented_error_of_a_strategy_is_the_error(row):
    variable = "SLIPSTREAM_SELECTION__" + row["key"].replace(".", "__").upper()
    with pytest.raises(ConfigError) as caught:
        load_settings(None, {"SLIPSTREAM_SELECTION": "{}", variable: row["bad"]})
    told = next(line for line in caught.value.problems if line.startswith(f"selection.{row['key']}"))
    assert f": expected {row['error']}" in told


@pytest.mark.parametrize("row", [row for row in STRATEGY_ROWS if "." in row["key"]], ids=lambda row: row["key"])
def test_the_documented_default_of_a_strategy_is_the_default(row):
    strategy, _, key = row["key"].partition(".")
    field = PARAMETERS[strategy].model_fields[key]
    if row["default"] == "needed":
        assert field.is_required()
    else:
        written = yaml.safe_load(row["default"].strip("`"))
        assert TypeAdapter(field.rebuild_annotation()).validate_python(written) == field.get_default(
            call_default_factory=True
        )


def test_the_shipped_file_lists_every_key_at_its_default_but_for_two():
    text = (ROOT / "sidecar.yaml").read_text(encoding="utf-8")
    shipped, default = load_settings(ROOT / "sidecar.yaml", {}).model_dump(), Settings().model_dump()
    assert (shipped["runs"].pop("repeat_time"), default["runs"].pop("repeat_time")) == (8, 1)
    (calculator,) = shipped["rewards"].pop("calculators")
    assert [name for name, options in calculator.items() if options] == ["agreement"]
    assert default["rewards"].pop("calculators") == ()
    assert shipped == default
    written = yaml.safe_load(text)
    given = [
        name if name in ("listen", "selection") else f"{name}.{key}"
        for name, section in written.items()
        for key in (section if isinstance(section, dict) else [""])
    ]
    assert list(dict.fromkeys(given)) == list(sections())


def test_the_examples_of_the_selection_page_are_valid():
    page = (ROOT / "docs" / "selection.md").read_text(encoding="utf-8")
    examples = [yaml.safe_load(block)["selection"] for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]
    assert len(examples) == 2
    SelectionSettings.model_validate(examples[0])
    with pytest.raises(ValidationError, match="found no module shop"):  # the reader's own module
        SelectionSettings.model_validate(examples[1])
