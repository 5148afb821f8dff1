"""The clients that are tried: a folder each, with an agent, the versions of its environment, and `about.toml`."""

from __future__ import annotations

import json
import os
import re
import shutil
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1]
ROOT = FOLDER.parents[1]
ENVIRONMENTS = ROOT / ".clients-venv"
"""Where `make clients` installs them."""

DIALECTS = ("chat", "responses", "messages")


@dataclass(frozen=True)
class Client:
    """A package that calls a model, in one of the dialects that it speaks, as `about.toml` describes it.

    Attributes:
        folder: its name; that of its environment too.
        title: what readers know it by.
        package: the distribution that the version is of.
        dialect: one of `DIALECTS`, which is the name of its section.
        is_default: the package speaks this dialect unless it is told otherwise.
        needs: what its user has to set, in Markdown.
        modes: how its agent can ask for answers: `whole`, `stream`.
        calls: of the model that one request takes.
        sidecar: sections of `sidecar.yaml` that it needs.
        is_only: the agent speaks no other one; else it is told which.
    """

    folder: str
    title: str
    package: str
    dialect: str
    is_default: bool
    needs: str
    modes: tuple[str, ...] = ("whole", "stream")
    calls: int = 3
    sidecar: Mapping[str, Any] = field(default_factory=dict)
    is_only: bool = True

    @property
    def name(self) -> str:
        return f"{self.folder}-{self.dialect}"

    @property
    def in_node(self) -> bool:
        return (FOLDER / self.folder / "package.json").exists()

    @property
    def version(self) -> str:
        """The pinned version of its package."""
        folder = FOLDER / self.folder
        if self.in_node:
            version: str = json.loads((folder / "package.json").read_text())["dependencies"][self.package]
            return version
        pins = (folder / "requirements.txt").read_text()
        found = re.search(rf"^{re.escape(self.package)}(\[.*\])?==(.+)$", pins, re.MULTILINE)
        assert found, f"{folder}/requirements.txt does not pin {self.package}"
        return found[2]

    @property
    def installed(self) -> bool:
        return (ENVIRONMENTS / self.folder / ".installed").exists()

    def command(self, mode: str, questions: list[str]) -> list[str]:
        """The command that has its agent answer questions, one after the other."""
        environment = ENVIRONMENTS / self.folder
        arguments = [*([] if self.is_only else [self.dialect]), mode, *questions]
        if not self.in_node:
            return [str(environment / "bin/python"), str(FOLDER / self.folder / "agent.py"), *arguments]
        # a module finds its packages beside itself
        agent = shutil.copy(FOLDER / self.folder / "agent.mjs", environment)
        return [str(ENVIRONMENTS / "node/node_modules/node/bin/node"), agent, *arguments]

    def environment(self, url: str, home: Path) -> dict[str, str]:
        """The variables of a process that runs its agent.

        Args:
            url: of the sidecar.
        """
        kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "TZ")}
        return kept | {
            "HOME": str(home),
            "OPENAI_BASE_URL": f"{url}/v1",
            "OPENAI_API_BASE": f"{url}/v1",
            "OPENAI_API_KEY": "sk-of-the-agent",
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "sk-ant-of-the-agent",
            # none of these is needed for capture: they keep a client from calls to elsewhere, which take time to fail
            "CREWAI_DISABLE_TELEMETRY": "true",
            "CREWAI_TRACING_ENABLED": "false",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "LITELLM_LOCAL_MODEL_COST_MAP": "true",
            "OTEL_SDK_DISABLED": "true",
        }


def clients() -> list[Client]:
    """All clients in each of their dialects, by title."""
    found = [client for path in FOLDER.glob("*/about.toml") for client in _read(path)]
    return sorted(found, key=lambda client: client.title.lower())  # stable: dialects stay in the order of the file


def _read(path: Path) -> list[Client]:
    about = tomllib.loads(path.read_text())
    spoken = [dialect for dialect in about if dialect in DIALECTS]
    return [
        Client(
            folder=path.parent.name,
            title=about["title"],
            package=about[dialect].get("package", about["package"]),
            dialect=dialect,
            is_default=about.get("default") == dialect,
            needs=about[dialect]["set"],
            modes=tuple(about[dialect].get("modes", ("whole", "stream"))),
            calls=about[dialect].get("calls", 3),
            sidecar=about[dialect].get("sidecar", {}),
            is_only=len(spoken) == 1,
        )
        for dialect in spoken
    ]
