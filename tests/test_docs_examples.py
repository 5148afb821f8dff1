"""Examples of the pages can be used as they stand: Python compiles, YAML is valid configuration, commands exist."""

from __future__ import annotations

import ast
import json
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from typer.main import get_command

from slipstream.agent_training.stages import load_stages
from slipstream.api.experiments import ExperimentBody
from slipstream.api.rollouts import RolloutBody
from slipstream.cli import app
from slipstream.datasets.config import DataFile
from slipstream.embedded.config import EngineConfig
from slipstream.errors import ConfigError
from slipstream.settings.sidecar import Settings
from slipstream.settings.source import load_settings

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]
COMMAND: Any = get_command(app)
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)

# What only the reader's machine has: files, keys, and modules of the reader's own.
OF_THE_READER = re.compile(
    r"no such file|found a value that is not shown here|found no module (?:my_rewards|shop)\b"
    r"|^(?:access|rollouts): expected (?:access\.)?keys or ",
    re.IGNORECASE,
)
OF_OTHERS = {"apiVersion", "agentExample", "trinity", "trainer", "postgresql"}
"""Keys by which a block is of Kubernetes, the chart or Trinity; what renders and runs these tests them."""


class Block(NamedTuple):
    """A fenced block: the page and line where it begins, its language, and its text."""

    place: str
    language: str
    text: str


def blocks() -> Iterator[Block]:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for found in BLOCK.finditer(text):
            line = text.count("\n", 0, found.start()) + 1
            yield Block(f"{page.relative_to(ROOT)}:{line}", found[2], textwrap.dedent(found[3]))


BLOCKS = list(blocks())


def of(language: str) -> list[Block]:
    found = [block for block in BLOCKS if block.language == language]
    assert len(found) > 20, "the pages, or how blocks are found, have changed"
    return found


def test_python_compiles() -> None:
    for place, _, text in of("python"):
        compile(text, place, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST)


def test_json_parses() -> None:
    for place, _, text in of("json"):
        try:
            json.loads(text)
        except ValueError:
            lines = [line for line in text.splitlines() if line]  # such as of a JSONL file
            assert all(isinstance(json.loads(line), dict) for line in lines), place


def test_yaml_is_valid_configuration(tmp_path: Path) -> None:
    wrong: list[str] = []
    checked = 0
    for place, _, text in of("yaml"):
        for document in yaml.safe_load_all(text):
            if isinstance(document, dict) and OF_OTHERS & document.keys():
                continue
            checked += 1
            wrong += [f"{place}: {problem}" for problem in _problems(document, tmp_path / "sidecar.yaml")]
    assert not wrong, "\n".join(wrong)
    assert checked > 20


def _problems(document: Any, file: Path) -> list[str]:
    if isinstance(document, list):
        document = {"calculators": document}
    if "calculators" in document:
        document = {"rewards": document}
    if document.keys() & {"dataset", "train"}:
        DataFile.model_validate({"dataset": {"name": "n", "sources": [{"production": {}}]}, **document})
        return []
    if "monitor" in document:
        EngineConfig.model_validate(
            {
                "mode": "train",
                "checkpoint_root_dir": "c",
                "model": {"model_path": "m", "max_model_len": 512},
                **document,
            }
        )
        return []
    if "profile" in document:
        file.write_text(yaml.safe_dump(document), encoding="utf-8")
        load_stages(file)
        return []
    if not document.keys() <= Settings.model_fields.keys():
        _validate_plan(document)
        return []
    text = yaml.safe_dump(document)
    file.write_text(text, encoding="utf-8")
    try:
        load_settings(file, dict.fromkeys(re.findall(r"\$\{(\w+)\}", text), "set-by-the-reader"))
    except ConfigError as error:
        return [problem for problem in error.problems if not OF_THE_READER.search(problem)]
    return []


def _validate_plan(document: dict[str, Any]) -> None:
    """A file for `--plan` of an experiment or of a rollout. Raises ValidationError."""
    if "steps" in document:
        RolloutBody.model_validate({"version": 1, **document})
    else:
        ExperimentBody.model_validate({"name": "n", "b": "version:1", **document})


def shown_commands() -> Iterator[tuple[str, str]]:
    """Each `slipstream ...` of a shell block, of a block without language, or in a line of text, with its place."""
    for place, language, text in BLOCKS:
        if language in ("", "sh", "ini"):
            joined = text.replace("\\\n", " ")
            for command in re.findall(r"^(?:\$ |ExecStart=\S*/)?slipstream (.+)$", joined, re.MULTILINE):
                yield place, command
    for page in PAGES:
        text = BLOCK.sub("", page.read_text(encoding="utf-8"))
        for command in re.findall(r"`slipstream\s+([^`]+)`", text):
            yield str(page.relative_to(ROOT)), command


def test_commands_and_options_exist() -> None:
    wrong = []
    shown = list(shown_commands())
    for place, command in shown:
        unknown = list(_unknown(re.split(r"\s+#|[|;&<>]", command)[0]))
        wrong += [f"{place}: slipstream {command}: {word}" for word in unknown]
    assert not wrong, "\n".join(wrong)
    assert len(shown) > 150


def _unknown(text: str) -> Iterator[str]:
    """The words of a command line that its parser does not know."""
    command = COMMAND
    options = _options(command)
    before = ""
    for word in re.findall(r"[^\s\[\]]+", text):
        below = getattr(command, "commands", {})
        if word.startswith("-"):
            if not {*word.partition("=")[0].split("/")} <= options and not _takes_more(command):
                yield word
        elif word in below:
            command = below[word]
            options |= _options(command)
        elif below and word.islower() and word.isalpha() and not before.startswith("-"):
            yield word
        before = word


def _options(command: Any) -> set[str]:
    return {name for each in command.params for name in (*each.opts, *each.secondary_opts)} | {"--help"}


def _takes_more(command: Any) -> bool:
    """Whether arguments go on to a program of the reader's, as those of `tune` do."""
    return bool(command.context_settings.get("ignore_unknown_options"))


def test_programs_of_the_repository_exist() -> None:
    named = {
        (place, path)
        for place, language, text in BLOCKS
        if language in ("", "sh")
        for path in re.findall(r"\b(?:python|sh) ((?:benchmarks|examples|deploy|tests)/[\w./-]+)", text)
    }
    assert len(named) > 10
    assert [each for each in sorted(named) if not (ROOT / each[1]).exists()] == []
