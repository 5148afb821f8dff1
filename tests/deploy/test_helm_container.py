"""The chart's containers against the images and the sidecar: commands, variables, directories, and one that runs."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

import httpx
import yaml
from charts import (
    CHART,
    MATRIX,
    ROOT,
    containers,
    of_kind,
    pods,
    template,
)
from ports import free_port
from serving import until

import slipstream
from slipstream.access.keys import new_key


async def test_the_container_runs_as_a_process(tmp_path: Path) -> None:
    """Its command, configuration and probes, with the mounted directories in another place and another address."""
    manifests = template(MATRIX["secrets and files"])
    [deployment] = of_kind(manifests, "Deployment").values()
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    for mount in container["volumeMounts"]:
        (tmp_path / mount["mountPath"].lstrip("/")).mkdir(parents=True, exist_ok=True)
    for secret in ("production_api_key", "facade_api_key"):
        (tmp_path / "run/secrets/slipstream" / secret).write_text("k-123")
    (tmp_path / "run/secrets/slipstream/access_keys").write_text(f"[{{name: a, roles: [proxy], key: {new_key()}}}]")
    port = free_port()

    def here(text: str) -> str:
        moved = re.sub(r"(?<![\w.])/(etc/slipstream|var/lib/slipstream|run/secrets)", rf"{tmp_path}/\1", text)
        return moved.replace("0.0.0.0:8100", f"127.0.0.1:{port}")

    for file, content in of_kind(manifests, "ConfigMap")["demo-slipstream-sidecar"]["data"].items():
        (tmp_path / "etc/slipstream" / file).write_text(here(content))
    [program, *arguments] = [here(word) for word in container["command"]]
    environment = {"PATH": str(Path(sys.executable).parent), "HOME": str(tmp_path)}  # not whose SLIPSTREAM_... we have
    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).parent / program, *arguments, cwd=here(container["workingDir"]), env=environment
    )
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=5) as client:
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                path = container[probe]["httpGet"]["path"]

                async def answers(path: str = path) -> bool:
                    assert process.returncode is None
                    try:
                        return (await client.get(path)).status_code == 200
                    except httpx.TransportError:
                        return False

                await until(answers, seconds=60)
        await until(lambda: list((tmp_path / "var/lib/slipstream").glob("slipstream.db*")), seconds=60)
        process.terminate()
        async with asyncio.timeout(deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def test_the_chart_fits_the_images() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    docker = ROOT / "deploy" / "docker"
    locked = (docker / "constraints-trinity.txt").read_text(encoding="utf-8")
    assert f"ray=={values['trinity']['rayVersion']}\n" in locked
    for name in ("sidecar", "trinity"):
        dockerfile = (docker / f"{name}.Dockerfile").read_text(encoding="utf-8")
        user = values[name]["user"]
        assert f"USER {user}:{user}" in dockerfile
        assert f"-t {values[name]['image']['repository']}:{slipstream.__version__}" in dockerfile
        assert "/home/slipstream/.cache" in dockerfile or name == "sidecar", "where the chart mounts a volume"
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["appVersion"] == slipstream.__version__


def test_no_variable_of_the_chart_is_refused_by_the_sidecar() -> None:
    for _, pod in pods(template(MATRIX["secrets and files"])):
        for container in containers(pod):
            assert not [v["name"] for v in container.get("env", []) if v["name"].startswith("SLIPSTREAM_")]


def test_the_module_of_a_reward_stands_where_the_sidecar_looks() -> None:
    manifests = template(MATRIX["secrets and files"])
    [deployment] = of_kind(manifests, "Deployment").values()
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    config = next(m for m in container["volumeMounts"] if m["name"] == "slipstream-config")
    assert container["workingDir"] == config["mountPath"] == os.path.dirname(container["command"][-1])
    assert "my_rewards.py" in of_kind(manifests, "ConfigMap")["demo-slipstream-sidecar"]["data"]
