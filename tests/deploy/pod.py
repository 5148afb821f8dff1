"""The sidecar's pod as plain processes: each container with its own parent, process ids and log, as its manifest says.

What a container has and a process does not is replaced: paths that are mounted lie in a folder, addresses are of
loopback. Where it is allowed, each container has a namespace of its own for process ids, so that one half knows no
process of the other. A container that ends is started again, as `restartPolicy: Always` has it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
from charts import Manifest, containers, of_kind
from composed import CHECKOUT
from ports import free_port
from serving import until

_BIN = Path(sys.executable).parent
_NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
_AGAIN = 0.2
"""Seconds until a container that ended is started again; the kubelet begins with none and goes up to five minutes."""


@functools.cache
def _namespace() -> tuple[str, ...]:
    """What a command is put behind to have process ids of its own; nothing where that is not allowed."""
    command = (*_NAMESPACE, *(() if os.geteuid() == 0 else ("--map-root-user",)))
    try:
        subprocess.run([*command, "true"], check=True, capture_output=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return ()
    return command


class Container:
    """One container: `main` is its first process, `log` what it wrote."""

    def __init__(self, manifest: Manifest, log: Path) -> None:
        self.manifest = manifest
        self.log = log
        self.behind: tuple[str, ...] = ()
        self.starts = 0
        self.process: asyncio.subprocess.Process | None = None

    def processes(self) -> list[int]:
        """Ids of all its processes, the first one first, as seen from outside."""
        if self.process is None or self.process.returncode is not None:
            return []
        found = [self.process.pid]
        for pid in found:
            with contextlib.suppress(OSError):
                found += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        return [pid for pid in found if _is_ours(pid)]

    def signal(self, number: signal.Signals) -> None:
        """Send it to all of its processes."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """End all of it at once, as the kernel does for want of memory."""
        assert self.process is not None
        self.signal(signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()


def _is_ours(pid: int) -> bool:
    try:
        return b"slipstream" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0--config")[0].split(b"unshare")[0]
    except OSError:
        return False


class Pod:
    """The containers of a rendered Deployment.

    Args:
        folder: where what is mounted lies; short, because Unix sockets are in it.
        secrets: the text of each file under /run/secrets/slipstream.
    """

    def __init__(self, manifests: list[Manifest], folder: Path, secrets: dict[str, str]) -> None:
        [deployment] = of_kind(manifests, "Deployment").values()
        self.spec: Manifest = deployment["spec"]["template"]["spec"]
        self.containers = {
            each["name"].removeprefix("slipstream-"): Container(each, folder / f"{each['name']}.log")
            for each in containers(deployment["spec"]["template"])
        }
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.folder = folder
        self._paths = {
            mount["mountPath"]: folder / mount["name"]
            for each in self.containers.values()
            for mount in each.manifest["volumeMounts"]
        }
        for place in self._paths.values():
            place.mkdir(exist_ok=True)
        for name, text in secrets.items():
            (self._paths["/run/secrets/slipstream"] / name).write_text(text)
        [config] = [data for name, data in of_kind(manifests, "ConfigMap").items() if name.endswith("-sidecar")]
        for file, content in config["data"].items():
            (self._paths["/etc/slipstream"] / file).write_text(self.here(content))
        self._keeping: dict[str, asyncio.Task[None]] = {}

    def here(self, text: str) -> str:
        """The text with what belongs to containers replaced by what stands for it here."""
        paths = "|".join(re.escape(path) for path in sorted(self._paths, key=len, reverse=True))
        moved = re.sub(rf"(?<![\w.])({paths})(?![\w-])", lambda match: str(self._paths[match[1]]), text)
        return moved.replace("0.0.0.0:8100", f"127.0.0.1:{self.port}")

    def mounted(self, path: str) -> Path:
        return self._paths[path]

    async def start(self, name: str) -> None:
        """Start a container, and start it again whenever it ends."""
        container = self.containers[name]
        await self._run(container)
        self._keeping[name] = asyncio.create_task(self._keep(container))

    async def _keep(self, container: Container) -> None:
        while True:
            assert container.process is not None
            await container.process.wait()
            await asyncio.sleep(_AGAIN)
            await self._run(container)

    async def _run(self, container: Container) -> None:
        program, *arguments = (self.here(word) for word in container.manifest["command"])
        temporary = self._paths["/tmp"]
        with container.log.open("ab") as log:
            container.process = await asyncio.create_subprocess_exec(
                *(*_namespace(), *container.behind, _BIN / program, *arguments),
                cwd=self.here(container.manifest["workingDir"]),
                env={"PATH": f"{_BIN}:{os.environ['PATH']}", "TMPDIR": str(temporary), **CHECKOUT},
                stdout=log,
                stderr=log,
            )
        container.starts += 1

    async def end(self) -> dict[str, int]:
        """As the kubelet does: the last container first, each in order; the exit codes."""
        codes = {}
        for name in reversed(self.containers):
            container = self.containers[name]
            if keeping := self._keeping.pop(name, None):
                keeping.cancel()
            if container.process is None:
                continue
            if running := container.processes():
                os.kill(running[0], signal.SIGTERM)
            try:
                async with asyncio.timeout(self.spec["terminationGracePeriodSeconds"]):
                    codes[name] = await container.process.wait()
            except TimeoutError:
                container.kill()
                codes[name] = await container.process.wait()
        return codes


class Agents:
    """Agents that ask for a chat, over and over, and compare each answer with what production says to it.

    Attributes:
        outcomes: how often each thing came of a request; `good` is the only one that may be there.
    """

    def __init__(self, url: str, key: str) -> None:
        self._client = httpx.AsyncClient(base_url=url, headers={"x-slipstream-key": key}, timeout=30)
        self._number = 0
        self.outcomes: Counter[str] = Counter()

    @contextlib.asynccontextmanager
    async def at_work(self, count: int = 4) -> AsyncIterator[None]:
        async with self._client, asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._work()) for _ in range(count)]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()

    async def more(self, requests: int = 100) -> None:
        """Wait until as many were answered, well or not."""
        wanted = self.outcomes.total() + requests
        await until(lambda: self.outcomes.total() >= wanted, seconds=120)

    async def _work(self) -> None:
        while True:
            self._number += 1
            said = f"question {self._number}"
            body = {"model": "prod", "messages": [{"role": "user", "content": said}]}
            try:
                answer = await self._client.post("/v1/chat/completions", json=body)
                content = answer.json()["choices"][0]["message"]["content"] if answer.is_success else answer.text
                self.outcomes["good" if content == f"echo: {said}" else f"{answer.status_code} {content}"] += 1
            except httpx.TransportError as error:
                self.outcomes[repr(error)] += 1
