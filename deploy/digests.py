"""The digests of the base images: what the registries have under their names now.

    python deploy/digests.py           compare with what is written in the files
    python deploy/digests.py --write   write them there, as NAME:TAG@sha256:...

A tag can be given to another image at any time, a digest cannot. Exit code 0: each image is pinned to what its tag
names; 1: one is not; 3: a registry could not be asked about some, which are named.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx

ROOT = Path(__file__).parents[1]
FILES = ("deploy/docker/*.Dockerfile", "docker-compose.yml", "deploy/compose/*.yml")
OURS = "slipstream-"
"""Prefix of the images that are built here."""

_IMAGE = re.compile(
    r"^(?:ARG BASE=|\s*image:\s*)(?P<name>[\w./-]+):(?P<tag>[\w.-]+)(?:@(?P<digest>sha256:[0-9a-f]{64}))?\s*$",
    re.MULTILINE,
)
_KINDS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')
_TIMEOUT = httpx.Timeout(30, connect=5)
_DIFFERENT, _UNKNOWN = 1, 3


@dataclass(frozen=True)
class Image:
    """An image that a file names.

    Args:
        digest: that the file pins it to, or None.
    """

    name: str
    tag: str
    digest: str | None

    @property
    def address(self) -> tuple[str, str]:
        """The registry's address and the repository there, as Docker reads such a name."""
        host, _, rest = self.name.partition("/")
        if rest and ("." in host or ":" in host):
            return f"https://{host}", rest
        return "https://registry-1.docker.io", self.name if rest else f"library/{self.name}"


def images(root: Path) -> Iterator[tuple[Path, Image]]:
    """Each image of others that the files of the project name."""
    for pattern in FILES:
        for path in sorted(root.glob(pattern)):
            for found in _IMAGE.finditer(path.read_text(encoding="utf-8")):
                if not found["name"].startswith(OURS):
                    yield path, Image(found["name"], found["tag"], found["digest"])


def digest(client: httpx.Client, image: Image, registry: str | None) -> str:
    """Ask the registry.

    Raises:
        httpx.HTTPError: it does not answer, or not with this image.
        KeyError: it says no digest.
    """
    default, repository = image.address
    url = f"{registry or default}/v2/{repository}/manifests/{image.tag}"
    headers = {"accept": ", ".join(_KINDS)}
    answer = client.head(url, headers=headers)
    if answer.status_code == 401:
        challenge: Mapping[str, str] = dict(_CHALLENGE.findall(answer.headers["www-authenticate"]))
        asked = {name: value for name, value in challenge.items() if name != "realm"}
        token = client.get(challenge["realm"], params=asked).raise_for_status().json()["token"]
        answer = client.head(url, headers={**headers, "authorization": f"Bearer {token}"})
    return answer.raise_for_status().headers["docker-content-digest"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--write", action="store_true", help="write the digests into the files")
    parser.add_argument("--registry", help="ask this one in place of each image's own")
    parser.add_argument("--root", type=Path, default=ROOT, help="folder with the files")
    arguments = parser.parse_args()
    code = 0
    with httpx.Client(timeout=_TIMEOUT, follow_redirects=True) as client:
        for path, image in images(arguments.root):
            where = f"{path.relative_to(arguments.root)}: {image.name}:{image.tag}"
            try:
                found = digest(client, image, arguments.registry)
            except (httpx.HTTPError, KeyError, ValueError) as error:
                print(f"{where}: NOT checked: {type(error).__name__}: {error}", file=sys.stderr)
                code = _UNKNOWN
                continue
            if found == image.digest:
                print(f"{where}: as pinned")
            elif arguments.write:
                _pin(path, image, found)
                print(f"{where}: pinned to {found}")
            else:
                print(f"{where}: expected {found}, found {image.digest or 'no digest'}", file=sys.stderr)
                code = code or _DIFFERENT
    return code


def _pin(path: Path, image: Image, found: str) -> None:
    def pinned(match: re.Match[str]) -> str:
        if (match["name"], match["tag"]) != (image.name, image.tag):
            return match[0]
        return match[0].rstrip().partition("@")[0] + f"@{found}"

    path.write_text(_IMAGE.sub(pinned, path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
