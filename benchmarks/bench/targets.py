"""The ways to the model that are compared, and how each is started: a command, and the files that it reads.

Every proxy has one worker process and its logs off, but for what its row says; keys are dummies.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from bench.processes import Unavailable
from bench.request import KEY, MODEL
from bench.upstreams import nginx_proxy

ROOT = Path(__file__).parents[2]
PEERS = ROOT / ".bench-venv"
"""Each peer has an environment of its own below: they want different versions of the same packages."""


@dataclass(frozen=True)
class Place:
    """Where a target runs: a folder of its own, its port, and the port of the model."""

    folder: Path
    port: int
    upstream: int

    def write(self, name: str, document: object) -> str:
        """Write a YAML file into the folder; returns its path."""
        path = self.folder / name
        path.write_text(yaml.safe_dump(document, sort_keys=False))
        return str(path)


@dataclass(frozen=True)
class Command:
    """A program and its environment, over that of the benchmark."""

    arguments: list[str]
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Target:
    """One row of the report. `start` raises Unavailable; without it requests go to the model directly.

    Attributes:
        capture: of Slipstream, the share of the calls that it is told to capture; None for all others.
    """

    key: str
    name: str
    start: Callable[[Place], Command] | None
    capture: float | None = None

    @property
    def compared(self) -> bool:
        """Return whether it is also measured at leisure and with other APIs: Slipstream, and nginx beside it."""
        return self.capture is not None or self.key == "nginx"


def _nginx(place: Place) -> Command:
    return Command(nginx_proxy(place.folder, place.port, place.upstream))


def slipstream(rate: float, workers: int = 1) -> Callable[[Place], Command]:
    """`slipstream serve` as it is shipped, selection on, with an Explorer that is away."""

    def start(place: Place) -> Command:
        config = {
            "listen": f"127.0.0.1:{place.port}",
            "production": {"base_url": f"http://127.0.0.1:{place.upstream}/v1"},
            "explorer": {"base_url": "http://127.0.0.1:9"},  # the port "discard", on which nobody listens
            "store": {"url": f"sqlite+aiosqlite:///{place.folder}/slipstream.db"},
            "capture": {"rate": rate},
            "selection": {"sampling": {"rate": 0.1}},
            "rewards": {"calculators": ["agreement"]},
            "commit": {"on_shutdown": False},
            "log": {"level": "error"},
        }
        if workers > 1:
            config["proxy"] = {"workers": workers}
        return Command([sys.executable, "-m", "slipstream", "serve", "--config", place.write("sidecar.yaml", config)])

    return start


def _peer(name: str, program: str) -> str:
    path = PEERS / name / "bin" / program
    if not path.exists():
        raise Unavailable(f"not installed (`make bench` installs it into {path.parents[1].relative_to(ROOT)})")
    return str(path)


def _trinity(place: Place) -> Command:
    python = ROOT / ".trinity-venv" / "bin" / "python"
    if not python.exists():
        raise Unavailable("not installed (`make bench` installs it into .trinity-venv)")
    script = Path(__file__).with_name("trinity_proxy.py")
    paths = f"{PEERS / 'trinity'}:{ROOT / 'tests' / 'trinity'}"
    command = [str(python), str(script), str(place.port), f"http://127.0.0.1:{place.upstream}", str(place.folder)]
    return Command(command, {"PYTHONPATH": paths})


def _litellm(place: Place) -> Command:
    program = _peer("litellm", "litellm")
    config = place.write(
        "litellm.yaml",
        {
            "model_list": [{"model_name": MODEL, "litellm_params": _upstream_of_litellm(place)}],
            "litellm_settings": {"num_retries": 0, "request_timeout": 600},
        },
    )
    command = [program, "--config", config, "--host", "127.0.0.1", "--port", str(place.port), "--num_workers", "1"]
    return Command(command, {**_LITELLM, "LITELLM_MASTER_KEY": KEY})


def _agent_lightning(place: Place) -> Command:
    python = _peer("agent-lightning", "python")
    script = Path(__file__).with_name("agent_lightning_proxy.py")
    # it asks its own /health without a key, and gives up where that is refused
    keyless = {**_LITELLM, "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"}
    return Command([python, str(script), str(place.port), json.dumps(_upstream_of_litellm(place)), MODEL], keyless)


def _upstream_of_litellm(place: Place) -> dict[str, str]:
    return {"model": f"openai/{MODEL}", "api_base": f"http://127.0.0.1:{place.upstream}/v1", "api_key": "sk-dummy"}


_LITELLM = {
    "LITELLM_LOG": "ERROR",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it asks the network for prices
    "LITELLM_MODE": "PRODUCTION",
}


def _mlflow(place: Place) -> Command:
    program = _peer("mlflow", "mlflow")
    model = {
        "provider": "openai",
        "name": MODEL,
        "config": {"openai_api_key": "sk-dummy", "openai_api_base": f"http://127.0.0.1:{place.upstream}/v1"},
    }
    endpoint = {"name": MODEL, "endpoint_type": "llm/v1/chat", "model": model}
    config = place.write("mlflow.yaml", {"endpoints": [endpoint]})
    command = [program, "gateway", "start", "--config-path", config, "--host", "127.0.0.1", "--port", str(place.port)]
    env = {"PATH": f"{Path(program).parent}:/usr/local/bin:/usr/bin:/bin", "MLFLOW_DISABLE_TELEMETRY": "true"}
    env["GUNICORN_CMD_ARGS"] = "--timeout 0 --no-control-socket"  # else its master kills a worker that was held
    return Command([*command, "--workers", "1"], env)


TARGETS = (
    Target("direct", "direct", None),
    Target("nginx", "nginx", _nginx),
    Target("slipstream-0", "Slipstream, capture off", slipstream(0.0), 0.0),
    Target("slipstream-01", "Slipstream, capture 1%", slipstream(0.01), 0.01),
    Target("slipstream-10", "Slipstream, capture 10%", slipstream(0.1), 0.1),
    Target("slipstream-100", "Slipstream, capture 100%", slipstream(1.0), 1.0),
    Target("slipstream-100-2", "Slipstream, capture 100%, 2 workers", slipstream(1.0, 2), 1.0),
    Target("trinity", "Trinity-RFT's proxy", _trinity),
    Target("mlflow", "MLflow gateway", _mlflow),
    Target("agent-lightning", "Agent Lightning's LLM proxy", _agent_lightning),
    Target("litellm", "LiteLLM proxy", _litellm),
)


def chosen(only: str) -> list[Target]:
    """The targets whose key, or its beginning, is in the list with commas; all for an empty one. `direct` always is.

    Raises:
        ValueError: a word names no target.
    """
    words = [word.strip() for word in only.split(",") if word.strip()]
    for word in words:
        if not any(target.key.startswith(word) for target in TARGETS):
            raise ValueError(f"--only: no target begins with {word!r}; there are {', '.join(t.key for t in TARGETS)}")
    named = [t for t in TARGETS if not words or any(t.key.startswith(word) for word in words)]
    return named if named[0].key == "direct" else [TARGETS[0], *named]
