"""The digests of base images, asked of a registry: written, compared, and named if they could not be asked."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from composed import ROOT
from serving import serving
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

DIGEST = "sha256:" + "a" * 64
DOCKERFILE = "ARG BASE=python:3.11.13-slim-bookworm\nFROM ${BASE}\n"
COMPOSE = 'services:\n  a:\n    image: prom/prometheus:v3.5.0\n  b:\n    image: "slipstream-sidecar:1"\n'


async def asked(root: Path, registry: str, *options: str) -> tuple[int | None, str]:
    """Exit code, and all that was said."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(ROOT / "deploy/digests.py"), "--root", str(root), "--registry", registry, *options),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    return process.returncode, said.decode()


def registry(known: dict[str, str]) -> Starlette:
    """A registry that wants a token for reading, as Docker Hub does."""

    async def manifest(request: Request) -> Response:
        repository, tag = request.path_params["repository"], request.path_params["tag"]
        if request.headers.get("authorization") != f"Bearer for {repository}":
            realm = f'Bearer realm="{request.url_for("token")}",service="here",scope="repository:{repository}:pull"'
            return Response(status_code=401, headers={"www-authenticate": realm})
        if (name := f"{repository}:{tag}") not in known:
            return Response(status_code=404)
        return Response(headers={"docker-content-digest": known[name]})

    async def token(request: Request) -> Response:
        return JSONResponse({"token": "for " + request.query_params["scope"].split(":")[1]})

    return Starlette(
        routes=[
            Route("/v2/{repository:path}/manifests/{tag}", manifest, methods=["HEAD"]),
            Route("/token", token, name="token"),
        ]
    )


def project(folder: Path) -> None:
    (folder / "deploy" / "docker").mkdir(parents=True)
    (folder / "deploy" / "docker" / "sidecar.Dockerfile").write_text(DOCKERFILE)
    (folder / "docker-compose.yml").write_text(COMPOSE)


async def test_images_are_pinned_to_what_the_registry_has_and_a_moved_tag_is_seen(tmp_path: Path) -> None:
    project(tmp_path)
    known = {"library/python:3.11.13-slim-bookworm": DIGEST, "prom/prometheus:v3.5.0": DIGEST}
    async with serving(registry(known)) as url:
        code, said = await asked(tmp_path, url)
        assert (code, said.count(f"expected {DIGEST}, found no digest")) == (1, 2), said
        code, said = await asked(tmp_path, url, "--write")
        assert (code, said.count(f"pinned to {DIGEST}")) == (0, 2), said
        assert (tmp_path / "deploy/docker/sidecar.Dockerfile").read_text() == DOCKERFILE.replace(
            "bookworm", f"bookworm@{DIGEST}"
        )
        assert (tmp_path / "docker-compose.yml").read_text() == COMPOSE.replace("v3.5.0", f"v3.5.0@{DIGEST}")
        code, said = await asked(tmp_path, url)
        assert (code, said.count("as pinned")) == (0, 2), said
        known["prom/prometheus:v3.5.0"] = moved = "sha256:" + "b" * 64
        code, said = await asked(tmp_path, url)
        assert (code, f"prom/prometheus:v3.5.0: expected {moved}, found {DIGEST}" in said) == (1, True), said


async def test_what_could_not_be_asked_is_named_and_has_a_code_of_its_own(tmp_path: Path) -> None:
    project(tmp_path)
    async with serving(registry({"library/python:3.11.13-slim-bookworm": DIGEST})) as url:
        code, said = await asked(tmp_path, url)
        assert (code, "prom/prometheus:v3.5.0: NOT checked" in said) == (3, True), said
    code, said = await asked(tmp_path, url, "--write")
    assert (code, said.count("NOT checked")) == (3, 2), said
    assert (tmp_path / "docker-compose.yml").read_text() == COMPOSE


async def test_each_image_of_others_in_the_project_is_asked_for() -> None:
    async with serving(registry({})) as url:
        code, said = await asked(ROOT, url)
    assert code == 3
    for name in ("python:3", "postgres:", "prom/prometheus:", "grafana/grafana:"):
        assert name in said
    assert "slipstream-" not in said
