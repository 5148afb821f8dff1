"""The clients that are tried: a folder each, with an agent, the versions of its environment, and `about.toml`."""

from __future__ import annotations

import json
import os
import re
import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parents[1]
ROOT = FOLDER.parents[1]
ENVIRONMENTS = ROOT / ".clients-venv"
"""Where `make clients` installs them."""


@dataclass(frozen=True)
class Client:
    """A package that calls a model, as `about.toml` describes it.

    Attributes:
        name: of its folder, and of its environment.
        title: what readers know it by.
        package: the distribution that the version is of.
        needs: what its user has to set, in Markdown.
        modes: how its agent can ask for answers: `whole`, `stream`.
    """

    name: str
    title: str
    package: str
    needs: str
    modes: tuple[str, ...]

    @property
    def in_node(self) -> bool:
        return (FOLDER / self.name / "package.json").exists()

    @property
    def version(self) -> str:
        """The pinned version of its package."""
        folder = FOLDER / self.name
        if self.in_node:
            version: str = json.loads((folder / "package.json").read_text())["dependencies"][self.package]
            return version
        pins = (folder / "requirements.txt").read_text()
        found = re.search(rf"^{re.escape(self.package)}(\[.*\])?==(.+)$", pins, re.MULTILINE)
        assert found, f"{folder}/requirements.txt does not pin {self.package}"
        return found[2]

    @property
    def installed(self) -> bool:
        return (ENVIRONMENTS / self.name / ".installed").exists()

    def command(self, mode: str, questions: list[str]) -> list[str]:
        """The command that has its agent answer questions, one after the other."""
        environment = ENVIRONMENTS / self.name
        if not self.in_node:
            return [str(environment / "bin/python"), str(FOLDER / self.name / "agent.py"), mode, *questions]
        # a module finds its packages beside itself
        agent = shutil.copy(FOLDER / self.name / "agent.mjs", environment)
        return [str(ENVIRONMENTS / "node/node_modules/node/bin/node"), agent, mode, *questions]

    def environment(self, base_url: str, home: Path) -> dict[str, str]:
        """The variables of a process that runs its agent."""
        kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "TZ")}
        return kept | {
            "HOME": str(home),
            "OPENAI_BASE_URL": base_url,
            "OPENAI_API_BASE": base_url,
            "OPENAI_API_KEY": "sk-of-the-agent",
            # none of these is needed for capture: they keep a client from calls to elsewhere, which take time to fail
            "CREWAI_DISABLE_TELEMETRY": "true",
            "CREWAI_TRACING_ENABLED": "false",
            "LITELLM_LOCAL_MODEL_COST_MAP": "true",
            "OTEL_SDK_DISABLED": "true",
        }


def clients() -> list[Client]:
    """All clients, by title."""
    return sorted((_read(path) for path in FOLDER.glob("*/about.toml")), key=lambda client: client.title.lower())


def _read(path: Path) -> Client:
    about = tomllib.loads(path.read_text())
    modes = tuple(about.get("modes", ("whole", "stream")))
    return Client(path.parent.name, about["title"], about["package"], about["set"], modes)
