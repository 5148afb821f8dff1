"""The files of the page as any client gets them, and what they were made of."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from pathlib import Path

import pytest
from loops import RunLoop

ROOT = Path(__file__).parents[2]
WEB = ROOT / "service" / "slipstream" / "web"
STATIC = WEB / "static"
LOCK = json.loads((WEB / "vendor.lock.json").read_text())["packages"]

_IMPORT = re.compile(r"""(?:\bfrom\s*|(?<!["'])\bimport\s*\(?\s*|\bimport\s+)["'`]([^"'`]+)["'`]""")


async def test_the_page_is_at_the_root_packed_tagged_and_under_a_strict_policy(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        page = await loop.client.get("/")
        assert page.status_code == 200
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        rules = dict(one.strip().split(" ", 1) for one in page.headers["content-security-policy"].split(";"))
        assert rules["default-src"] == "'none'"
        assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == rules["img-src"] == "'self'"
        assert rules["frame-ancestors"] == rules["base-uri"] == "'none'"
        assert rules["require-trusted-types-for"] == "'script'"
        linked = re.findall(r'(?:src|href)="([^"]+)"', page.text)
        assert {"ui/app.js", "ui/style.css", "ui/icon.svg"} <= set(linked)
        assert not [one for one in linked if one.startswith(("/", "http"))], "a base path would be left out"
        for path, kind in (
            ("ui/app.js", "text/javascript"),
            ("ui/style.css", "text/css"),
            ("ui/icon.svg", "image/svg+xml"),
        ):
            plain = await loop.client.get(path, headers={"accept-encoding": "identity"})
            assert plain.headers["content-type"].startswith(kind)
            assert plain.headers["x-content-type-options"] == "nosniff"
            packed = await loop.client.get(path, headers={"accept-encoding": "gzip"})
            assert packed.headers["content-encoding"] == "gzip"
            assert packed.content == plain.content
            seen = await loop.client.get(path, headers={"if-none-match": plain.headers["etag"]})
            assert (seen.status_code, seen.content) == (304, b"")
        for path in ("ui/none.js", "ui/../vendor.lock.json", "ui/%2e%2e/files.py", "ui/vendor/htm.LICENSE", "ui/"):
            missing = await loop.client.get(path)
            assert missing.status_code == 404, path
            assert missing.json()["error"]["code"] in ("not_found", "http_error")


@pytest.mark.parametrize("name", LOCK)
def test_a_library_is_what_its_lock_names(name: str) -> None:
    for path, file in LOCK[name]["files"].items():
        content = (STATIC / "vendor" / path).read_bytes()
        assert "sha256-" + base64.b64encode(hashlib.sha256(content).digest()).decode() == file["sha256"], path
    assert LOCK[name]["integrity"].startswith("sha512-")
    assert (STATIC / "vendor" / f"{name}.LICENSE").read_text(), "the licence goes with it"


def test_no_file_of_others_is_without_a_line_in_the_lock() -> None:
    found = {str(path.relative_to(STATIC / "vendor")) for path in (STATIC / "vendor").rglob("*") if path.is_file()}
    assert found == {path for package in LOCK.values() for path in package["files"]}


def test_each_module_imports_files_that_are_there() -> None:
    wrong = []
    for path in STATIC.rglob("*.js"):
        for name in _IMPORT.findall(path.read_text()):
            if "${" in name:
                continue
            if not name.startswith(".") or not (path.parent / name).resolve().is_file():
                wrong.append(f"{path.relative_to(STATIC)}: {name}")
    assert wrong == []


def test_our_own_files_make_no_markup_of_text() -> None:
    """The browser would refuse it; a reader of the code is told sooner."""
    sinks = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|dangerouslySetInnerHTML|\beval\(|new Function|\bstyle="
    )
    ours = [path for path in STATIC.rglob("*") if path.suffix in (".js", ".html") and "vendor" not in path.parts]
    found = [str(path.relative_to(STATIC)) for path in ours if sinks.search(path.read_text())]
    assert found == []


def test_what_the_first_page_loads_is_small() -> None:
    """The goal is 150 KB for all of it; packed, as it is sent."""
    loaded, waiting = (
        set(),
        [STATIC / "index.html", STATIC / "style.css", STATIC / "app.js", STATIC / "pages" / "now.js"],
    )
    while waiting:
        path = waiting.pop()
        if path in loaded:
            continue
        loaded.add(path)
        static = re.findall(r"""\bfrom\s*["']([^"']+)["']""", path.read_text()) if path.suffix == ".js" else []
        waiting += [(path.parent / name).resolve() for name in static]
    assert sum(len(gzip.compress(path.read_bytes(), 9)) for path in loaded) < 50_000
    everything = [path for path in STATIC.rglob("*") if path.suffix in (".js", ".css", ".html", ".svg")]
    assert sum(len(gzip.compress(path.read_bytes(), 9)) for path in everything) < 150_000
